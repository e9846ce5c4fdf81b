"""`noisynet sweep`, `report` and `paper`: what they refuse."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .calling import invoke


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sweep", "no-such-plan"], "no-such-plan"),
        (["report", "runs", "--references", "both"], "--references expected unrounded or printed"),
        (["report", "runs", "--at-frames", "soon"], "--at-frames expected a positive whole number"),
        (["paper", "--form", "pdf"], "--form expected text, markdown, csv or latex, got 'pdf'"),
    ],
)
def test_a_wrong_option_exits_2(arguments: list[str], told: str) -> None:
    ended = invoke(*arguments)
    assert ended.exit_code == 2
    assert told in ended.output


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("matplotlib", ["report", "runs"]),
        ("scipy", ["report", "runs"]),
        ("jinja2", ["report", "runs"]),
        ("scipy", ["paper"]),
    ],
)
def test_a_report_without_its_packages_names_the_pip_line(
    missing: str, arguments: list[str]
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\n"
    code += f"from noisynet.cli import app; app({arguments!r})"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.startswith("noisynet: ")
    assert 'pip install "noisynet[report]"' in ended.stderr
    assert "Traceback" not in ended.stderr
