"""What a contestant needs to take turns; no library, so that every environment has it."""

from __future__ import annotations

import sys
import time


class Turns:
    """Counts steps, reports how long a turn took, and waits for the next one.

    Args:
        warm_up: steps before the first turn.
    """

    def __init__(self, warm_up: int) -> None:
        self._begin(warm_up)

    def _begin(self, steps: int) -> None:
        self._ordered = self._left = steps
        self._start = time.perf_counter()

    def step(self, count: int = 1) -> bool:
        """Count steps that were made; return whether to go on.

        Several at once may exceed the turn; the time reported is that of the steps ordered.
        """
        self._left -= count
        if self._left > 0:
            return True
        seconds = time.perf_counter() - self._start
        print(seconds * self._ordered / (self._ordered - self._left), flush=True)
        order = sys.stdin.readline().strip()
        if not order:
            return False
        self._begin(int(order))
        return True
