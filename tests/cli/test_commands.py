"""The application: its commands, and how quickly it answers."""

from __future__ import annotations

import re

import pytest

from .calling import command, invoke


@pytest.mark.parametrize(
    "arguments",
    [["trian"], ["train", "dqn"], ["train", "dqn", "atari/pong", "--seed", "x"], ["evaluate"]],
)
def test_a_command_that_cannot_be_parsed_exits_2(arguments: list[str]) -> None:
    ended = invoke(*arguments)
    assert ended.exit_code == 2
    assert isinstance(ended.exception, SystemExit)


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["sweep", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    ended = command(*arguments, interpreter=("-X", "importtime"))
    assert ended.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "noisynet.cli.commands" in imported
    assert not imported & {"torch", "scipy", "numba", "matplotlib", "gymnasium", "tensorboard"}


def test_help_lists_every_command() -> None:
    ended = invoke("--help")
    names = ("train", "evaluate", "watch", "audit", "sweep", "report", "paper", "list", "doctor")
    for name in names:
        assert re.search(rf"^\s*{name}\b", ended.output, re.MULTILINE)
