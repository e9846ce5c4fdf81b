"""The tables of docs/reliability.md name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_test_in_the_tables_exists() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    tables = re.findall(r"^\|.*\| test \|\n\|[-:|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    named = re.findall(r"`(tests/[\w/]+\.py|test_\w+)`", text)
    defined = " ".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    files = [name for name in named if name.startswith("tests/")]
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert [name for name in named if name not in files and f"def {name}(" not in defined] == []
    assert len(rows) > 25
    assert [row for row in rows if not re.search(r"`test(s/|_)", row.rpartition(" | ")[2])] == []
