"""Runs: status, evaluations, checkpoints, stop and resume."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from loops.conftest import remains
from loops.short_loops import configure
from noisynet.agents import NonFiniteLoss, ValueAgent
from noisynet.config import ActorCriticConfig, build_config
from noisynet.evaluation import make_configured_environment
from noisynet.loops import WorkersFailed, open_run, open_run_folder, train
from noisynet.loops.run import Run, checkpoint_identity
from noisynet.loops.run_log import Observer, RunLog
from noisynet.runs import (
    Checkpoint,
    RunDamaged,
    RunFolder,
    StorageError,
    load_newest,
    read_metrics,
    save_checkpoint,
)

CONFIG = configure("evaluation.period_frames=20", "evaluation.frames=8")


class StubTrainer:
    """Makes 50 steps; a snapshot is due after every tenth."""

    def __init__(self, agent: ValueAgent) -> None:
        self.agent = agent
        self.steps = self.updates = self.snapshot_at = self.polls = 0
        self.weight = torch.zeros(3)
        self.deterministic = True
        self.finished_at: int | None = None
        self.closed = False
        self.fail_at: dict[int, Exception] = {}

    @property
    def is_finished(self) -> bool:
        return self.steps >= 50

    def start(self) -> None:
        pass

    def finish(self) -> None:
        self.finished_at = self.steps

    @property
    def checkpoint_is_due(self) -> bool:
        return self.steps - self.snapshot_at >= 10

    def advance(self, stop: Callable[[], bool]) -> Generator[None, None, None]:
        try:
            while self.steps < 50:
                self.steps += 1
                if self.steps in self.fail_at:
                    raise self.fail_at[self.steps]
                yield
        finally:
            self.closed = True

    def poll(self) -> None:
        self.polls += 1

    def snapshot(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        self.snapshot_at = self.steps
        return {"weight": self.weight}, {"steps": self.steps}

    def restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        self.weight, self.steps = tensors["weight"], state["steps"]


class Messages(Observer):
    """An observer that records messages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def started(self, frames: int) -> None:
        self.texts.append(f"started at {frames}")

    def noted(self, message: str) -> None:
        self.texts.append(message)


class Bed:
    """A run folder, and runs of stub trainers in it."""

    def __init__(self, path: Path) -> None:
        stored = CONFIG.model_dump(mode="json")
        self.folder = RunFolder.create_or_open(path, stored, must_match=[])
        self.messages = Messages()

    @contextmanager
    def run(self, stop: Callable[[StubTrainer], bool] = lambda _: False) -> Iterator[Run]:
        self.messages = Messages()
        with make_configured_environment(CONFIG, 1) as environment:
            spec = environment.spec
            self.trainer = StubTrainer(ValueAgent(CONFIG, spec))
        log = RunLog(self.folder, spec.frames_per_step, 1_000, [self.messages])
        trainer = self.trainer
        run = Run(cast(Any, trainer), CONFIG, spec, self.folder, log, stop=lambda: stop(trainer))
        run.resume()
        yield run
        log.close()

    def newest(self) -> Checkpoint:
        with self.run() as run:
            identity = checkpoint_identity(CONFIG, run.spec)
        checkpoint, skipped = load_newest(self.folder.checkpoints_path, **identity, repair=False)
        assert checkpoint is not None
        assert skipped == []
        return checkpoint

    def status(self) -> dict[str, Any]:
        status = self.folder.read_status()
        assert status is not None
        return status


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "run")


