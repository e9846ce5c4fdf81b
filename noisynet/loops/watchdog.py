"""Says where a run is stuck, for example in an environment that never returns."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SILENCE_SECONDS: Final = 120.0
"""A run without a step for so long says where it is; then after twice the time, and so on."""


@contextmanager
def watch_steps(
    idle_seconds: Callable[[], float], say: Callable[[str], None], first: float = SILENCE_SECONDS
) -> Iterator[None]:
    """Print a message while the calling thread makes no step within the `with`.

    Args:
        idle_seconds: the time since the last step.
        say: shows a message; called in another thread.
        first: how long the first silence is.
    """
    over, watched = threading.Event(), threading.get_ident()

    def watch() -> None:
        limit = first
        while not over.wait(first / 10):
            idle = idle_seconds()
            if idle < first:
                limit = first
            elif idle >= limit:
                limit = 2 * idle
                say(_message(idle, watched))

    thread = threading.Thread(target=watch, daemon=True, name="watchdog")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _message(idle: float, watched: int) -> str:
    frame = sys._current_frames().get(watched)
    where = ""
    if frame is not None:
        innermost = traceback.extract_stack(frame)[-1]
        where = f" in {innermost.name} ({innermost.filename}, line {innermost.lineno})"
    return (
        f"no step for {idle:,.0f} s: waiting{where}; if it hangs, press Ctrl-C twice, and the same "
        "command resumes from the last checkpoint"
    )
