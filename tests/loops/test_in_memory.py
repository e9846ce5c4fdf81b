"""Training in memory is that of a run, without files."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from noisynet.agents import ValueAgent
from noisynet.config import build_config
from noisynet.envs import EnvironmentFailed, make_environment
from noisynet.loops import Observer
from noisynet.loops.in_memory import MemoryRun

SETTINGS = ["learning.starts_steps=20", "log_period_steps=10", "evaluation.period_frames=40"]
SETTINGS += ["evaluation.frames=8", "network.hidden=[8]", "threads=1"]
SETTINGS += ["learning.batch_size=4"]


class Seen(Observer):
    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def started(self, frames: int) -> None:
        self.events.append(("started", frames))

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        self.events.append(("logged", row["frames"]))

    def evaluated(self, row: dict[str, Any]) -> None:
        self.events.append((f"evaluated {row['noise']}", row["frames"]))


class Progress(Observer):
    def __init__(self) -> None:
        self.told: list[tuple[int, bool]] = []

    def progressed(self, frames: int, steps_per_second: float | None) -> None:
        self.told.append((frames, steps_per_second is None))


def make(*settings: str) -> MemoryRun:
    config = build_config("noisynet-dqn", "deep_sea/4", settings=[*SETTINGS, *settings])
    environment = make_environment("deep_sea/4", config.num_envs)
    return MemoryRun(ValueAgent(config, environment.spec), environment)


def test_observers_are_told_as_in_a_run() -> None:
    run, seen = make(), Seen()
    run.train(25, 25, [seen])
    assert seen.events == [("started", 0), ("logged", 10), ("logged", 20)]
    seen.events.clear()
    run.train(45, 45, [seen])
    modes = [("evaluated on", 40), ("evaluated off", 40)]
    assert seen.events == [("started", 25), ("logged", 30), ("logged", 40), *modes]


def test_the_progress_is_told_while_training_and_during_an_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("noisynet.loops.run_log._PROGRESS_SECONDS", 0.0)
    run, progress = make(), Progress()
    run.train(45, 45, [progress])
    training = [frames for frames, evaluating in progress.told if not evaluating]
    assert training == list(range(1, 46))
    assert progress.told.count((40, True)) == 2 * 8  # at every step, with noise and without


def test_it_returns_at_the_step_asked_for_and_goes_on_from_there() -> None:
    run = make("num_envs=2")
    run.train(25, 100)
    assert run.steps == 26  # of both environments together
    run.train(26, 100)
    assert run.steps == 26
    run.train(30, 100)
    assert run.steps == 30


def test_a_stop_in_an_evaluation_repeats_it_later() -> None:
    run, seen = make(), Seen()
    run.train(100, 100, [seen], stop=lambda: run.steps >= 40)
    assert (run.steps, seen.events[-1]) == (40, ("logged", 40))
    run.train(41, 100, [seen])
    assert seen.events[-1] == ("evaluated off", 41)


def test_the_number_of_threads_is_restored() -> None:
    before, during = torch.get_num_threads(), list[int]()
    torch.set_num_threads(2)
    try:
        make().train(2, 2, stop=lambda: bool(during.append(torch.get_num_threads())))  # type: ignore[func-returns-value]
        assert set(during) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_error_of_the_environment_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make()

    def fail(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(run.loop.environment, "_recv", fail)
    with pytest.raises(EnvironmentFailed, match="deep_sea/4 failed in step: ValueError: broken"):
        run.train(10, 10)
