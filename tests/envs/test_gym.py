"""Gymnasium environments: spaces, ends of episodes, errors."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from noisynet.agents import ValueAgent
from noisynet.config import build_config
from noisynet.envs import EnvironmentFailed, GymEnvironment, make_environment

PROBE = "noisynet-test/Probe-v0"


class Probe(gymnasium.Env[Any, Any]):
    """Observes a counter in any space, ends when told, and remembers its actions."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 — Gymnasium's own convention

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        observation: Any,
        end: tuple[bool, bool] = (False, False),
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.observation = observation
        self.end = end
        self.render_mode = render_mode
        self.taken: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        return self.observation, 2.5, *self.end, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), len(self.taken), dtype=np.uint8)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(PROBE, entry_point=lambda **given: Probe(**given))
    yield
    del gymnasium.registry[PROBE]


def probe(
    observation_space: spaces.Space[Any],
    observation: Any,
    action_space: spaces.Space[Any] | None = None,
    **options: Any,
) -> GymEnvironment:
    given = {
        "observation_space": observation_space,
        "observation": observation,
        "action_space": spaces.Discrete(3) if action_space is None else action_space,
        **options.pop("arguments", {}),
    }
    return GymEnvironment(PROBE, arguments=given, **options)


def box(shape: tuple[int, ...], dtype: type) -> spaces.Box:
    return spaces.Box(0, 200, shape=shape, dtype=dtype)


def counted(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3,), np.float32),
        ((2, 3), np.float64),
        ((4,), np.int64),
        ((5,), np.uint8),
        ((), np.float32),
    ],
)
def test_boxes_become_flat_float32_vectors(shape: tuple[int, ...], dtype: type) -> None:
    size = int(np.prod(shape))
    with probe(box(shape, dtype), counted(shape, dtype)) as env:
        assert (env.spec.frame_shape, env.spec.frame_dtype) == ((size,), "float32")
        assert env.start([1])[0].tolist() == list(range(size))


@pytest.mark.parametrize(
    ("given", "stored"),
    [((6, 5, 3), (3, 6, 5)), ((3, 6, 5), (3, 6, 5)), ((6, 5), (6, 5)), ((7, 7, 1), (1, 7, 7))],
)
def test_uint8_images_stay_uint8_with_channels_first(
    given: tuple[int, ...], stored: tuple[int, ...]
) -> None:
    image = counted(given, np.uint8)
    expected = image.transpose(2, 0, 1) if given != stored else image
    with probe(box(given, np.uint8), image) as env:
        assert (env.spec.frame_shape, env.spec.frame_dtype) == (stored, "uint8")
        np.testing.assert_array_equal(env.start([1])[0], expected)


@pytest.mark.parametrize("shape", [(6, 5, 3), (10, 10), (84, 84, 3)])
def test_byte_images_of_any_size_are_scaled_and_binary_channels_are_not(
    shape: tuple[int, ...],
) -> None:
    config = build_config("dqn", "gym/CartPole-v1", settings=["network.hidden=[8]"])
    picture = np.random.default_rng(0).integers(2, size=shape, dtype=np.uint8)
    values = []
    for high, scale in ((255, 1 / 255), (1, 1.0)):
        space = spaces.Box(0, high, shape=shape, dtype=np.uint8)
        with probe(space, picture * np.uint8(high)) as env:
            assert env.spec.pixel_scale == scale
            observation = torch.from_numpy(env.start([1])[:, None])  # [N, stack, *frame]
            values.append(ValueAgent(config, env.spec).online(observation))
    torch.testing.assert_close(*values)


@pytest.mark.parametrize(
    "space", [box((3,), np.float32), spaces.Discrete(4), spaces.Box(0, 255, (5,), np.uint8)]
)
def test_vectors_are_not_scaled(space: spaces.Space[Any]) -> None:
    with probe(space, None) as env:
        assert env.spec.pixel_scale == 1


def test_discrete_states_become_one_hot_counted_from_their_start() -> None:
    with probe(spaces.Discrete(4, start=10), np.int64(12)) as env:
        assert env.start([1]).tolist() == [[0, 0, 1, 0]]


def test_actions_are_counted_from_the_spaces_start() -> None:
    with probe(box((1,), np.float32), [0.0], spaces.Discrete(2, start=-1)) as env:
        env.start([1])
        env.step(np.array([0]))
        env.step(np.array([1]))
        assert env.spec.num_actions == 2
        assert env._games[0].unwrapped.taken == [-1, 0]


