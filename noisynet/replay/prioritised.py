"""Proportional prioritised experience replay (Schaul et al. 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from noisynet.replay.columns import IntArray
from noisynet.replay.frames import FrameStore
from noisynet.replay.sum_tree import SumTree
from noisynet.replay.transitions import BatchBuilder, TransitionBatch
from noisynet.replay.uniform import check_batch_size, nothing_to_sample


class PrioritisedReplay:
    """Samples transitions with probability ∝ (|δ| + ε)^α, and importance weights.

    A transition that was not sampled yet has the largest priority so far. Rows at which no
    transition can be sampled have priority 0. The tree is updated from the store automatically, but
    the store must be restored by the `restore` of this class.

    Args:
        store: storage of the transitions.
        alpha: exponent of the priorities, from 0 (uniform) to 1.
        epsilon: added to |δ|, so that no priority is 0.
    """

    def __init__(self, store: FrameStore, *, alpha: float = 0.6, epsilon: float = 1e-6) -> None:
        if not (0.0 <= alpha <= 1.0 and epsilon > 0):
            raise ValueError(f"expected alpha in [0, 1] and epsilon > 0, got {alpha}, {epsilon}")
        self.store = store
        self.alpha = alpha
        self.epsilon = epsilon
        self._builder = BatchBuilder(store)
        self._tree = SumTree(store.num_envs * store.ring_rows)
        self._max_priority = 1.0
        # [E] The bounds of the store at the last update of the tree.
        self._low: IntArray = np.zeros(store.num_envs, np.int64)
        self._high: IntArray = np.zeros(store.num_envs, np.int64)

    def __len__(self) -> int:
        """Number of transitions that can be sampled; O(capacity)."""
        return self.store.count()

    def sample(self, batch_size: int, rng: np.random.Generator, *, beta: float) -> TransitionBatch:
        """Sample a batch, one transition from each of B equal strata; valid until the next one.

        Weights are (N·P)^−β over their maximum in the batch; N cancels.
        """
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must be in [0, 1], got {beta}")
        self._update_bounds()
        if self._tree.total == 0.0:
            raise nothing_to_sample()
        strata = np.arange(check_batch_size(batch_size)) + rng.random(batch_size)
        slot = self._tree.find(strata * (self._tree.total / batch_size))
        priority = self._tree.leaves[slot]
        weight = (priority.min() / priority) ** beta
        env, row = self._rows(slot)
        return self._builder.build(env, row, weight.astype(np.float32))

    def update_priorities(self, index: IntArray, td_error: npt.NDArray[np.floating[Any]]) -> None:
        """Set the priorities of sampled transitions from their TD errors.

        Transitions that have left the window are ignored; of a repeated one, the last error counts.

        Args:
            index: `TransitionBatch.index` [B].
            td_error: δ [B], of either sign.
        """
        index, error = np.asarray(index, np.int64), np.asarray(td_error, np.float64)
        if index.ndim != 1 or index.shape != error.shape:
            raise ValueError(
                f"index and td_error must be of one shape [B], got {index.shape}, {error.shape}"
            )
        if not np.isfinite(error).all():
            raise ValueError(f"td_error must be finite, got {error.tolist()}")
        self._update_bounds()  # first: new rows get the maximum priority from before this update
        row, env = index // self.store.num_envs, index % self.store.num_envs
        if np.any((index < 0) | (row >= self._high[env])):
            raise IndexError(
                "expected the index of a sampled batch, got other rows: pass batch.index"
            )
        slot = self.store.slots(env, row)
        known = (row >= self._low[env]) & (self._tree.leaves[slot] > 0)
        priority = (np.abs(error) + self.epsilon) ** self.alpha
        self._tree.set(slot[known], priority[known])
        self._max_priority = max(self._max_priority, float(priority.max(initial=0.0)))

    def _rows(self, slot: IntArray) -> tuple[IntArray, IntArray]:
        """Return the environments and rows in slots of the windows."""
        offset, env = slot // self.store.num_envs, slot % self.store.num_envs
        low = self._low[env]
        row: IntArray = low + (offset - low) % self.store.ring_rows
        return env, row

    def _update_bounds(self) -> None:
        """Update the tree to the current bounds of the store."""
        low, high = self.store.bounds()
        for env in np.flatnonzero((low != self._low) | (high != self._high)).tolist():
            old = np.arange(self._low[env], min(low[env], self._high[env]))
            self._set(env, old, np.zeros(len(old)))
            new = np.arange(max(low[env], self._high[env]), high[env])
            fits = self.store.can_start(np.full_like(new, env), new, low)
            self._set(env, new, np.where(fits, self._max_priority, 0.0))
            # The first rows of the window may have lost frames of their stacks.
            edge = np.arange(low[env], min(low[env] + self.store.stack - 1, high[env]))
            edge = edge[~self.store.can_start(np.full_like(edge, env), edge, low)]
            self._set(env, edge, np.zeros(len(edge)))
        self._low, self._high = low, high

    def _set(self, env: int, row: IntArray, priority: npt.NDArray[np.float64]) -> None:
        if len(row):
            self._tree.set(self.store.slots(env, row), priority)

    def state(self) -> dict[str, Any]:
        """Return the state of the store and the priorities [slots], for `restore`."""
        self._update_bounds()
        return {
            "store": self.store.state(),
            "alpha": self.alpha,
            "epsilon": self.epsilon,
            "max_priority": self._max_priority,
            "priorities": self._tree.leaves.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state; the same random stream then samples the same batches."""
        ours = (self.alpha, self.epsilon)
        if (state["alpha"], state["epsilon"]) != ours:
            raise ValueError(
                f"expected a state with alpha {ours[0]} and epsilon {ours[1]}, got "
                f"{state['alpha']} and {state['epsilon']}: make the replay with those of the state"
            )
        self.store.restore(state["store"])
        self._tree.set_all(state["priorities"])
        self._max_priority = state["max_priority"]
        self._low, self._high = self.store.bounds()
