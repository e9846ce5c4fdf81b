"""What docs/environments.md says is true; tests/test_documentation.py runs its code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from noisynet.config import build_config
from noisynet.envs import FAMILIES, environment_folder
from noisynet.envs.make import _GIVEN_IN_PYTHON
from noisynet.envs.observations import SMALLEST_IMAGE
from noisynet.loops.process import _SMALLEST_LARGE_IMAGE

TEXT = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]


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
