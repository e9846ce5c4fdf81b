"""What the workers of a run share: one block of memory without a name, and no lock in it.

Weights and statistics are written by every worker, without waiting for one another (section 5.1 of
Mnih et al. 2016). Counters stand in slots, each written by its own worker and read by all: a worker
that is killed at any moment leaves nothing locked, and at worst half of one update. The block has
no name on any disk, so whichever way the processes end, nothing is left of it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

# A slot has two cache lines to itself, so that counting does not slow the neighbours down.
_WORDS: Final = 16
_STEPS, _UPDATES, _DROPPED, _EPISODE, _HEARTBEAT = range(5)
_CONTROL_BYTES: Final = 4096

END: Final = -1
"""The stop that tells workers to leave."""


class Slot:
    """The counters of one worker; written by that worker alone while it lives.

    Args:
        words: its part of the block, int64.
    """

    def __init__(self, words: NDArray[np.int64]) -> None:
        self._words = words

    @property
    def steps(self) -> int:
        """Agent steps that its updates were made from."""
        return int(self._words[_STEPS])

    @property
    def updates(self) -> int:
        """Updates of the shared weights."""
        return int(self._words[_UPDATES])

    @property
    def dropped(self) -> int:
        """Updates that were not made, because their gradient was not finite."""
        return int(self._words[_DROPPED])

    @property
    def episode(self) -> int:
        """The highest number of an episode that was begun; −1 before the first."""
        return int(self._words[_EPISODE])

    @property
    def heartbeat(self) -> int:
        """When the worker was last seen alive, by `time.monotonic_ns`."""
        return int(self._words[_HEARTBEAT])

    def beat(self) -> None:
        """Say that the worker is alive; at every step."""
        self._words[_HEARTBEAT] = time.monotonic_ns()

    def begin_episode(self, number: int) -> None:
        """Note an episode before it begins, so that no other is ever given its seed."""
        self._words[_EPISODE] = max(number, self.episode)

    def count(self, steps: int, dropped: bool) -> None:
        """Note a roll-out of so many steps, after its update."""
        self._words[_DROPPED if dropped else _UPDATES] += 1
        self._words[_STEPS] += steps

    def state(self) -> dict[str, int]:
        """The counters, for a checkpoint."""
        return {
            "steps": self.steps,
            "updates": self.updates,
            "dropped": self.dropped,
            "episode": self.episode,
        }

    def restore(self, state: dict[str, int]) -> None:
        """Take the counters back; before the worker starts."""
        self._words[_STEPS], self._words[_UPDATES] = state["steps"], state["updates"]
        self._words[_DROPPED], self._words[_EPISODE] = state["dropped"], state["episode"]


class SharedState:
    """The block, as this process sees it.

    Args:
        descriptor: of the block, from whoever created it.
        workers: how many slots there are.
        size: how many parameters there are.

    Attributes:
        descriptor: to be handed to the workers.
        slots: of each worker.
        parameters: the weights, float32 [size].
        squares: the mean squares of the gradients, float32 [size].
    """

    def __init__(self, descriptor: int, workers: int, size: int) -> None:
        self.descriptor = descriptor
        block = mmap.mmap(descriptor, _length(workers, size))
        self._control = np.frombuffer(block, np.int64, _WORDS)
        words = np.frombuffer(block, np.int64, workers * _WORDS, _CONTROL_BYTES)
        self._words = words.reshape(workers, _WORDS)
        self.slots = [Slot(row) for row in self._words]
        start = _CONTROL_BYTES + _slots_bytes(workers)
        self.parameters: NDArray[np.float32] = np.frombuffer(block, np.float32, size, start)
        start += _padded(4 * size)
        self.squares: NDArray[np.float32] = np.frombuffer(block, np.float32, size, start)

    @classmethod
    def create(cls, workers: int, size: int) -> SharedState:
        """Make a block of zeros; its slots have begun no episode yet."""
        descriptor = nameless_file()
        os.ftruncate(descriptor, _length(workers, size))
        shared = cls(descriptor, workers, size)
        shared._words[:, _EPISODE] = -1
        return shared

    @property
    def steps(self) -> int:
        """T of Algorithm 2: agent steps of all workers together."""
        return int(self._words[:, _STEPS].sum())

    @property
    def stop_at(self) -> int:
        """The step at which workers stop and hand their state over; written by the parent."""
        return int(self._control[0])

    @stop_at.setter
    def stop_at(self, steps: int) -> None:
        """Have workers stop at another step."""
        self._control[0] = steps

    def close(self) -> None:
        """Give the descriptor back; the memory goes with the last array that refers to it."""
        os.close(self.descriptor)


def nameless_file() -> int:
    """The descriptor of a file in memory, which is gone as soon as nobody has it open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("noisynet")
    with tempfile.TemporaryFile() as file:  # elsewhere than on Linux, one that has lost its name
        return os.dup(file.fileno())


def _padded(length: int) -> int:
    return -(-length // 4096) * 4096


def _slots_bytes(workers: int) -> int:
    return _padded(8 * _WORDS * workers)


def _length(workers: int, size: int) -> int:
    return _CONTROL_BYTES + _slots_bytes(workers) + 2 * _padded(4 * size)
