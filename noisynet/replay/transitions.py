"""Batches of transitions (x, a, r, discount, y), built from the rows of a replay."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from noisynet.replay.frames import FrameStore
from noisynet.replay.rings import Array, IntArray

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TransitionBatch:
    """B transitions. x and y are in reused buffers: valid until the next batch, or `copy` them.

    Attributes:
        x: observations [B, stack, *frame_shape].
        action: actions taken at x [B], int64.
        reward: n-step sums of discounted rewards [B], float32.
        discount: products of the discounts [B], float32; 0 after a termination or a lost life.
        y: observations n steps later, or at the end of the episode [B, stack, *frame_shape]. With
            n = 1 it shares memory with x.
        weight: importance weights [B], float32; ones under uniform sampling.
        index: identifiers of the transitions [B], int64: row * num_envs + environment.
    """

    x: Array
    action: IntArray
    reward: FloatArray
    discount: FloatArray
    y: Array
    weight: FloatArray
    index: IntArray

    def copy(self) -> TransitionBatch:
        """Return the transitions in new arrays."""
        return TransitionBatch(**{f.name: getattr(self, f.name).copy() for f in fields(self)})


class BatchBuilder:
    """Builds batches from the rows of a store, in buffers that it reuses.

    Args:
        store: storage of the rows.
    """

    def __init__(self, store: FrameStore) -> None:
        self._store = store
        self._x, self._y = self._buffers(0)

    def build(self, env: IntArray, row: IntArray, weight: FloatArray) -> TransitionBatch:
        """Build the transitions that start at rows [B] of environments [B], which are complete."""
        rings = self._store.rings
        slots = rings.slots(env, row)
        if len(self._x) != len(row):
            self._x, self._y = self._buffers(len(row))
        if self._store.n_step == 1:
            reward, discount = rings.rewards[slots], rings.discounts[slots]
            x, y = self._neighbours(env, row)
        else:
            reward, discount, steps = self._returns(env, row)
            x, y = self._pairs(env, row, row + steps)
        action = rings.actions[slots].astype(np.int64)
        return TransitionBatch(x, action, reward, discount, y, weight, row * rings.num_envs + env)

    def _buffers(self, batch_size: int) -> tuple[Array, Array]:
        """Allocate x and y [B, frames, frame_items]; with n = 1 one buffer has both."""
        stack, layout = self._store.stack, self._store.layout
        shapes = [(batch_size, stack, layout.frame_items)] * 2
        if self._store.n_step == 1:
            shapes = [(batch_size, stack + 1, layout.frame_items), (0, 0, 0)]
        x, y = (np.empty(shape, layout.frame_dtype) for shape in shapes)
        return x, y

    def _neighbours(self, env: IntArray, row: IntArray) -> tuple[Array, Array]:
        """Read the stacks at rows and one step later; y shares all but one frame with x."""
        self._store.read_runs(env, row, 1, self._x)
        run = self._x.reshape(*self._x.shape[:2], *self._store.layout.frame_shape)
        return run[:, :-1], run[:, 1:]

    def _pairs(self, env: IntArray, row: IntArray, later: IntArray) -> tuple[Array, Array]:
        """Read the stacks at rows and at later rows of the same episodes."""
        self._store.read_runs(env, row, 0, self._x)
        self._store.read_runs(env, later, 0, self._y)
        shape = (*self._x.shape[:2], *self._store.layout.frame_shape)
        return self._x.reshape(shape), self._y.reshape(shape)

    def _returns(self, env: IntArray, row: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return the sum of discounted rewards, the product of discounts, and the steps; each [B].

        The sum stops at a discount of 0 and at the last row of an episode. A truncated episode is
        bootstrapped from its final frame with the product so far.
        """
        rings = self._store.rings
        total, product = np.zeros(len(row)), np.ones(len(row))  # float64 until the end
        steps = np.zeros(len(row), np.int64)
        going = np.ones(len(row), np.bool_)
        for step in range(self._store.n_step):
            slots = rings.slots(env, row + step)
            going = going & rings.starts[slots]  # rows after a stop are ignored
            total = np.where(going, total + product * rings.rewards[slots], total)
            product = np.where(going, product * rings.discounts[slots], product)
            steps += going
            going = going & (rings.discounts[slots] != 0)
        return total.astype(np.float32), product.astype(np.float32), steps
