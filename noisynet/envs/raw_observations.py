"""Observations that a caller has, as an environment returns them, made inputs of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisynet.envs.environment import Environment
from noisynet.extras import import_extra


@dataclass(frozen=True)
class RawObservations:
    """How observations of a Gymnasium environment become frames.

    Attributes:
        space: of the environment itself.
        transforms: what the options of a run, such as `resize`, do to an observation, in order.
        encode: makes the frame of the result.
    """

    space: Any
    transforms: Sequence[Callable[[Any], Any]] = field(repr=False)
    encode: Callable[[Any], NDArray[Any]] = field(repr=False)

    def frame(self, observation: Any) -> NDArray[Any]:
        """Make the frame of one observation."""
        for transform in self.transforms:
            observation = transform(observation)
        return self.encode(observation)


@final
class ObservationReader:
    """Reads one observation or a batch, in the form that the environment itself returns.

    With stacked frames, an observation is the last `stack` of those, the oldest first; there may be
    fewer at the beginning of an episode. A batch has one more axis; a batch of `Dict` or `Tuple`
    observations is a list of them, or in the form of Gymnasium's vector environments.

    Args:
        environment: of the run; it may be closed afterwards.

    Attributes:
        first_action: the environment's own number of the agent's action 0.
        space: of the environment itself; None where observations are frames, or where options of
            the run, such as `resize`, change them.
    """

    def __init__(self, environment: Environment) -> None:
        self._spec = environment.spec
        self._raw: RawObservations | None = getattr(environment, "raw", None)
        changed = self._raw is None or len(self._raw.transforms) > 0
        self.space: Any = None if changed or self._raw is None else self._raw.space
        self.first_action: Final[int] = getattr(environment, "first_action", 0)

    def read(self, observation: Any) -> tuple[NDArray[Any], bool]:
        """Return network inputs [B, stack, *frame], and whether `observation` is a batch.

        Raises:
            ValueError: it has another form.
        """
        stack = self._spec.stack
        axes = self._leading_axes(observation) - (stack > 1)
        if axes not in (0, 1):
            raise self._wrong(observation)
        rows = self._split(observation) if axes else [observation]
        inputs = np.zeros((len(rows), stack, *self._spec.frame_shape), self._spec.frame_dtype)
        for row, one in zip(inputs, rows, strict=True):
            frames = self._split(one) if stack > 1 else [one]
            if not 1 <= len(frames) <= stack:
                raise self._wrong(observation)
            for place, frame in zip(row[-len(frames) :], frames, strict=True):
                place[:] = self._frame(frame, observation)
        return inputs, bool(axes)

    def _frame(self, frame: Any, observation: Any) -> NDArray[Any]:
        if self._raw is None:
            return np.asarray(frame, self._spec.frame_dtype)
        try:
            return self._raw.frame(frame)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise self._wrong(observation) from error

    def _leading_axes(self, observation: Any) -> int:
        """How many axes come before those of a single observation or frame."""
        leaf, shape, lists = observation, self._spec.frame_shape, 0
        if self._raw is not None:
            space = self._raw.space
            while isinstance(parts := getattr(space, "spaces", None), dict | tuple):
                if isinstance(leaf, list):
                    lists, leaf = lists + 1, leaf[0] if leaf else None
                    continue
                try:
                    key = next(iter(parts)) if isinstance(parts, dict) else 0
                    space, leaf = parts[key], leaf[key]
                except (IndexError, KeyError, StopIteration, TypeError):
                    raise self._wrong(observation) from None
            shape = space.shape
        given = np.shape(leaf)
        axes = len(given) - len(shape)
        if axes < 0 or given[axes:] != tuple(shape) or not all(given[:axes]):
            raise self._wrong(observation)
        return lists + axes

    def _split(self, observation: Any) -> list[Any]:
        """Split along the first axis."""
        return _split(None if self._raw is None else self._raw.space, observation)

    def _wrong(self, observation: Any) -> ValueError:
        spec, stack = self._spec, self._spec.stack
        what = f"a frame of shape {spec.frame_shape}" if self._raw is None else str(self._raw.space)
        if stack > 1:
            what = f"the last {stack} observations, the oldest first, each {what}"
        got = f"shape {observation.shape}" if hasattr(observation, "shape") else repr(observation)
        return ValueError(
            f"expected an observation of {spec.name}, or a batch of them: {what}, got {got}"
        )


def _split(space: Any, observation: Any) -> list[Any]:
    if isinstance(observation, list):
        return observation
    spaces = None if space is None else import_extra("gymnasium", "gym").spaces
    if spaces is not None and isinstance(space, spaces.Dict):
        columns = [_split(part, observation[key]) for key, part in space.spaces.items()]
        rows = zip(*columns, strict=True)
        return [dict(zip(space.spaces, row, strict=True)) for row in rows]
    if spaces is not None and isinstance(space, spaces.Tuple):
        columns = [_split(*both) for both in zip(space.spaces, observation, strict=True)]
        return list(zip(*columns, strict=True))
    return list(np.asarray(observation))
