"""Settings of a training process: denormals, imports and threads."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from noisynet.config import build_config
from noisynet.envs import EnvironmentSpec
from noisynet.loops.process import choose_threads, default_threads, has_large_images

PROGRAM = """
import sys, torch
from noisynet import Agent
torch.set_num_threads(2)
agent = Agent("dqn", "deep_sea/4", learning={"starts_steps": 32})
tiny = torch.full((1_000_000,), 1e-30)  # large enough for both threads
print(int((tiny * 1e-10 != 0).sum()))
agent.learn(50)
agent.save("agent")
print("torch._dynamo" in sys.modules)
"""


def spec(*frame_shape: int) -> EnvironmentSpec:
    return EnvironmentSpec("any", 4, frame_shape, "uint8", 1, 1, 1.0)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a process that trains prints about itself."""
    command, folder = [sys.executable, "-c", PROGRAM], tmp_path_factory.mktemp("process")
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return ran.stdout.split()


def test_denormals_are_flushed_in_every_thread(printed: list[str]) -> None:
    assert printed[0] == "0"


def test_training_with_kernels_does_not_import_pytorchs_compiler(printed: list[str]) -> None:
    assert printed[1] == "False"


@pytest.mark.parametrize(
    ("frame_shape", "large"),
    [((84, 84), True), ((3, 64, 64), True), ((4, 10, 10), False), ((16,), False), ((100,), False)],
)
def test_large_images_are_those_of_atari_size(frame_shape: tuple[int, ...], large: bool) -> None:
    assert has_large_images(spec(*frame_shape)) is large


def test_several_threads_are_the_default_for_large_images_of_value_agents_only() -> None:
    torch.set_num_threads(2)
    dqn, a3c = build_config("dqn", "atari/pong"), build_config("a3c", "atari/pong")
    assert default_threads(dqn, spec(84, 84)) == 2
    assert default_threads(dqn, spec(4, 10, 10)) == 1
    assert default_threads(a3c, spec(84, 84)) == 1


@pytest.mark.parametrize(
    ("given", "stored", "default", "threads", "note"),
    [
        (None, None, 4, 4, ""),
        (2, None, 4, 2, ""),
        (None, 4, 4, 4, ""),
        (4, 4, 2, 4, ""),
        (None, 4, 2, 4, "was started with 4 threads and uses them again; the default here is 2"),
        (2, 4, 2, 2, "was started with 4 threads and now uses 2: results may differ in the last"),
    ],
)
def test_a_resumed_run_uses_its_stored_number_of_threads_unless_another_is_given(
    given: int | None, stored: int | None, default: int, threads: int, note: str
) -> None:
    chosen, said = choose_threads(given, stored, default)
    assert chosen == threads
    assert note in said
    assert bool(note) == bool(said)
