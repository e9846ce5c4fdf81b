"""The application: its commands, and how quickly it answers."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from typer.testing import CliRunner

from noisynet.cli import app

from .calling import command, invoke


@pytest.mark.parametrize(
    "arguments",
    [["trian"], ["train", "dqn"], ["train", "dqn", "atari/pong", "--seed", "x"], ["evaluate"]],
)
def test_a_command_that_cannot_be_parsed_exits_2(arguments: list[str]) -> None:
    ended = invoke(*arguments)
    assert ended.exit_code == 2
    assert isinstance(ended.exception, SystemExit)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "-h"], ["sweep", "--help"], ["agents"], ["settings"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    ended = command(*arguments, interpreter=("-X", "importtime"))
    assert ended.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "noisynet.cli.commands" in imported
    assert not imported & {"torch", "scipy", "numba", "matplotlib", "gymnasium", "tensorboard"}


def test_the_version_is_that_of_the_package() -> None:
    ended = invoke("--version")
    assert (ended.exit_code, ended.output) == (0, f"noisynet {metadata.version('noisynet')}\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [("train noisynet-c", "noisynet-c51"), ("train dqn minatar/f", "minatar/freeway")],
)
def test_a_shell_completes_agents_and_environments(words: str, expected: str) -> None:
    variables = {
        "_NOISYNET_COMPLETE": "complete_bash",
        "COMP_WORDS": f"noisynet {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    ended = CliRunner().invoke(app, [], env=variables, prog_name="noisynet")
    assert ended.output.split() == [expected]


def test_help_lists_every_command() -> None:
    ended = invoke("--help")
    names = (
        *("train", "evaluate", "watch", "audit", "sweep", "report", "paper", "runs", "show"),
        "dashboard",
        *("agents", "envs", "settings", "doctor"),
    )
    for name in names:
        assert re.search(rf"^\s*{name}\b", ended.output, re.MULTILINE)
