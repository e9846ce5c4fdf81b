"""Small environments of every kind of observation (not a test)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH: Final = 6

SPACES: Final[dict[str, spaces.Space[Any]]] = {
    "flat": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "dict": spaces.Dict(
        {"position": spaces.Discrete(LENGTH), "noise": spaces.Box(-1, 1, (2,), np.float32)}
    ),
    "tuple": spaces.Tuple((spaces.Discrete(LENGTH), spaces.Discrete(2), spaces.Discrete(3))),
    "multi-binary": spaces.MultiBinary(LENGTH),
    "multi-discrete": spaces.MultiDiscrete([LENGTH, 4]),
    "byte image": spaces.Box(0, 255, (84, 84, 3), np.uint8),
    "float image": spaces.Box(0, 1, (84, 84, 3), np.float32),
    "small image": spaces.Box(0, 1, (4, 10, 10), np.uint8),
}


class Corridor(gymnasium.Env[Any, Any]):
    """A walk in a corridor of six cells with some seeded noise; the right end gives the reward.

    Args:
        kind: a key of `SPACES`.
        render_mode: None or "rgb_array".
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 — Gymnasium's own convention
    action_names = ("left", "right")

    def __init__(self, kind: str = "flat", render_mode: str | None = None) -> None:
        self.kind, self.render_mode = kind, render_mode
        self.observation_space = SPACES[kind]
        self.action_space = spaces.Discrete(2)
        self.position, self.steps = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.position, self.steps = int(self.np_random.integers(3)), 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        slips = self.np_random.random() < 0.1
        self.position = max(0, self.position + (1 if (action == 1) != slips else -1))
        ended = self.position == LENGTH - 1
        return self._observation(), 1.0 if ended else -0.1, ended, self.steps >= 15, {}

    def render(self) -> Any:
        screen = np.zeros((8, 8 * LENGTH, 3), np.uint8)
        screen[:, 8 * self.position : 8 * (self.position + 1)] = 255
        return screen

    def _observation(self) -> Any:
        noise = self.np_random.uniform(-1, 1, 2)
        return _OBSERVATIONS[self.kind](self.position, noise)

    def __len__(self) -> int:
        return 0  # an environment may be false


class Unseeded(Corridor):
    """Draws from a random stream that its seed does not determine."""

    stream = np.random.default_rng(0)

    def _observation(self) -> Any:
        return np.array([self.position, *self.stream.random(2)])


def _picture(position: int, noise: Any, shape: tuple[int, int, int]) -> Any:
    """An image [H, W, C] of values in 0..1."""
    image = np.zeros(shape)
    width = shape[1] // LENGTH
    image[:, width * position : width * (position + 1), 0] = 1.0
    image[0, :2, 1] = np.abs(noise)
    return image


_OBSERVATIONS: Final[dict[str, Callable[[int, Any], Any]]] = {
    "flat": lambda position, noise: np.array([position, *noise]),
    "dict": lambda position, noise: {"position": position, "noise": noise.astype(np.float32)},
    "tuple": lambda position, noise: (position, int(noise[0] > 0), int(abs(noise[1]) * 2.99)),
    "multi-binary": lambda position, _: (np.arange(LENGTH) == position).astype(np.int8),
    "multi-discrete": lambda position, noise: np.array([position, int(abs(noise[0]) * 3.99)]),
    "byte image": lambda position, noise: np.array(
        255 * _picture(position, noise, (84, 84, 3)), np.uint8
    ),
    "float image": lambda position, noise: _picture(position, noise, (84, 84, 3)).astype(
        np.float32
    ),
    "small image": lambda position, noise: (
        _picture(position, noise, (10, 10, 4)).round().transpose(2, 0, 1).astype(np.uint8)
    ),
}


def make_corridor() -> Corridor:
    """A function that makes environments."""
    return Corridor("dict")


def make_kind(kind: str) -> Corridor:
    """A function with an argument, for `functools.partial`."""
    return Corridor(kind)


class Maker:
    """Its class method is a function that can be imported."""

    @classmethod
    def make(cls) -> Corridor:
        return Corridor()
