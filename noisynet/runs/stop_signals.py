"""Turns signals that ask a process to stop into a request that a loop can poll."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["StopRequest", "stop_on_signals"]


class StopRequest:
    """Whether the process was asked to stop.

    Args:
        interrupt_twice: Raise KeyboardInterrupt on the second SIGINT.

    Attributes:
        signal: The first signal received, None before that.
        count: The number of signals received.
    """

    def __init__(self, *, interrupt_twice: bool = False) -> None:
        self.signal: int | None = None
        self.count = 0
        self._interrupt_twice, self._interrupted = interrupt_twice, False

    def __call__(self) -> bool:
        """Whether to save and exit: loops poll the request as a function."""
        return self.requested

    @property
    def requested(self) -> bool:
        """Whether to save and exit."""
        return self.signal is not None

    @property
    def immediate(self) -> bool:
        """Whether to exit without saving: a second signal was received."""
        return self.count > 1

    def receive(self, number: int, _frame: object = None) -> None:
        """Handle one signal."""
        # Only SIGINT counts twice: supervisors often send SIGTERM to a process and to its group.
        if number == signal.SIGINT:
            if self._interrupted and self._interrupt_twice:
                signal.default_int_handler(number, None)
            self._interrupted = True
        self.signal = number if self.signal is None else self.signal
        self.count += 1


@contextmanager
def stop_on_signals(
    numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM), *, interrupt_twice: bool = False
) -> Iterator[StopRequest]:
    """Install signal handlers and restore the previous ones on exit.

    An ignored SIGHUP, as under `nohup`, stays ignored. Outside the main thread Python cannot
    install handlers, and the request is never made.

    Args:
        numbers: The signals to handle.
        interrupt_twice: Raise KeyboardInterrupt on the second SIGINT.
    """
    request = StopRequest(interrupt_twice=interrupt_twice)
    if threading.current_thread() is not threading.main_thread():
        numbers = ()
    before = {
        number: signal.signal(number, request.receive)
        for number in numbers
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
