"""Uniform experience replay (Lin 1992; Mnih et al. 2015)."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisynet.replay.columns import IntArray
from noisynet.replay.frames import FrameStore
from noisynet.replay.transitions import BatchBuilder, TransitionBatch


class UniformReplay:
    """Samples all transitions with equal probability, with replacement."""

    def __init__(self, store: FrameStore) -> None:
        self.store = store
        self._builder = BatchBuilder(store)

    def __len__(self) -> int:
        """Number of transitions that can be sampled; O(capacity)."""
        return self.store.count()

    def sample(self, batch_size: int, rng: np.random.Generator) -> TransitionBatch:
        """Sample a batch, valid until the next one.

        Raises:
            ValueError: the store has no complete transition yet.
        """
        env, row = self._draw(check_batch_size(batch_size), rng)
        return self._builder.build(env, row, np.ones(batch_size, np.float32))

    def _draw(self, batch_size: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Sample environments and rows, exactly uniformly, by rejection."""
        low, high = self.store.bounds()
        ends = np.cumsum(high - low)
        if ends[-1] == 0:
            raise nothing_to_sample()

        env = row = np.empty(0, np.int64)
        while len(row) < batch_size:
            # Twice as many as needed: a second round takes longer than the numbers left over.
            number = rng.integers(ends[-1], size=2 * batch_size)  # among all windows
            drawn_env = np.searchsorted(ends, number, side="right")
            drawn_row = number - (ends - high)[drawn_env]
            fits = np.flatnonzero(self.store.can_start(drawn_env, drawn_row, low))
            if not len(fits) and self.store.count() == 0:
                raise nothing_to_sample()
            env, row = np.append(env, drawn_env[fits]), np.append(row, drawn_row[fits])
        return env[:batch_size], row[:batch_size]

    def state(self) -> dict[str, Any]:
        """Return the state of the store, for `restore`."""
        return {"store": self.store.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state; the same random stream then samples the same batches."""
        self.store.restore(state["store"])


def check_batch_size(batch_size: int) -> int:
    """Return the batch size, or raise ValueError if it is not positive."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    return batch_size


def nothing_to_sample() -> ValueError:
    """Return the error for a replay without a complete transition."""
    return ValueError(
        "the replay has no complete transition yet: append at least n_step steps, or a whole "
        "episode, before sampling"
    )