def test_a_run_evaluates_saves_and_finishes(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = list[int]()

    def save(folder: Path, checkpoint: Checkpoint, **keywords: Any) -> Path:
        saved.append(checkpoint.step)
        return save_checkpoint(folder, checkpoint, **keywords)

    monkeypatch.setattr("noisynet.loops.run.save_checkpoint", save)
    with bed.run() as run:
        outcome = run.run()
    # Before the first step, when due, and after each evaluation (20, 40 and at the end).
    assert saved == [0, 10, 20, 30, 40, 50]
    rows = [row for row in read_metrics(bed.folder.metrics_path) if row["kind"] == "evaluation"]
    assert [(row["frames"], row["noise"]) for row in rows] == [
        (frames, noise) for frames in (20, 40, 50) for noise in ("on", "off")
    ]
    assert outcome.finished
    assert (outcome.frames, outcome.score) == (50, rows[4]["score"])
    assert bed.status()["state"] == "finished"
    assert bed.status()["score"] == outcome.score
    assert bed.trainer.finished_at == 50
    assert bed.trainer.polls == 6 * 8  # at every step of an evaluation
    assert bed.messages.texts == ["started at 0"]


def test_the_progress_is_told_while_training_and_during_evaluations(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[tuple[int, bool]]()

    def progress(log: RunLog, steps: int, *, evaluating: bool = False) -> None:
        told.append((steps, evaluating))

    monkeypatch.setattr(RunLog, "progress", progress)
    with bed.run() as run:
        run.run()
    assert sorted({steps for steps, evaluating in told if not evaluating})[-1] == 50
    assert {steps for steps, evaluating in told if evaluating} == {20, 40, 50}
    assert sum(evaluating for _, evaluating in told) == 6 * 8  # at every step


def test_a_stopped_run_is_saved_at_once_and_resumed(bed: Bed) -> None:
    with bed.run(stop=lambda trainer: trainer.steps == 17) as run:
        outcome = run.run()
    assert not outcome.finished
    assert bed.trainer.closed
    assert bed.status()["state"] == "interrupted"
    assert bed.newest().step == outcome.frames == 17
    with bed.run() as run:
        assert run.steps == run.checkpointed_at == 17
        assert bed.messages.texts == ["resuming from frame 17"]
        assert run.run().finished
    assert bed.messages.texts[1:] == ["started at 17"]


def test_an_interrupted_evaluation_leaves_no_row_and_is_repeated(bed: Bed) -> None:
    # In the second mode: its eight steps follow the eight of the first.
    with bed.run(stop=lambda trainer: trainer.steps == 20 and trainer.polls > 12) as run:
        assert not run.run().finished
    assert read_metrics(bed.folder.metrics_path) == []
    with bed.run() as run:
        assert run.run().finished
    rows = read_metrics(bed.folder.metrics_path)
    assert [row["frames"] for row in rows] == [20, 20, 40, 40, 50, 50]


def test_a_run_that_was_stopped_before_its_last_evaluation_plays_it_later_and_once(
    bed: Bed,
) -> None:
    with bed.run(stop=lambda trainer: trainer.steps == 50 and trainer.polls > 40) as run:
        outcome = run.run()
    assert (outcome.finished, outcome.frames) == (False, 50)
    for _ in range(2):
        with bed.run() as run:
            assert run.run().finished
    rows = read_metrics(bed.folder.metrics_path)
    assert [row["frames"] for row in rows] == [20, 20, 40, 40, 50, 50]


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ([7], {7: 7}),  # shorter than a period: no longer than the training
        ([50], {20: 8, 40: 8, 50: 8}),
        ([40], {20: 8, 40: 8}),  # not twice at the same frame
        ([7, 50], {7: 7, 20: 8, 40: 8, 50: 8}),
        ([30, 60], {20: 8, 30: 8, 40: 8, 60: 8}),
    ],
    ids=str,
)
@pytest.mark.parametrize("agent", ["noisynet-dqn", "a3c"])
def test_a_run_ends_with_an_evaluation(
    agent: str, budgets: list[int], expected: dict[int, int], tmp_path: Path
) -> None:
    if agent == "a3c" and budgets != [50]:
        pytest.skip("as above, and slower")
    for budget in budgets:
        settings = [f"frames={budget}", "network.hidden=[8]", "evaluation.frames=8"]
        settings += ["evaluation.period_frames=20"]
        settings += ["workers=1", "envs_per_worker=1"] if agent == "a3c" else []
        config = build_config(agent, "deep_sea/4", settings=settings)
        folder = open_run_folder(tmp_path / "run", config)
        with folder.lock():
            outcome = train(config, folder)
    rows = read_metrics(folder.metrics_path)
    played = {row["frames"]: row["frames_played"] for row in rows if row["kind"] == "evaluation"}
    assert played == expected
    assert outcome.score is not None


def test_a_run_that_is_not_deterministic_says_so_when_it_resumes(bed: Bed) -> None:
    with bed.run(stop=lambda trainer: trainer.steps == 17) as run:
        run.run()
    with bed.run() as run:
        bed.trainer.deterministic = False
        run.resume()
    assert "not bit-identical to that of an uninterrupted run" in bed.messages.texts[-1]


# --- failures ------------------------------------------------------------------------------------


def test_a_failed_run_keeps_its_last_checkpoint_and_the_reason(bed: Bed) -> None:
    with bed.run() as run:
        bed.trainer.fail_at = {33: ValueError("the reward is not finite")}
        with pytest.raises(ValueError, match="the reward is not finite"):
            run.run()
    assert bed.status()["state"] == "failed"
    assert bed.status()["reason"] == "the reward is not finite"
    assert bed.newest().step == 30


