"""Batches of transitions (x, a, r, discount, y), built from the rows of a replay."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from noisynet.replay.columns import Array, IntArray
from noisynet.replay.frames import FrameStore

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
    """Builds batches from the rows of a store, in buffers that it reuses."""

    def __init__(self, store: FrameStore) -> None:
        self._store = store
        self._buffers: list[Array] = [np.empty(0, store.layout.frame_dtype)] * 2

    def build(self, env: IntArray, row: IntArray, weight: FloatArray) -> TransitionBatch:
        """Build the transitions that start at rows [B] of environments [B], which are complete."""
        store, columns = self._store, self._store.columns
        slots = store.slots(env, row)
        if store.n_step == 1:
            reward, discount = columns.rewards[slots], columns.discounts[slots]
            run = self._read(0, env, row, ahead=1)
            x, y = run[:, :-1], run[:, 1:]
        else:
            reward, discount, steps = self._returns(env, row)
            x, y = self._read(0, env, row), self._read(1, env, row + steps)
        action = columns.actions[slots].astype(np.int64)
        return TransitionBatch(x, action, reward, discount, y, weight, row * store.num_envs + env)

    def _read(self, buffer: int, env: IntArray, row: IntArray, ahead: int = 0) -> Array:
        """Read the stack at each row and the frames after it [B, stack + ahead, *frame_shape]."""
        layout = self._store.layout
        shape = (len(row), self._store.stack + ahead, layout.frame_items)
        if self._buffers[buffer].shape != shape:
            self._buffers[buffer] = np.empty(shape, layout.frame_dtype)
        self._store.read_runs(env, row, ahead, self._buffers[buffer])
        return self._buffers[buffer].reshape(*shape[:2], *layout.frame_shape)

    def _returns(self, env: IntArray, row: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return the sum of discounted rewards, the product of discounts, and the steps; each [B].

        The sum stops at a discount of 0 and at the last row of an episode. A truncated episode is
        bootstrapped from its final frame with the product so far.
        """
        columns = self._store.columns
        total, product = np.zeros(len(row)), np.ones(len(row))  # float64 until the end
        steps = np.zeros(len(row), np.int64)
        going = np.ones(len(row), np.bool_)
        for step in range(self._store.n_step):
            slots = self._store.slots(env, row + step)
            going = going & columns.starts[slots]  # rows after a stop are ignored
            total = np.where(going, total + product * columns.rewards[slots], total)
            product = np.where(going, product * columns.discounts[slots], product)
            steps += going
            going = going & (columns.discounts[slots] != 0)
        return total.astype(np.float32), product.astype(np.float32), steps
