"""Turns signals that ask a process to stop into a request that a loop can poll."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class StopRequest:
    """Whether the process was asked to stop."""

    def __init__(self, *, interrupt_twice: bool = False) -> None:
        self.received: list[int] = []
        self.handled: list[int] = []
        self._interrupt_twice, self._handler = interrupt_twice, self.receive

    def __call__(self) -> bool:
        """Whether to save and exit; handlers that an environment has replaced are restored."""
        for number in self.handled:
            if signal.getsignal(number) is not self._handler:
                signal.signal(number, self._handler)
        return bool(self.received)

    def install(self, number: int) -> Any:
        """Handle a signal from now on; return the handler before."""
        self.handled.append(number)
        return signal.signal(number, self._handler)

    @property
    def signal(self) -> int | None:
        """The first signal received, None before that."""
        return self.received[0] if self.received else None

    @property
    def immediate(self) -> bool:
        """Whether to exit without saving: a second signal was received."""
        return len(self.received) > 1

    def receive(self, number: int, _frame: object = None) -> None:
        """Handle one signal."""
        # Only SIGINT counts twice: supervisors often send SIGTERM to a process and to its group.
        if self._interrupt_twice and number == signal.SIGINT and number in self.received:
            signal.default_int_handler(number, None)
        self.received.append(number)


@contextmanager
def stop_on_signals(
    numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM), *, interrupt_twice: bool = False
) -> Iterator[StopRequest]:
    """Install signal handlers and restore the previous ones on exit.

    An ignored SIGHUP, as under `nohup`, stays ignored. Outside the main thread Python cannot
    install handlers, and the request is never made.
    """
    request, before = StopRequest(interrupt_twice=interrupt_twice), {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = request.install(number)
    try:
        yield request
    finally:
        request.handled.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
