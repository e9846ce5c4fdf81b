"""The promise of all families: an episode is exactly (seed, actions)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from noisynet.envs import Environment, make_environment

ENVIRONMENTS = [
    "atari/breakout",
    "atari/seaquest",
    "minatar/asterix",
    "minatar/breakout",
    "minatar/freeway",
    "minatar/seaquest",
    "minatar/space_invaders",
    "deep_sea/7",
    "gym/CartPole-v1",
    "gym/Acrobot-v1",
    "gym/FrozenLake-v1",
]
STEPS = 150


class Episode(NamedTuple):
    frames: list[NDArray[Any]]
    rewards: list[float]
    flags: list[tuple[bool, bool, bool]]


def action_stream(num_actions: int, seed: int) -> Iterator[int]:
    generator = np.random.default_rng(seed)
    while True:
        yield int(generator.integers(num_actions))


def play(env: Environment, index: int, seed: int, stream_seed: int, steps: int) -> Episode:
    """Play one episode in environment `index`; the others play something else meanwhile."""
    others = np.random.default_rng(stream_seed + 1000 * env.num_envs + index)
    seeds: list[int | None] = [int(others.integers(2**31)) for _ in range(env.num_envs)]
    seeds[index] = seed
    episode = Episode([env.start(seeds)[index].copy()], [], [])
    stream = action_stream(env.spec.num_actions, stream_seed)
    for _ in range(steps):
        actions = others.integers(env.spec.num_actions, size=env.num_envs)
        actions[index] = next(stream)
        step = env.step(actions)
        over = step.terminated | step.truncated
        episode.frames.append(step.frame[index].copy())
        episode.rewards.append(float(step.reward[index]))
        flags = (step.terminated[index], step.truncated[index], step.life_lost[index])
        episode.flags.append((bool(flags[0]), bool(flags[1]), bool(flags[2])))
        if over[index]:
            break
        if over.any():
            env.start([int(others.integers(2**31)) if done else None for done in over])
    return episode


def assert_same(first: Episode, second: Episode) -> None:
    assert first.rewards == second.rewards
    assert first.flags == second.flags
    for one, other in zip(first.frames, second.frames, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_seed_and_actions_determine_an_episode_alone_or_among_others(name: str) -> None:
    with make_environment(name) as alone, make_environment(name, 4) as among:
        expected = play(alone, 0, seed=11, stream_seed=1, steps=STEPS)
        play(alone, 0, seed=12, stream_seed=2, steps=40)
        assert_same(expected, play(alone, 0, seed=11, stream_seed=1, steps=STEPS))
        play(among, 1, seed=13, stream_seed=3, steps=30)
        assert_same(expected, play(among, 2, seed=11, stream_seed=1, steps=STEPS))


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if name != "deep_sea/7"])
def test_another_seed_gives_another_episode(name: str) -> None:
    with make_environment(name) as env:
        episodes = [play(env, 0, seed, stream_seed=1, steps=80) for seed in (1, 2, 3)]
    shown = {b"".join(frame.tobytes() for frame in episode.frames) for episode in episodes}
    assert len(shown) > 1


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_frames_are_as_the_spec_says_and_belong_to_the_caller(name: str) -> None:
    with make_environment(name, 2) as env:
        shape, dtype = (2, *env.spec.frame_shape), np.dtype(env.spec.frame_dtype)
        first = env.start([1, 2])
        assert first.shape == shape
        assert first.dtype == dtype
        step = env.step(np.array([0, 1]))
        assert step.frame.shape == shape
        assert step.frame.dtype == dtype
        assert [field.shape for field in step[1:]] == [(2,)] * 4
        assert step.reward.dtype == np.float64
        assert [field.dtype for field in step[2:]] == [np.dtype(np.bool_)] * 3
        kept, copy = step.frame, step.frame.copy()
        env.step(np.array([1, 0]))
        env.start([3, 4])
        np.testing.assert_array_equal(kept, copy)


@pytest.mark.parametrize("name", ["atari/breakout", "minatar/space_invaders", "gym/CartPole-v1"])
def test_an_episode_cut_by_the_frame_limit_is_truncated_and_keeps_its_true_last_frame(
    name: str,
) -> None:
    with make_environment(name) as free, make_environment(name, max_episode_frames=16) as cut:
        free.start([5])
        cut.start([5])
        steps = 16 // cut.spec.frames_per_step
        for count in range(1, steps + 1):
            action = np.array([count % 2])
            expected, step = free.step(action), cut.step(action)
            assert not step.terminated[0]
            assert step.truncated[0] == (count == steps)
            np.testing.assert_array_equal(step.frame, expected.frame)
        with pytest.raises(RuntimeError, match=r"\[0\]"):
            cut.send(np.array([0]))


@pytest.mark.parametrize("name", ["minatar/space_invaders", "deep_sea/5", "atari/breakout"])
def test_screens_are_colour_images_and_follow_the_game(name: str) -> None:
    options = {"colour": True} if name.startswith("atari") else {}
    with make_environment(name, 2, **options) as env:
        env.start([1, 2])
        before = env.screen(1)
        assert before.dtype == np.uint8
        assert before.ndim == 3
        assert before.shape[2] == 3
        for _ in range(3):
            env.step(np.array([1, 1]))
        assert not np.array_equal(before, env.screen(1))
