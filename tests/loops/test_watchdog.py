"""Messages about a run that makes no step."""

from __future__ import annotations

import threading
import time

from noisynet.loops.watchdog import watch_steps


def test_a_thread_that_makes_no_step_is_found_and_its_line_named() -> None:
    said, heard, started = list[str](), threading.Event(), time.monotonic()

    def say(message: str) -> None:
        said.append(message)
        heard.set()

    with watch_steps(lambda: 1_000 * (time.monotonic() - started), say, first=0.01):
        assert heard.wait(30)
    assert said[0].startswith("no step for ")
    assert f"waiting in wait ({threading.__file__}, line " in said[0]
    assert len(said) <= 30  # each silence is twice as long as the one before


def test_a_thread_that_makes_steps_is_not_mentioned() -> None:
    said = list[str]()
    with watch_steps(lambda: 0.0, said.append, first=0.01):
        time.sleep(0.1)
    assert said == []
