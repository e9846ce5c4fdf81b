"""The snippets of docs/environments.md run as they stand."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import gymnasium
import pytest
from typer.testing import CliRunner

from noisynet.cli import app
from noisynet.config import build_config
from noisynet.envs import FAMILIES, environment_folder
from noisynet.envs.make import _GIVEN_IN_PYTHON
from noisynet.envs.observations import SMALLEST_IMAGE
from noisynet.evaluation import make_configured_environment
from noisynet.loops.process import _SMALLEST_LARGE_IMAGE

TEXT = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
MODULE, SCRIPT = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the module of the first snippet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "corridor", raising=False)
    registry = dict(gymnasium.registry)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", registry)
    monkeypatch.setattr(gymnasium, "registry", registry)
    (tmp_path / "corridor.py").write_text(MODULE)
    return tmp_path


def test_the_commands_train_and_render(folder: Path) -> None:
    for command in (COMMANDS[0], COMMANDS[2]):
        short = ["--frames", "300", "--set", "evaluation.period_frames=150", "--no-tensorboard"]
        short += ["--set", "evaluation.frames=60", "--set", "learning.starts_steps=100"]
        given = command[1:] + (short if command[1] == "train" else [])
        ended = CliRunner().invoke(app, given)
        assert ended.exit_code == 0, f"{shlex.join(command)}: {ended.output}"
    assert (folder / "game.mp4").exists()
    _, _, agent, name, *_, setting = COMMANDS[1]
    config = build_config(agent, name, settings=[setting])
    with make_configured_environment(config, 1) as environment:
        assert environment.spec.frame_shape == (12 + 1,)


def test_the_script_trains_and_evaluates(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    exec(compile(SCRIPT, "script.py", "exec"), {"__name__": "__main__"})
    shown = capsys.readouterr().out
    assert re.findall(r"\(10 episodes (\w+) noise\)", shown) == ["with", "without"]
    assert (folder / "runs" / "corridor" / "config.json").exists()


def test_the_command_with_images_is_valid() -> None:
    _, _, agent, name, _, preset = COMMANDS[3]
    options = build_config(agent, name, preset=preset).environment_options
    assert options == {"resize": 84, "greyscale": True, "frame_stack": 4}
    for option in options:
        assert f"`environment_options.{option}=" in TEXT


def test_the_text_has_every_family_and_the_sizes_of_images() -> None:
    for name in set(FAMILIES) - set(_GIVEN_IN_PYTHON):
        assert f"| `{name}/<" in TEXT
        assert f"`{FAMILIES[name].preset}`" in TEXT
    for name in _GIVEN_IN_PYTHON:
        assert f"`{name}/<" in TEXT
    assert f"at least {SMALLEST_IMAGE}×{SMALLEST_IMAGE};" in TEXT
    assert f"at least {_SMALLEST_LARGE_IMAGE}×{_SMALLEST_LARGE_IMAGE} get Nature's" in TEXT
    assert environment_folder("gym/corridor:Corridor-v0") in TEXT
