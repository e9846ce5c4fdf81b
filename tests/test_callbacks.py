"""Callbacks, and the progress of training in Python."""

from __future__ import annotations

from typing import Any

import pytest

from noisynet import Callback
from noisynet.callbacks import progress_observer
from noisynet.loops import Observer
from noisynet.loops.terminal import Terminal


def row(frames: int, **fields: Any) -> dict[str, Any]:
    return {"frames": frames, "score_mean_100": 1.5, "sigma": {"a": 0.1, "b": 0.3}, **fields}


def test_a_callback_is_an_observer_that_can_stop() -> None:
    callback = Callback()
    assert isinstance(callback, Observer)
    assert not callback.stopped
    callback.stop()
    assert callback.stopped
    assert not Callback().stopped


def test_without_a_terminal_there_are_lines_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluated = {"score": 1, "noise": "on", "episodes": 3, "completed": True}
    with progress_observer(None, 100, 4) as shown:
        shown[0].logged(row(400), 5.0)
        shown[0].progressed(400, None)
        shown[0].evaluated(row(400, **evaluated))
    assert capsys.readouterr().err.splitlines() == [
        "step 100: score 1.00 with noise on, 3 episodes",
        "step 100 of 100  mean 1.5  Σ̄ 0.2000",
    ]


def test_a_terminal_counts_the_steps_of_learn(capsys: pytest.CaptureFixture[str]) -> None:
    evaluated = {"score": 1, "noise": "on", "episodes": 3, "completed": True}
    with progress_observer(True, 100, 4) as shown:
        shown[0].started(0)
        shown[0].logged(row(400), 5.0)
        shown[0].evaluated(row(400, **evaluated))
    printed = capsys.readouterr().err
    assert "step 100: score 1.00" in printed
    assert "100/100 steps" in printed


def test_progress_can_be_switched_off_and_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_observer(False, 100, 1) as shown:
        assert shown == []
    with progress_observer(True, 100, 1) as shown:
        assert isinstance(shown[0], Terminal)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_observer(None, 100, 1) as shown:
        assert isinstance(shown[0], Terminal)
