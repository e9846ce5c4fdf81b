"""`noisynet sweep`, `report`, `dashboard` and `paper`: what they refuse."""

from __future__ import annotations

import socket
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
        (["dashboard", "no-such-folder"], "expected folders of runs, got no-such-folder"),
        (["dashboard", ".", "--token", "short"], "expected a token of at least 16 characters"),
        (["dashboard", ".", "--port", "70000"], "65535"),
        (["paper", "--form", "pdf"], "--form expected text, markdown, csv or latex, got 'pdf'"),
    ],
)
def test_a_wrong_option_exits_2(arguments: list[str], told: str) -> None:
    ended = invoke(*arguments)
    assert ended.exit_code == 2
    assert told in ended.output


def test_a_dashboard_on_a_port_in_use_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = invoke("dashboard", ".", "--port", port)
    assert ended.exit_code == 1
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in ended.output


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("matplotlib", ["report", "runs"]),
        ("scipy", ["report", "runs"]),
        ("jinja2", ["report", "runs"]),
        ("scipy", ["paper"]),
        ("starlette", ["dashboard", "."]),
        ("uvicorn", ["dashboard", "."]),
    ],
)
def test_a_command_without_its_packages_names_the_pip_line(
    missing: str, arguments: list[str]
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\n"
    code += f"from noisynet.cli import app; app({arguments!r})"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.startswith("noisynet: ")
    extra = "dashboard" if arguments[0] == "dashboard" else "report"
    assert f'pip install "noisynet[{extra}]"' in ended.stderr
    assert "Traceback" not in ended.stderr
