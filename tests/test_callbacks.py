"""Callbacks, and the progress of training in Python."""

from __future__ import annotations

from typing import Any

import pytest

from noisynet import Callback
from noisynet.callbacks import ProgressLines, progress_observer
from noisynet.loops import Observer
from noisynet.loops.terminal import Terminal


def row(frames: int, **fields: Any) -> dict[str, Any]:
    return {"frames": frames, "score_mean_100": 1.5, "sigma": {"a": 0.1, "b": 0.3}, **fields}


class Lines:
    def __init__(self) -> None:
        self.now, self.written = 0.0, list[str]()
        self.observer = ProgressLines(1_000, 4, self.written.append, lambda: self.now)
        self.observer.started(0)


def test_a_callback_is_an_observer_that_can_stop() -> None:
    callback = Callback()
    assert isinstance(callback, Observer)
    assert not callback.stopped
    callback.stop()
    assert callback.stopped
    assert not Callback().stopped


def test_there_is_a_line_a_minute_and_one_at_the_end() -> None:
    lines = Lines()
    for second in range(0, 150, 10):
        lines.now = second
        lines.observer.logged(row(4 * second), 10.0)
    assert [line.split(",")[0] for line in lines.written] == ["step 60 of 1", "step 120 of 1"]
    lines.observer.close()
    lines.observer.close()
    assert [line.split()[1] for line in lines.written] == ["60", "120", "140"]


def test_a_line_has_the_return_the_last_evaluation_and_the_noise() -> None:
    lines = Lines()
    lines.observer.evaluated({"score": 3.0, "noise": "on"})
    lines.observer.logged(row(400), 1234.5)
    lines.observer.close()
    expected = "step 100 of 1,000, 1,234 steps/s, mean return 1.50, evaluation 3.00 (noise on), "
    assert lines.written == [expected + "Σ̄ 0.2000"]


def test_a_line_leaves_out_what_is_not_known_yet() -> None:
    lines = Lines()
    lines.observer.logged(row(400, score_mean_100=None, sigma={}), 5.0)
    lines.observer.close()
    assert lines.written == ["step 100 of 1,000, 5 steps/s"]


def test_messages_are_written_at_once() -> None:
    lines = Lines()
    lines.observer.noted("a message")
    assert lines.written == ["a message"]


def test_without_a_terminal_there_are_lines_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_observer(None, 100, 1) as shown:
        shown[0].logged(row(100), 5.0)
    assert capsys.readouterr().err.startswith("step 100 of 100")


def test_progress_can_be_switched_off_and_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_observer(False, 100, 1) as shown:
        assert shown == []
    with progress_observer(True, 100, 1) as shown:
        assert isinstance(shown[0], Terminal)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_observer(None, 100, 1) as shown:
        assert isinstance(shown[0], Terminal)
