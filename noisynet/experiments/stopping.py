"""Signals that ask a sweep to stop, as something that can be asked."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Whether somebody wants the sweep to stop.

    Attributes:
        signal: the first that came, None before.
        times: how many came; the second means at once.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.times = 0

    @property
    def wanted(self) -> bool:
        """Whether the runs are to write their checkpoints and end."""
        return self.signal is not None

    @property
    def at_once(self) -> bool:
        """Whether there is no time for that."""
        return self.times > 1

    def receive(self, number: int, _frame: object) -> None:
        """Take note of a signal."""
        if self.signal is None:
            self.signal = number
        self.times += 1


@contextmanager
def stopping() -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a request, in the main thread; elsewhere none comes.

    A hang-up that is ignored, as under `nohup`, stays ignored.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = [number for number in _NUMBERS if not _is_to_be_ignored(number)]
    before = {number: signal.signal(number, request.receive) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_to_be_ignored(number: int) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
