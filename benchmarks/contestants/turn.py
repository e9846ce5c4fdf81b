"""What a contestant needs to take turns; no library, so that every environment has it."""

from __future__ import annotations

import sys
import time


class Turns:
    """Counts steps, says how long a turn took, and waits for the next one.

    Args:
        warm_up: steps before the first turn.
    """

    def __init__(self, warm_up: int) -> None:
        self._left, self._start = warm_up, time.perf_counter()

    def step(self) -> bool:
        """One step was made; whether there is another."""
        self._left -= 1
        if self._left:
            return True
        print(time.perf_counter() - self._start, flush=True)
        order = sys.stdin.readline().strip()
        if not order:
            return False
        self._left, self._start = int(order), time.perf_counter()
        return True
