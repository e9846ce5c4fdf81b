"""How observations of Gymnasium's spaces become frames.

Images stay images, channels first, in bytes where they are bytes. Every other space becomes a flat
float32 vector by Gymnasium's own flattening, in which discrete states are one-hot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisynet.extras import extra, import_extra

with extra("gym"):
    import gymnasium
    from gymnasium import spaces, wrappers

SMALLEST_IMAGE: Final = 8
"""A box of numbers other than bytes is an image from this height and width on."""

Game: TypeAlias = gymnasium.Env[Any, Any]


class FrameRule(NamedTuple):
    """How observations of one space become frames."""

    shape: tuple[int, ...]
    dtype: str
    encode: Callable[[Any], NDArray[Any]]
    pixel_scale: float = 1.0


class Frames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A game that observes frames and takes actions from 0 on.

    Attributes:
        made: the game with its own observations, before images are resized.
        rule: how observations become frames.
        first_action: the environment's own number of action 0.

    Raises:
        ValueError: no rule fits the observations, or the actions are not Discrete.
    """

    def __init__(self, name: str, game: Game, made: Game) -> None:
        super().__init__(game)
        self.made = made
        actions = game.action_space
        if not isinstance(actions, spaces.Discrete):
            raise ValueError(
                f"expected {name} to have Discrete actions, got {actions}. For other actions, such "
                "as continuous ones, use Stable-Baselines3 with the NoisyNet policies of "
                "noisynet.integrations.sb3 (PPO, A2C, TRPO, DDPG, TD3), or wrap the environment so "
                "that its actions are Discrete"
            )
        self.rule = frame_rule(name, game.observation_space)
        low, high = (0, 255) if self.rule.dtype == "uint8" else (-np.inf, np.inf)
        dtype: Any = np.dtype(self.rule.dtype)
        self.observation_space = spaces.Box(low, high, self.rule.shape, dtype)
        self.action_space = spaces.Discrete(int(actions.n))
        self._encode, self.first_action = self.rule.encode, int(actions.start)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 — those of Gymnasium's vectors
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        return self._encode(self.env.reset(seed=seed)[0]), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action."""
        result = self.env.step(int(action) + self.first_action)
        observation, reward, terminated, truncated, _ = result
        return self._encode(observation), float(reward), terminated, truncated, {}


def frame_rule(name: str, space: spaces.Space[Any]) -> FrameRule:
    """Return how observations of `space` become frames.

    Raises:
        ValueError: if no rule fits, naming `name` and the space.
    """
    is_box = isinstance(space, spaces.Box)
    if is_box and _is_image(space):
        return _image_rule(space)
    try:
        size = spaces.flatdim(space)
    except (ValueError, NotImplementedError):  # of any length, or not Gymnasium's
        size = 0
    if size and not (is_box and space.dtype == np.uint8 and len(space.shape or ()) > 1):
        return _flat_rule(space, size)
    raise ValueError(
        f"expected {name} to observe a Box of numbers, a byte image of two or three axes, a "
        f"Discrete state, or a Dict, Tuple, MultiBinary or MultiDiscrete of fixed size, got "
        f"{space}. Wrap the environment, for example in gymnasium.wrappers.TransformObservation; "
        "to stack frames, set environment_options.frame_stack instead of wrapping"
    )


def _is_image(space: Any) -> bool:
    """Whether a box is an image.

    Boxes of bytes with two or three axes are. Of other numbers, those with three axes and a side of
    some pixels are; with two axes, only if all values have the same bounds, as those of a table of
    unlike numbers have not.
    """
    if len(space.shape) not in (2, 3):
        return False
    if space.dtype == np.uint8:
        return True
    if min(_channels_height_width(space.shape)[1:]) < SMALLEST_IMAGE:
        return False
    bounds = np.unique(space.low), np.unique(space.high)
    same = all(len(bound) == 1 and np.isfinite(bound[0]) for bound in bounds)
    return len(space.shape) == 3 or same


def _has_channels_last(shape: tuple[int, ...]) -> bool:
    # An image has fewer channels than rows, so the shape tells which axis holds the channels.
    return len(shape) == 3 and shape[2] <= shape[0]


def _channels_height_width(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 2:
        return (1, *shape)
    return (shape[2], *shape[:2]) if _has_channels_last(shape) else shape


def _image_rule(space: Any) -> FrameRule:
    low, high = space.low.min(), space.high.max()
    fits_bytes = np.issubdtype(space.dtype, np.integer) and low >= 0 and high <= 255
    dtype = np.dtype(np.uint8 if fits_bytes else np.float32)
    scale = 1 / 255 if high == 255 else 1.0
    if _has_channels_last(space.shape):
        return FrameRule(
            _channels_height_width(space.shape),
            dtype.name,
            lambda observation: np.asarray(observation, dtype).transpose(2, 0, 1),
            scale,
        )
    return FrameRule(space.shape, dtype.name, lambda image: np.asarray(image, dtype), scale)


def _flat_rule(space: spaces.Space[Any], size: int) -> FrameRule:
    is_flat = isinstance(space, spaces.Box)

    def encode(observation: Any) -> NDArray[Any]:
        flat: Any = observation if is_flat else spaces.flatten(space, observation)
        return np.asarray(flat, dtype=np.float32).reshape(size)

    return FrameRule((size,), "float32", encode)


# --- images --------------------------------------------------------------------------------------


def prepare_images(
    name: str, game: Game, *, resize: tuple[int, int] | None, greyscale: bool
) -> Game:
    """Wrap a game so that it observes images of another height and width, in grey.

    Raises:
        ValueError: the observations are not images of bytes.
        ImportError: OpenCV, which resizes, is missing.
    """
    if resize is None and not greyscale:
        return game
    if resize is not None:
        import_extra("cv2", "gym")  # Gymnasium resizes with OpenCV
    space = game.observation_space
    shape = space.shape if isinstance(space, spaces.Box) else ()
    if len(shape) == 3 and not _has_channels_last(shape):
        game = _with_channels_last(game)
    is_grey = len(shape) == 2 or (len(shape) == 3 and _channels_height_width(shape)[0] == 1)
    try:
        if greyscale and not is_grey:
            game = wrappers.GrayscaleObservation(game)
        if resize is not None:
            game = wrappers.ResizeObservation(game, resize)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected {name} to observe images of bytes from 0 to 255 for "
            f"environment_options.resize and greyscale, got {space} ({error}). Leave the options "
            "out, or wrap the environment so that it observes such images"
        ) from error
    return game


def _with_channels_last(game: Game) -> Game:
    space: Any = game.observation_space
    low, high = space.low.transpose(1, 2, 0), space.high.transpose(1, 2, 0)
    last = spaces.Box(low, high, dtype=space.dtype)
    return wrappers.TransformObservation(game, lambda image: image.transpose(1, 2, 0), last)
