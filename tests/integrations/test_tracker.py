"""A page has each row once, wherever a run is killed."""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from noisynet import Agent
from noisynet.config import build_config
from noisynet.integrations.tracker import Tracker, make_tracker
from noisynet.loops.run_log import Observer, RunLog
from noisynet.runs import RunFolder

Page = list[tuple[int, dict[str, float]]]


class ListTracker(Tracker):
    """A tracker whose pages are lists in `pages`."""

    def __init__(self, pages: dict[str, Page], error: Exception | None = None) -> None:
        super().__init__()
        self.pages, self.error, self.closed = pages, error, 0

    def _open(self, page: str, settings: dict[str, Any], folder: Path | None) -> int:
        assert settings["optimiser.learning_rate"] > 0
        self.name = page
        stored = self.pages.setdefault(page, [])
        return stored[-1][0] if stored else -1

    def _send(self, numbers: dict[str, float], frames: int) -> None:
        if self.error is not None:
            raise self.error
        self.pages[self.name].append((frames, numbers))

    def _close(self) -> None:
        self.closed += 1


class Killed(BaseException):
    """Stands for SIGKILL."""


# A run of 60 steps: R a row of training metrics, E an evaluation, C a checkpoint, at these steps.
# The checkpoint before the evaluation at 20 is that of a run which is stopped meanwhile.
EVENTS: tuple[tuple[int, str], ...] = (
    (0, "C"),
    (10, "R"),
    (20, "R"),
    (20, "C"),
    (20, "E"),
    (20, "C"),
    (30, "R"),
    (35, "C"),
)
EVENTS += ((40, "R"), (40, "E"), (40, "C"), (50, "R"), (60, "R"), (60, "E"), (60, "C"))


def play(folder: RunFolder, tracker: Tracker, saved: list[Any], kill_at: int) -> None:
    """Play the events after the last checkpoint in `saved`; raise `Killed` before one of them."""
    log = RunLog(folder, 1, 10, [tracker])
    done = 0
    if saved:
        done, state = saved[-1]
        log.restore(state)
    log.start(EVENTS[done - 1][0] if done else 0, build_config("noisynet-dqn", "deep_sea/4"))
    for number in range(done, len(EVENTS)):
        steps, event = EVENTS[number]
        if number == kill_at:
            log.close()
            raise Killed
        if event == "R":
            log.add_update({"loss": float(steps)})
            log.add_row(steps, steps, {"layer": 0.5})
        elif event == "E":
            score = {"kind": "evaluation", "frames": steps, "score": steps / 2}
            log.add_evaluation([{**score, "noise": "on"}, {**score, "noise": "off"}], 1.0)
        else:
            saved.append((number + 1, log.state()))
            log.saved(steps)
    log.end(complete=True)
    log.close()


def shown(page: Page) -> list[tuple[int, list[str]]]:
    return [(frames, sorted(numbers)) for frames, numbers in page]


ROW = ["sigma/layer", "train/loss", "train/steps_per_second"]
BOTH = ["evaluation/score", "evaluation/score_noise_off", "evaluation/score_noise_on", *ROW]
WHOLE = [(10, ROW), (20, BOTH), (30, ROW), (40, BOTH), (50, ROW), (60, BOTH)]


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_page_has_each_row_once_wherever_a_run_is_killed_twice(
    lost: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a hundred runs, and no power cut
    moments = itertools.combinations_with_replacement(range(1, len(EVENTS)), 2)
    for number, kills in enumerate(moments):
        folder = RunFolder.create_or_open(tmp_path / str(number), {}, must_match=[])
        pages: dict[str, Page] = {}
        saved: list[Any] = []
        for kill_at in (*kills, -1, -1):  # the finished run once more, with nothing to send
            try:
                play(folder, ListTracker(pages), saved, kill_at)
            except Killed:
                for page in pages.values():  # the tracker's library had not stored everything
                    del page[max(0, len(page) - lost) :]
        ((_, page),) = pages.items()
        assert shown(page) == WHOLE, kills
        assert [numbers["train/loss"] for _, numbers in page] == [10, 20, 30, 40, 50, 60]


def test_no_row_after_the_last_checkpoint_is_sent(tmp_path: Path) -> None:
    folder = RunFolder.create_or_open(tmp_path / "run", {}, must_match=[])
    pages: dict[str, Page] = {}
    with pytest.raises(Killed):
        play(folder, ListTracker(pages), [], EVENTS.index((40, "E")))
    ((_, page),) = pages.items()
    assert shown(page) == WHOLE[:3]


def test_training_in_memory_is_shown_on_one_page(tmp_path: Path) -> None:
    pages: dict[str, Page] = {}
    tracker = ListTracker(pages)
    settings: dict[str, Any] = {
        "evaluation.period_frames": 40,
        "evaluation.frames": 8,
        "log_period_steps": 20,
    }
    agent = Agent(
        "noisynet-dqn", "deep_sea/4", compute="torch", starts_steps=10, batch_size=4, **settings
    )
    agent.learn(40, progress=False, callbacks=[tracker])
    agent.learn(45, progress=False, callbacks=[tracker])
    ((_, page),) = pages.items()
    assert [frames for frames, _ in page] == [20, 40, 60, 80]
    assert ["evaluation/score" in numbers for _, numbers in page] == [False, True, False, True]
    assert tracker.closed == 2


def test_learn_with_a_folder_shows_the_last_row_of_each_call(tmp_path: Path) -> None:
    pages: dict[str, Page] = {}
    settings: dict[str, Any] = {
        "evaluation.period_frames": 40,
        "evaluation.frames": 8,
        "log_period_steps": 20,
    }
    settings |= {"frames": 100, "threads": 1}
    agent = Agent(
        "noisynet-dqn",
        "deep_sea/4",
        compute="torch",
        starts_steps=10,
        batch_size=4,
        folder=tmp_path / "run",
        **settings,
    )
    agent.learn(60, progress=False, callbacks=[ListTracker(pages)])
    ((_, page),) = pages.items()
    assert [frames for frames, _ in page] == [20, 40, 60]
    # The evaluation at the end of a call that ends before the budget is that of the next call.
    agent.learn(20, progress=False, callbacks=[ListTracker(pages)])
    assert [frames for frames, _ in page] == [20, 40, 60]
    agent.learn(20, progress=False, callbacks=[ListTracker(pages)])
    assert [frames for frames, _ in page] == [20, 40, 60, 80, 100]
    assert ["evaluation/score" in numbers for _, numbers in page] == [
        False,
        True,
        False,
        True,
        True,
    ]


def test_an_error_of_the_library_switches_the_tracker_off(tmp_path: Path) -> None:
    class Messages(Observer):
        def __init__(self) -> None:
            self.noted_texts: list[str] = []

        def noted(self, message: str) -> None:
            self.noted_texts.append(message)

    folder = RunFolder.create_or_open(tmp_path / "run", {}, must_match=[])
    messages, tracker = Messages(), ListTracker({}, KeyError("no such project"))
    log = RunLog(folder, 1, 10, [messages, tracker])
    log.start(0, build_config("noisynet-dqn", "deep_sea/4"))
    log.add_row(10, 10, {})
    log.saved(20)
    assert messages.noted_texts == ["ListTracker is switched off: KeyError: 'no such project'"]
    assert log.observers == [messages]


def test_a_tracker_is_made_from_its_name_and_project(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    made = make_tracker("wandb:pong")
    assert (type(made).__name__, made.project) == ("WandbTracker", "pong")
    assert make_tracker("wandb").project == "noisynet"
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=re.escape('pip install "noisynet[wandb]"')):
        make_tracker("wandb")
