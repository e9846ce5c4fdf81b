"""Observations as the environment returns them become inputs of the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from noisynet.envs import ObservationReader, make_environment
from noisynet.evaluation import Stacks

NESTED = spaces.Dict(
    {
        "cell": spaces.Discrete(3),
        "two": spaces.Tuple((spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(2))),
    }
)
SPACES: dict[str, spaces.Space[Any]] = {
    "flat": spaces.Box(-1, 1, (3,), np.float32),
    "table": spaces.Box(np.zeros((2, 3)), np.arange(1, 7).reshape(2, 3), dtype=np.float64),
    "bytes": spaces.Box(0, 255, (12, 10, 3), np.uint8),
    "grey": spaces.Box(0, 255, (12, 10), np.uint8),
    "discrete": spaces.Discrete(4, start=2),
    "binary": spaces.MultiBinary(5),
    "numbers": spaces.MultiDiscrete([2, 3]),
    "nested": NESTED,
}


class Noise(gymnasium.Env[Any, Any]):
    """Observes random members of a space."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2, start=5)
        self.seen: list[Any] = []

    def _observe(self) -> Any:
        self.seen.append(self.observation_space.sample())
        return self.seen[-1]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observe(), 0.0, False, False, {}


def play(game: Noise, steps: int, **options: Any) -> tuple[ObservationReader, list[NDArray[Any]]]:
    """Play; return the reader and what the agent observes [stack, *frame] at each step."""
    with make_environment(game, **options) as environment:
        reader, stacks = ObservationReader(environment), Stacks(environment)
        game.seen.clear()
        stacks.begin(0, environment.start([1])[0])
        observed = [stacks.observation[0].copy()]
        for _ in range(steps - 1):
            stacks.push(environment.step(np.zeros(1, np.int64)).frame)
            observed.append(stacks.observation[0].copy())
    return reader, observed


@pytest.mark.parametrize("name", SPACES)
def test_an_observation_is_read_as_the_agent_observes_it(name: str) -> None:
    game = Noise(SPACES[name])
    reader, observed = play(game, 3)
    for raw, expected in zip(game.seen, observed, strict=True):
        inputs, is_batch = reader.read(raw)
        assert not is_batch
        assert inputs.dtype == expected.dtype
        assert np.array_equal(inputs, expected[None])
    inputs, is_batch = reader.read(game.seen)  # a list
    assert is_batch
    assert np.array_equal(inputs, np.stack(observed))


@pytest.mark.parametrize("name", SPACES)
def test_a_batch_has_the_form_of_gymnasiums_vector_environments(name: str) -> None:
    game = Noise(SPACES[name])
    reader, observed = play(game, 3)
    empty: Any = gymnasium.vector.utils.create_empty_array(SPACES[name], 3)
    together = gymnasium.vector.utils.concatenate(SPACES[name], game.seen, empty)
    inputs, is_batch = reader.read(together)
    assert is_batch
    assert np.array_equal(inputs, np.stack(observed))


@pytest.mark.parametrize("name", ["flat", "bytes", "nested"])
def test_stacked_frames_are_the_last_observations(name: str) -> None:
    game = Noise(SPACES[name])
    reader, observed = play(game, 5, frame_stack=3)
    for t, expected in enumerate(observed):  # fewer at the beginning, as in training
        inputs, is_batch = reader.read(game.seen[max(0, t - 2) : t + 1])
        assert not is_batch
        assert np.array_equal(inputs[0], expected)
    inputs, is_batch = reader.read([game.seen[1:4], game.seen[2:5]])
    assert is_batch
    assert np.array_equal(inputs, np.stack(observed[3:5]))


def test_images_are_resized_and_made_grey_as_in_training() -> None:
    game = Noise(SPACES["bytes"])
    reader, observed = play(game, 4, resize=[9, 8], greyscale=True, frame_stack=2)
    assert observed[0].shape == (2, 9, 8)
    inputs, _ = reader.read(np.stack(game.seen[2:4]))
    assert np.array_equal(inputs[0], observed[3])


def test_actions_have_the_environments_own_numbers() -> None:
    assert play(Noise(SPACES["flat"]), 1)[0].first_action == 5
    with make_environment("deep_sea/4") as environment:
        assert ObservationReader(environment).first_action == 0


@pytest.mark.parametrize("name", ["deep_sea/4", "minatar/breakout"])
def test_our_own_environments_have_frames(name: str) -> None:
    with make_environment(name, 2) as environment:
        reader, stacks = ObservationReader(environment), Stacks(environment)
        frames = environment.start([1, 2])
        for env in range(2):
            stacks.begin(env, frames[env])
    inputs, is_batch = reader.read(frames)
    assert is_batch
    assert np.array_equal(inputs, stacks.observation)
    assert np.array_equal(reader.read(frames[0])[0], stacks.observation[:1])


WRONG: list[tuple[str, dict[str, Any], Callable[[], Any]]] = [
    ("flat", {}, lambda: np.zeros(4)),
    ("flat", {}, lambda: np.zeros((2, 2, 3))),
    ("flat", {}, lambda: 3),
    ("flat", {}, lambda: np.zeros((0, 3))),
    ("table", {}, lambda: np.zeros((3, 2))),  # as many numbers, but another shape
    ("discrete", {}, lambda: 9),
    ("nested", {}, lambda: {"two": (np.zeros(2), 1)}),
    ("nested", {}, lambda: np.zeros(7)),
    ("nested", {}, list),
    ("flat", {"frame_stack": 2}, lambda: np.zeros(3)),  # one frame is no observation
    ("flat", {"frame_stack": 2}, lambda: np.zeros((3, 3))),
]


@pytest.mark.parametrize(("name", "options", "make"), WRONG)
def test_another_form_is_refused(name: str, options: dict[str, Any], make: Any) -> None:
    reader, _ = play(Noise(SPACES[name]), 1, **options)
    with pytest.raises(ValueError, match=r"expected an observation of object/Noise, or a batch"):
        reader.read(make())


def test_the_error_names_the_space_the_stack_and_what_came() -> None:
    reader, _ = play(Noise(SPACES["flat"]), 1, frame_stack=2)
    message = r"the last 2 observations, the oldest first, each Box.*, got shape \(4,\)"
    with pytest.raises(ValueError, match=message):
        reader.read(np.zeros(4))