def test_a_run_whose_workers_failed_is_saved_first(bed: Bed) -> None:
    with bed.run() as run:
        bed.trainer.fail_at = {33: WorkersFailed("worker 1 died")}
        with pytest.raises(WorkersFailed):
            run.run()
    assert bed.status()["state"] == "failed"
    assert bed.newest().step == 33


def test_tensors_that_are_not_finite_are_never_saved(bed: Bed) -> None:
    with bed.run() as run:
        for _ in bed.trainer.advance(lambda: False):
            run.checkpoint()
            bed.trainer.weight = torch.tensor([0.0, torch.nan, 0.0])
            with pytest.raises(NonFiniteLoss, match=r"after update 0, .* first in 'weight'"):
                run.checkpoint()
            break
    assert bed.newest().step == 1


@pytest.mark.parametrize(
    ("failing", "ends_at"), [({10}, None), ({50}, 50), ({10, 20}, 20), ({0}, 0)], ids=str
)
def test_one_failed_checkpoint_is_tolerated_unless_it_is_the_first(
    failing: set[int], ends_at: int | None, bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = list[int]()

    def save(folder: Path, checkpoint: Checkpoint, **keywords: Any) -> Any:
        if checkpoint.step in failing:
            failures.append(checkpoint.step)
            raise StorageError("the disk is full")
        return save_checkpoint(folder, checkpoint, **keywords)

    monkeypatch.setattr("noisynet.loops.run.save_checkpoint", save)
    with bed.run() as run:
        if ends_at is None:
            assert run.run().finished
            assert failures == [10]
        else:
            with pytest.raises(StorageError, match="the disk is full"):
                run.run()
            assert run.steps == ends_at
            assert len(failures) == (1 if ends_at == 0 else 2)
            assert bed.status()["state"] == "failed"
    noted = any("the previous checkpoint is kept" in text for text in bed.messages.texts)
    assert noted == (failing != {0})
    if failing != {0}:
        assert bed.newest().step not in failing  # a run never finishes without its last


def test_a_run_without_its_checkpoints_never_starts_again(bed: Bed) -> None:
    with bed.run() as run:
        run.run()
    shutil.rmtree(bed.folder.checkpoints_path)
    with pytest.raises(RunDamaged, match="has metrics but no checkpoints"), bed.run():
        pass


def test_the_identity_of_a_checkpoint_depends_on_the_kind_of_agent(bed: Bed) -> None:
    with bed.run() as run:
        spec = run.spec
    value = checkpoint_identity(CONFIG, spec)
    assert value["schema"] == "value-agent/5"
    assert set(value["identity"]) == {"agent", "environment", "num_actions", "seed", "num_envs"}
    config = build_config("a3c", "deep_sea/4")
    assert isinstance(config, ActorCriticConfig)
    workers = checkpoint_identity(config, spec)
    assert workers["schema"] == "actor-critic/1"
    assert workers["identity"]["workers"] == config.workers


# --- every step of a window ----------------------------------------------------------------------


class Killed(BaseException):
    """Ends a run as a signal does: nothing is saved."""


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_run_ends_the_same_wherever_it_is_interrupted_between_updates_and_target_copies(
    how: str, tmp_path: Path
) -> None:
    """Updates every 8 and target copies every 10 steps: the window covers their whole pattern."""
    config = configure(
        *("frames=100", "learning.starts_steps=16", "checkpoint_period_frames=7"),
        *("learning.update_period_steps=8", "learning.sync_target_steps=10"),
        *("evaluation.period_frames=1000", "log_period_steps=10", "replay.capacity_steps=60"),
        name="gym/CartPole-v1",
    )
    stored, paths = config.model_dump(mode="json"), [tmp_path / "whole", tmp_path / how]
    whole, folder = (RunFolder.create_or_open(path, stored, must_match=[]) for path in paths)
    assert train(config, whole).finished
    for interrupt_at in range(21, 62):

        def interrupt() -> bool:
            if run.steps < interrupt_at:  # noqa: B023 - called in this iteration only
                return False
            if how == "killed":
                raise Killed
            return True

        with suppress(Killed), open_run(config, folder, stop=interrupt) as run:
            run.run()
        assert run.steps == interrupt_at
    assert train(config, folder).finished
    assert remains(folder.path) == remains(whole.path)
