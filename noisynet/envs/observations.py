"""How observations of Gymnasium's spaces become frames.

Images stay images, channels first, in bytes where they are bytes. Discrete states become one-hot
vectors. Every other space becomes a flat float32 vector, by Gymnasium's own flattening where it is
composed of several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisynet.extras import import_extra

Encode: TypeAlias = Callable[[Any], NDArray[Any]]

SMALLEST_IMAGE: Final = 8
"""A box of numbers other than bytes is an image from this height and width on."""


class FrameRule(NamedTuple):
    """How observations of one space become frames."""

    shape: tuple[int, ...]
    dtype: str
    encode: Encode
    pixel_scale: float = 1.0


def frame_rule(name: str, space: Any) -> FrameRule:
    """Return how observations of `space` become frames.

    Raises:
        ValueError: if no rule fits, naming `name` and the space.
    """
    spaces = import_extra("gymnasium", "gym").spaces
    if isinstance(space, spaces.Discrete):
        return _one_hot_rule(int(space.n), int(space.start))
    if isinstance(space, spaces.Box):
        if _is_image(space):
            return _image_rule(space)
        if space.dtype != np.uint8 or len(space.shape) < 2:
            return _flat_rule(int(np.prod(space.shape)))
    else:
        try:
            size = int(spaces.flatdim(space))
        except (ValueError, NotImplementedError):  # of any length, or not Gymnasium's
            size = 0
        if size:
            return _flattened_rule(space, size)
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

    def encode(observation: Any) -> NDArray[Any]:
        return np.asarray(observation, dtype)

    def encode_channels_first(observation: Any) -> NDArray[Any]:
        return np.asarray(observation, dtype).transpose(2, 0, 1)

    if _has_channels_last(space.shape):
        shape = _channels_height_width(space.shape)
        return FrameRule(shape, dtype.name, encode_channels_first, scale)
    return FrameRule(space.shape, dtype.name, encode, scale)


def _one_hot_rule(count: int, first: int) -> FrameRule:
    def encode(observation: Any) -> NDArray[Any]:
        frame = np.zeros(count, dtype=np.float32)
        frame[int(observation) - first] = 1.0
        return frame

    return FrameRule((count,), "float32", encode)


def _flat_rule(size: int) -> FrameRule:
    def encode(observation: Any) -> NDArray[Any]:
        return np.asarray(observation, dtype=np.float32).reshape(size)

    return FrameRule((size,), "float32", encode)


def _flattened_rule(space: Any, size: int) -> FrameRule:
    flatten: Any = import_extra("gymnasium", "gym").spaces.flatten

    def encode(observation: Any) -> NDArray[Any]:
        return np.asarray(flatten(space, observation), dtype=np.float32).reshape(size)

    return FrameRule((size,), "float32", encode)


# --- images --------------------------------------------------------------------------------------


def prepare_images(name: str, game: Any, *, resize: tuple[int, int] | None, greyscale: bool) -> Any:
    """Wrap a game so that it observes images of another size, in grey.

    Args:
        name: of the environment, for errors.
        game: the Gymnasium environment.
        resize: the height and the width; None: as they are.
        greyscale: whether colours become grey levels; grey images stay as they are.

    Raises:
        ValueError: the observations are not images of bytes.
        ImportError: OpenCV, which resizes, is missing.
    """
    if resize is None and not greyscale:
        return game
    gymnasium = import_extra("gymnasium", "gym")
    if resize is not None:
        import_extra("cv2", "gym")  # Gymnasium resizes with OpenCV
    wrappers, space = gymnasium.wrappers, game.observation_space
    shape = space.shape if isinstance(space, gymnasium.spaces.Box) else ()
    if len(shape) == 3 and not _has_channels_last(shape):
        game = _with_channels_last(game, wrappers)
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


def _with_channels_last(game: Any, wrappers: Any) -> Any:
    space = game.observation_space
    low, high = space.low.transpose(1, 2, 0), space.high.transpose(1, 2, 0)
    last = type(space)(low, high, dtype=space.dtype)
    return wrappers.TransformObservation(game, lambda image: image.transpose(1, 2, 0), last)
