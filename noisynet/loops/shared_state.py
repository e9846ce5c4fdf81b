"""The memory that the workers of a run share, without locks.

Every worker writes weights and statistics without waiting for the others (Hogwild!, section 4 of
Mnih et al. 2016). Counters are in slots, each written by its own worker and read by all. A worker
that is killed therefore leaves nothing locked, and at worst half of one update. The memory is an
anonymous file, so nothing is left behind however the processes end.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

# A slot fills two cache lines, so that workers do not invalidate each other's cache.
_WORDS: Final = 16
_STEPS, _UPDATES, _DROPPED, _EPISODE, _HEARTBEAT = range(5)
_CONTROL_BYTES: Final = 4096

END: Final = -1
"""The value of `stop_at` that tells workers to exit."""


class Slot:
    """The counters of one worker; only that worker writes them while it runs."""

    def __init__(self, words: NDArray[np.int64]) -> None:
        self._words = words

    @property
    def steps(self) -> int:
        """Agent steps whose updates are made."""
        return int(self._words[_STEPS])

    @property
    def updates(self) -> int:
        """Updates of the shared weights."""
        return int(self._words[_UPDATES])

    @property
    def dropped(self) -> int:
        """Updates dropped because their gradient was not finite."""
        return int(self._words[_DROPPED])

    @property
    def episode(self) -> int:
        """Highest number of an episode that was started; −1 before the first."""
        return int(self._words[_EPISODE])

    @property
    def heartbeat(self) -> int:
        """Time of the last heartbeat, by `time.monotonic_ns`."""
        return int(self._words[_HEARTBEAT])

    def beat(self) -> None:
        """Give a heartbeat; called at every step."""
        self._words[_HEARTBEAT] = time.monotonic_ns()

    def begin_episode(self, number: int) -> None:
        """Record an episode before it starts, so that its seed is never used again."""
        self._words[_EPISODE] = max(number, self.episode)

    def count(self, steps: int, dropped: bool) -> None:
        """Count a roll-out after its update."""
        self._words[_DROPPED if dropped else _UPDATES] += 1
        self._words[_STEPS] += steps

    def state(self) -> dict[str, int]:
        """Return the counters, for a checkpoint."""
        return {
            "steps": self.steps,
            "updates": self.updates,
            "dropped": self.dropped,
            "episode": self.episode,
        }

    def restore(self, state: dict[str, int]) -> None:
        """Load the counters; before the worker starts."""
        self._words[_STEPS], self._words[_UPDATES] = state["steps"], state["updates"]
        self._words[_DROPPED], self._words[_EPISODE] = state["dropped"], state["episode"]


class SharedState:
    """The shared memory, mapped into this process.

    Attributes:
        descriptor: to be passed to the workers.
        slots: one per worker.
        parameters: weights, float32 [size].
        squares: mean squares of the gradients, float32 [size].
    """

    def __init__(self, descriptor: int, workers: int, size: int) -> None:
        self.descriptor = descriptor
        memory = mmap.mmap(descriptor, _length(workers, size))
        self._control = np.frombuffer(memory, np.int64, _WORDS)
        words = np.frombuffer(memory, np.int64, workers * _WORDS, _CONTROL_BYTES)
        self._words = words.reshape(workers, _WORDS)
        self.slots = [Slot(row) for row in self._words]
        start = _CONTROL_BYTES + _slots_bytes(workers)
        self.parameters: NDArray[np.float32] = np.frombuffer(memory, np.float32, size, start)
        start += _padded(4 * size)
        self.squares: NDArray[np.float32] = np.frombuffer(memory, np.float32, size, start)

    @classmethod
    def create(cls, workers: int, size: int) -> SharedState:
        """Allocate zeros; no slot has started an episode yet."""
        descriptor = anonymous_file()
        os.ftruncate(descriptor, _length(workers, size))
        shared = cls(descriptor, workers, size)
        shared._words[:, _EPISODE] = -1
        return shared

    @property
    def steps(self) -> int:
        """T of Algorithm 2: agent steps of all workers."""
        return int(self._words[:, _STEPS].sum())

    @property
    def stop_at(self) -> int:
        """The step at which workers stop and send a snapshot; written by the parent."""
        return int(self._control[0])

    @stop_at.setter
    def stop_at(self, steps: int) -> None:
        """Set the step at which workers stop."""
        self._control[0] = steps

    def close(self) -> None:
        """Close the descriptor; the memory is freed with the last array that refers to it."""
        os.close(self.descriptor)


def anonymous_file() -> int:
    """Return the descriptor of a file without a name, which exists only while it is open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("noisynet")
    with tempfile.TemporaryFile() as file:  # not on Linux: a deleted file
        return os.dup(file.fileno())


def _padded(length: int) -> int:
    return -(-length // 4096) * 4096


def _slots_bytes(workers: int) -> int:
    return _padded(8 * _WORDS * workers)


def _length(workers: int, size: int) -> int:
    return _CONTROL_BYTES + _slots_bytes(workers) + 2 * _padded(4 * size)