@pytest.mark.parametrize(
    ("end", "terminated", "truncated"),
    [
        ((False, False), False, False),
        ((True, False), True, False),
        ((False, True), False, True),
        ((True, True), True, False),
    ],
)
def test_an_end_is_either_terminated_or_truncated(
    end: tuple[bool, bool], terminated: bool, truncated: bool
) -> None:
    with probe(box((1,), np.float32), [0.0], arguments={"end": end}) as env:
        env.start([1])
        step = env.step(np.array([0]))
        assert step.terminated.tolist() == [terminated]
        assert step.truncated.tolist() == [truncated]
        assert step.reward.tolist() == [2.5]


def test_cartpole_is_gymnasiums_own() -> None:
    raw = gymnasium.make("CartPole-v1")
    observation, _ = raw.reset(seed=9)
    with make_environment("gym/CartPole-v1") as env:
        np.testing.assert_array_equal(env.start([9])[0], observation)
        over = False
        while not over:
            step = env.step(np.array([1]))
            observation, reward, terminated, truncated, _ = raw.step(1)
            np.testing.assert_array_equal(step.frame[0], observation)
            assert step.reward[0] == reward
            assert (step.terminated[0], step.truncated[0]) == (terminated, truncated)
            over = terminated or truncated


def test_the_registered_time_limit_truncates() -> None:
    with make_environment("gym/MountainCar-v0") as env:
        env.start([1])
        steps = [env.step(np.array([1])) for _ in range(200)]
    assert [bool(step.truncated[0]) for step in steps] == [False] * 199 + [True]
    assert not any(step.terminated[0] for step in steps)


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_named(
    reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with probe(box((1,), np.float32), [0.0]) as env:
        env.start([1])
        monkeypatch.setattr(Probe, "step", lambda *_: ([0.0], reward, False, False, {}))
        message = rf"expected a finite reward from gym/{PROBE}, got {reward}; fix"
        with pytest.raises(EnvironmentFailed, match=message):
            env.step(np.array([1]))


def test_screens_come_from_render_when_asked_for() -> None:
    with probe(box((1,), np.float32), [0.0], colour=True) as env:
        env.start([1])
        env.step(np.array([0]))
        assert env.screen(0).tolist() == [[[1, 1, 1]] * 6] * 4
    with probe(box((1,), np.float32), [0.0]) as env:
        env.start([1])
        with pytest.raises(RuntimeError, match="colour=True"):
            env.screen(0)


@pytest.mark.skipif(importlib.util.find_spec("pygame") is not None, reason="pygame is installed")
def test_a_screen_that_needs_a_missing_package_names_it() -> None:
    with make_environment("gym/CartPole-v1", colour=True) as env:
        env.start([1])
        with pytest.raises(ImportError, match="cannot render its screen: pygame"):
            env.screen(0)


@pytest.mark.parametrize("space", [box((1,), np.float32), spaces.MultiDiscrete([2, 3])])
def test_other_actions_are_refused_with_where_to_go(space: spaces.Space[Any]) -> None:
    message = r"noisynet-test/Probe-v0 to have Discrete actions, got .*noisynet.integrations.sb3"
    with pytest.raises(ValueError, match=message):
        probe(box((1,), np.float32), [0.0], space)


def test_frames_are_stacked_as_asked() -> None:
    with probe(box((6, 5, 3), np.uint8), np.zeros((6, 5, 3), np.uint8), frame_stack=4) as env:
        assert (env.spec.stack, env.spec.frame_shape) == (4, (3, 6, 5))
        assert env.start([1]).shape == (1, 3, 6, 5)  # one frame: replay and agents stack them


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("frame_stack", 0, "expected frame_stack to be at least 1, got 0"),
        ("frame_stack", "four", "expected frame_stack to be an integer, got 'four'"),
        ("resize", 0, "expected resize to be at least 1, got 0"),
        ("resize", [84], r"expected resize as one side or \[height, width\], got \[84\]"),
        ("max_episode_frames", 0, "expected max_episode_frames to be at least 1, got 0"),
    ],
)
def test_wrong_values_of_options_are_refused(option: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        probe(box((6, 5, 3), np.uint8), None, **{option: value})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym/CartPol-v1", "Did you mean 'gym/CartPole-v1'"),
        ("gym/CartPole-v7", "Did you mean 'gym/CartPole-v1'"),
        ("gym/nowhere/Thing-v0", "Namespace nowhere not found"),
        ("gym/two words", "Malformed environment ID"),
    ],
)
def test_unknown_ids_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_environment(name)
