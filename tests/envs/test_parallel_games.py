"""Environments in processes of their own."""

from __future__ import annotations

import functools
import gc
from pathlib import Path

import numpy as np
import pytest

from noisynet.envs import Environment, make_environment

from .custom_environments import Corridor


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes import these tests' environments."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))


def assert_plays_the_same(first: Environment, second: Environment, steps: int) -> None:
    assert first.spec == second.spec
    seeds: list[int | None] = [5, 6]
    generator = np.random.default_rng(0)
    for _ in range(steps):
        np.testing.assert_array_equal(first.start(seeds), second.start(seeds))
        actions = generator.integers(first.spec.num_actions, size=2)
        one, other = first.step(actions), second.step(actions)
        for field, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(field, expected)
        over = one.terminated | one.truncated
        seeds = [int(generator.integers(99)) if done else None for done in over]


def test_parallel_environments_play_the_same_games_and_close() -> None:
    make = functools.partial(Corridor, "dict", render_mode="rgb_array")
    with (
        make_environment(make, 2, parallel=True, frame_stack=2) as parallel,
        make_environment(make, 2, frame_stack=2) as serial,
    ):
        assert_plays_the_same(parallel, serial, steps=60)
        np.testing.assert_array_equal(parallel.screen(1), serial.screen(1))
        processes = parallel._parallel._vector.processes  # type: ignore[attr-defined]
        assert all(process.is_alive() for process in processes)
        parallel.send(np.array([0, 1]))  # closed while they step
    for process in processes:
        process.join(20)
        assert not process.is_alive()


def test_a_process_that_dies_is_named() -> None:
    make = functools.partial(Corridor, "flat")
    with make_environment(make, 2, parallel=True) as parallel:
        parallel.start([1, 2])
        processes = parallel._parallel._vector.processes  # type: ignore[attr-defined]
        processes[1].kill()
        processes[1].join()
        with pytest.raises(RuntimeError, match="a process of function/Corridor died"):
            parallel.step(np.array([0, 1]))
    gc.collect()  # Python 3.12 crashes if a buffer of the message is left


def test_a_single_environment_needs_no_process() -> None:
    with make_environment(Corridor, parallel=True) as environment:
        assert environment._parallel is None  # type: ignore[attr-defined]
