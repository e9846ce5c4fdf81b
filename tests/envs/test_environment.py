"""What `Environment` checks for all families, and the seeds of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noisynet.envs import (
    Environment,
    EnvironmentLike,
    EnvironmentSpec,
    Step,
    episode_seed,
    make_environment,
    repeats_episodes,
)

from .custom_environments import Corridor, Unseeded

SPEC = EnvironmentSpec(
    name="test/countdown",
    num_actions=3,
    frame_shape=(2,),
    frame_dtype="float32",
    stack=1,
    frames_per_step=1,
    pixel_scale=1.0,
)


class Countdown(Environment):
    """Shows (seed, steps left); action 0 terminates at zero, others truncate."""

    def __init__(self, num_envs: int, length: int = 2) -> None:
        super().__init__(SPEC, num_envs)
        self.length = length
        self.frames = self._no_frames()
        self.closed = 0
        self.seen: list[NDArray[np.int64]] = []

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        for index, seed in enumerate(seeds):
            if seed is not None:
                self.frames[index] = seed, self.length
        return self.frames.copy()

    def _recv(self, actions: NDArray[np.int64]) -> Step:
        self.seen.append(actions)
        self.frames[:, 1] -= 1
        over = self.frames[:, 1] == 0
        reward = np.ones(self.num_envs)
        lost = np.zeros(self.num_envs, dtype=np.bool_)
        return Step(self.frames.copy(), reward, over & (actions == 0), over & (actions != 0), lost)

    def _screen(self, index: int) -> NDArray[np.uint8]:
        return np.full((1, 1, 3), index, dtype=np.uint8)

    def _close(self) -> None:
        self.closed += 1


GOLDEN_SEEDS = [946661213, 384446266, 1237863527]


def actions(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def test_start_returns_the_asked_rows_and_zeros_elsewhere() -> None:
    env = Countdown(2)
    env.start([7, 8])
    assert env.start([None, 9]).tolist() == [[0, 0], [9, 2]]
    assert env.start([None, None]).tolist() == [[0, 0], [0, 0]]
    assert env.frames.tolist() == [[7, 2], [9, 2]]


def test_a_finished_environment_must_be_started_before_the_next_send() -> None:
    env = Countdown(3)
    env.start([1, 2, 3])
    env.step(actions(0, 0, 0))
    env.start([None, 5, None])
    last = env.step(actions(0, 0, 1))
    assert last.terminated.tolist() == [True, False, False]
    assert last.truncated.tolist() == [False, False, True]
    with pytest.raises(RuntimeError, match=r"\[0, 2\] of test/countdown have no running episode"):
        env.send(actions(0, 0, 0))
    env.start([1, None, 1])
    env.step(actions(0, 0, 0))


def test_an_environment_that_was_never_started_cannot_be_stepped_or_shown() -> None:
    env = Countdown(2)
    env.start([None, 1])
    with pytest.raises(RuntimeError, match=r"\[0\]"):
        env.send(actions(0, 0))
    with pytest.raises(RuntimeError, match=r"environment 0 .* never started"):
        env.screen(0)
    assert env.screen(1).tolist() == [[[1, 1, 1]]]
    with pytest.raises(IndexError, match=r"0\.\.1, got 2"):
        env.screen(2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.array([0]), r"shape \(2,\).*got shape \(1,\)"),
        (np.array([[0, 0]]), r"got shape \(1, 2\)"),
        (np.array([0.0, 1.0]), "dtype float64"),
        (np.array([True, False]), "dtype bool"),
        (np.array([0, 3]), r"0\.\.2 for test/countdown, got \[0, 3\]"),
        (np.array([-1, 0]), r"got \[-1, 0\]"),
    ],
)
def test_wrong_actions_are_refused_and_change_nothing(wrong: Any, message: str) -> None:
    env = Countdown(2)
    env.start([1, 1])
    with pytest.raises(ValueError, match=message):
        env.send(wrong)
    assert env.step(actions(0, 2)).frame.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([1], "expected 2 seeds, .* got 1"),
        ([1, -1], r"0\.\.2147483647, got -1"),
        ([1, 2**31], "got 2147483648"),
        ([1, 1.5], "integer, got 1.5"),
        ([1, True], "integer, got True"),
    ],
)
def test_wrong_seeds_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Countdown(2).start(wrong)


def test_numpy_integers_are_seeds_and_any_integer_type_is_an_action() -> None:
    env = Countdown(2)
    seeds: Any = [np.int64(4), np.uint8(5)]
    assert env.start(seeds)[:, 0].tolist() == [4, 5]
    given: Any = np.array([1, 2], dtype=np.uint8)
    env.step(given)
    assert env.seen[0].dtype == np.int64


def test_actions_may_be_overwritten_by_the_caller_after_send() -> None:
    env = Countdown(2)
    env.start([1, 1])
    given = actions(1, 2)
    env.send(given)
    given[:] = 0
    env.recv()
    assert env.seen[0].tolist() == [1, 2]


def test_calls_out_of_order_are_refused() -> None:
    env = Countdown(1)
    with pytest.raises(RuntimeError, match="without a send"):
        env.recv()
    env.start([1])
    env.send(actions(0))
    with pytest.raises(RuntimeError, match=r"send .* between send and recv: call recv"):
        env.send(actions(0))
    with pytest.raises(RuntimeError, match=r"start .* between send and recv: call recv"):
        env.start([1])
    env.recv()


def test_closing_happens_once_and_ends_use() -> None:
    with Countdown(1) as env:
        env.start([1])
    env.close()
    assert env.closed == 1
    with pytest.raises(RuntimeError, match="after close"):
        env.start([1])


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True])
def test_a_wrong_number_of_environments_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="num_envs"):
        Countdown(wrong)


def test_episode_seeds_are_the_same_on_every_machine_and_in_every_process() -> None:
    assert [episode_seed(0, "train", 0, episode) for episode in range(3)] == GOLDEN_SEEDS


def test_every_coordinate_of_an_episode_changes_its_seed() -> None:
    seeds = {
        episode_seed(run, role, environment, episode)
        for run in range(4)
        for role in ("train", "eval")
        for environment in range(8)
        for episode in range(50)
    }
    assert len(seeds) == 4 * 2 * 8 * 50
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_an_episode_of_another_role_or_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="'train' or 'eval', got 'test'"):
        episode_seed(0, "test", 0, 0)
    with pytest.raises(ValueError, match="episode to be at least 0, got -1"):
        episode_seed(0, "train", 0, -1)


def test_environments_that_do_not_repeat_an_episode_are_found() -> None:
    cases: list[tuple[EnvironmentLike, bool]] = [
        (Corridor, True),
        ("gym/CartPole-v1", True),
        (Unseeded, False),
    ]
    for environment, repeats in cases:
        with make_environment(environment, 2) as made:
            assert repeats_episodes(made) == repeats
            made.start([3, 4])  # episodes can be started as before
            made.step(np.array([0, 1]))
