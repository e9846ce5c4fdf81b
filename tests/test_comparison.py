"""docs/comparison.md agrees with the audit's answers, and its short version is short."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "comparison.md").read_text()
AUDIT = json.loads((ROOT / "benchmarks" / "results" / "audit.json").read_text())["libraries"]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_row_of_the_audit_has_the_measured_counts() -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith("| failed questions"))
    heading = next(line for line in TEXT.splitlines() if line.startswith("| | noisynet"))
    for title, cell in list(zip(cells(heading), cells(row), strict=True))[1:]:
        name = title.split()[0].replace("Stable-Baselines3", "SB3, gated layer")
        answers = [check["passed"] for check in AUDIT[name]["agent"]["checks"]]
        asked = sum(answer is not None for answer in answers)
        assert cell.startswith(f"{answers.count(False)} of {asked}"), (title, name)


def test_the_short_version_has_at_most_ten_rows_of_the_same_libraries() -> None:
    short = TEXT.split("<!-- short -->")[1].split("<!-- end -->")[0].strip().splitlines()
    assert len(short) <= 2 + 10
    assert {len(cells(line)) for line in short} == {8}


def test_every_table_has_as_many_cells_in_each_row() -> None:
    for block in TEXT.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(cells(row)) for row in rows}) <= 1, rows[:1]
