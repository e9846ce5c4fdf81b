"""The log of a run: rows, timings, observers and traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loops.short_loops import configure
from noisynet.loops import FinishedEpisode, Health, Phase
from noisynet.loops.run_log import Observer, RunLog
from noisynet.runs import RunDamaged, RunFolder, Trace, list_traces, read_metrics, write_traces


class Recorder(Observer):
    """An observer that records its calls, and can fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.error = error

    def started(self, frames: int) -> None:
        self._record("started", frames)

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        self._record("logged", row)

    def evaluated(self, row: dict[str, Any]) -> None:
        self._record("evaluated", row)

    def noted(self, message: str) -> None:
        self._record("noted", message)

    def watched(self, workers: Any) -> None:
        self._record("watched", workers)

    def _record(self, name: str, value: Any) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append((name, value))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create_or_open(tmp_path / "run", {}, must_match=[])


def test_a_row_has_the_means_since_the_previous_one(folder: RunFolder) -> None:
    recorder = Recorder()
    log = RunLog(folder, 4, 100, [recorder])
    log.start(0, configure())
    for loss in (1.0, 3.0):
        log.add_update({"loss": loss})
    log.add_episode(FinishedEpisode(2, 7, 21.0, 30), 60)
    log.add_row(100, 2, {"head": 0.5}, {"worker_deaths": 1})
    log.add_row(200, 2, {"head": 0.25})
    episode, first, second = read_metrics(folder.metrics_path)
    assert episode == {
        "kind": "episode",
        "frames": 240,
        "env": 2,
        "episode": 7,
        "score": 21.0,
        "steps": 30,
    }
    assert first == {
        "kind": "train",
        "frames": 400,
        "steps": 100,
        "updates": 2,
        "episodes": 1,
        "score_last": 21.0,
        "score_mean_100": 21.0,
        "length_mean_100": 30.0,
        "loss": 2.0,
        "sigma": {"head": 0.5},
        "worker_deaths": 1,
    }
    assert (second["loss"], second["score_last"]) == (None, 21.0)
    assert recorder.calls == [("started", 0), ("logged", first), ("logged", second)]
    timings = read_metrics(folder.timing_path)
    assert [row["frames"] for row in timings] == [400, 800]
    assert all(row["steps_per_second"] > 0 for row in timings)
    log.close()


def test_the_mean_score_is_of_the_last_hundred_episodes(folder: RunFolder) -> None:
    log = RunLog(folder, 1, 100, [])
    for number in range(150):
        log.add_episode(FinishedEpisode(0, number, float(number), 1), number)
    log.add_row(150, 0, {})
    assert read_metrics(folder.metrics_path)[-1]["score_mean_100"] == np.mean(range(50, 150))
    log.close()


@pytest.mark.parametrize(
    ("before", "steps", "due"),
    [(0, 99, False), (99, 100, True), (100, 101, False), (90, 310, True)],
)
def test_a_row_is_due_when_a_multiple_of_the_period_is_passed(
    before: int, steps: int, due: bool, folder: RunFolder
) -> None:
    log = RunLog(folder, 1, 100, [])
    assert log.row_is_due(before, steps) is due
    log.close()


def test_observers_receive_the_state_of_the_workers(folder: RunFolder) -> None:
    recorder = Recorder()
    log = RunLog(folder, 1, 100, [Observer(), recorder])
    health = [Health(Phase.RUNNING, 3, 0)]
    log.workers(health)
    assert recorder.calls == [("watched", health)]
    log.close()


@pytest.mark.parametrize("error", [OSError("no space"), RunDamaged("line 1")])
def test_an_observer_that_fails_is_switched_off_and_the_others_are_told(
    error: Exception, folder: RunFolder
) -> None:
    good = Recorder()
    log = RunLog(folder, 1, 100, [Recorder(error), good])
    log.message("hello")
    assert good.calls == [("noted", f"Recorder is switched off: {error}"), ("noted", "hello")]
    assert log.observers == [good]
    log.close()


def test_restoring_drops_later_rows_and_traces_without_rows(folder: RunFolder) -> None:
    log = RunLog(folder, 1, 100, [])
    log.add_update({"loss": 4.0})
    log.add_episode(FinishedEpisode(0, 0, 5.0, 1), 10)
    _evaluate(log, 20)
    state = json.loads(json.dumps(log.state()))
    log.add_update({"loss": 8.0})
    log.add_episode(FinishedEpisode(0, 1, 7.0, 1), 30)
    _evaluate(log, 40)
    log.close()
    resumed = RunLog(folder, 1, 100, [])
    resumed.restore(state)
    assert [row["kind"] for row in read_metrics(folder.metrics_path)] == ["episode", "evaluation"]
    assert [file.evaluation for file in list_traces(folder.traces_path)] == [20]
    resumed.add_row(100, 1, {})
    row = read_metrics(folder.metrics_path)[-1]
    assert (row["loss"], row["episodes"], row["score_last"]) == (4.0, 1, 5.0)
    resumed.close()


def _evaluate(log: RunLog, frames: int) -> None:
    trace = Trace("deep_sea/4", 1, np.zeros(2, np.uint8), 1.0, frames, 0, "on")
    assert log.folder is not None
    write_traces(log.folder.traces_path, frames, [trace], noise="on")
    row = {"kind": "evaluation", "frames": frames, "noise": "on", "score": 1.0}
    log.add_evaluation([row], seconds=1.0)


def test_the_progress_is_told_about_once_a_second_with_the_speed_since_the_last_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, now = list[tuple[int, float | None]](), [100.0]

    class Progress(Observer):
        def progressed(self, frames: int, steps_per_second: float | None) -> None:
            told.append((frames, steps_per_second))

    monkeypatch.setattr("noisynet.loops.run_log.time.monotonic", lambda: now[0])
    log = RunLog(None, 4, 1_000, [Progress()])
    log.start(0, configure())
    for step in range(1, 26):
        now[0] += 0.125
        log.progress(step)
    assert told == [(4, 8.0), (36, 8.0), (68, 8.0), (100, 8.0)]
    now[0] += 10
    log.progress(25, evaluating=True)
    assert told[4:] == [(100, None)]
