"""Runs with workers: stops, rows, checkpoints and failures; the workers are stubs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loops.stub_worker import ROLLOUT_STEPS, program
from noisynet.agents import NonFiniteLoss
from noisynet.config import ActorCriticConfig, build_config
from noisynet.evaluation import evaluation_modes
from noisynet.loops import Health, Observer, Run, WorkersFailed, open_run
from noisynet.loops.async_actors import AsyncTrainer, Progress
from noisynet.loops.messages import RolloutReport, decode_snapshot, encode_snapshot
from noisynet.loops.run import checkpoint_identity
from noisynet.loops.supervisor import Death, Supervisor
from noisynet.runs import (
    Checkpoint,
    CheckpointMismatch,
    RunFolder,
    load_newest,
    read_metrics,
)


class Notes(Observer):
    """An observer that records everything."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.scores: list[dict[str, Any]] = []
        self.workers: list[list[Health]] = []

    def started(self, frames: int) -> None:
        self.messages.append(f"started at {frames}")

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        self.rows.append(row)

    def evaluated(self, row: dict[str, Any]) -> None:
        self.scores.append(row)

    def noted(self, message: str) -> None:
        self.messages.append(message)

    def watched(self, workers: Any) -> None:
        self.workers.append(list(workers))


def configure(workers: int, *settings: str, frames: int = 600) -> ActorCriticConfig:
    fixed = [
        *("envs_per_worker=1", "learning.rollout_steps=5"),
        *(f"workers={workers}", "network.hidden=[4]", "log_period_steps=100"),
        *("checkpoint_period_frames=200", "evaluation.period_frames=300", "evaluation.frames=20"),
    ]
    agent = "noisynet-a3c-factorised"
    config = build_config(agent, "deep_sea/4", frames=frames, settings=[*fixed, *settings])
    assert isinstance(config, ActorCriticConfig)
    return config


class Bed:
    """A run folder, and runs in it whose workers are stubs."""

    def __init__(self, path: Path) -> None:
        self.path, self.notes = path, Notes()

    @contextmanager
    def run(
        self,
        config: ActorCriticConfig,
        stop: Callable[[], bool] = lambda: False,
        **options: Any,
    ) -> Iterator[Run]:
        self.notes = Notes()
        stored = config.model_dump(mode="json")
        self.folder = RunFolder.create_or_open(self.path, stored, must_match=[])
        with open_run(
            config, self.folder, observers=[self.notes], stop=stop, patience_seconds=0.6
        ) as run:
            trainer_of(run).program = program(**options)
            yield run

    def newest(self, config: ActorCriticConfig) -> Checkpoint:
        with open_run(config, self.folder) as run:
            expected = checkpoint_identity(config, run.spec)
        checkpoint, skipped = load_newest(self.folder.checkpoints_path, **expected, repair=False)
        assert checkpoint is not None
        assert skipped == []
        return checkpoint

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in read_metrics(self.folder.metrics_path) if row["kind"] == kind]

    def status(self) -> dict[str, Any]:
        status = self.folder.read_status()
        assert status is not None
        return status


def trainer_of(run: Run) -> AsyncTrainer:
    assert isinstance(run.trainer, AsyncTrainer)
    return run.trainer


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "run")


# --- stops ----------------------------------------------------------------------------------------


def test_a_run_evaluates_and_saves_at_its_stops_and_meets_its_budget(bed: Bed) -> None:
    config = configure(3)
    with bed.run(config) as run:
        stops = list[int]()
        checkpoint = run.checkpoint

        def record_and_checkpoint() -> None:
            stops.append(run.steps)
            checkpoint()

        run.checkpoint = record_and_checkpoint  # type: ignore[method-assign]
        outcome = run.run()
    reached = 3 * ROLLOUT_STEPS
    assert outcome.finished
    assert 600 <= outcome.frames < 600 + reached
    # Before the first step; checkpoint, evaluation, checkpoint, and evaluation at the end.
    for stop, due in zip(stops, [0, 200, 300, 400, 600], strict=True):
        assert due <= stop < due + reached
    scores = bed.rows("evaluation")
    assert [row["noise"] for row in scores] == ["on", "off"] * 2
    assert [row["frames"] for row in scores] == [stops[2]] * 2 + [stops[4]] * 2
    assert scores == bed.notes.scores
    assert outcome.score == scores[2]["score"]
    assert len(list(bed.folder.traces_path.iterdir())) == 4
    assert bed.status()["state"] == "finished"
    assert bed.status()["frames"] == outcome.frames
    newest = bed.newest(config)
    assert newest.step == outcome.frames == stops[-1]
    played = [worker["state"]["played"] for worker in newest.state["workers"] if worker["state"]]
    counted = [worker["counters"] for worker in newest.state["workers"]]
    assert sum(counters["steps"] for counters in counted) == newest.step
    assert sum(played) * ROLLOUT_STEPS == newest.step


def test_a_finished_run_starts_no_worker_when_it_is_run_again(bed: Bed) -> None:
    config = configure(1)
    with bed.run(config) as run:
        assert run.run().finished
    before = bed.folder.metrics_path.read_bytes()
    with bed.run(config, fault="raise at start") as run:
        outcome = run.run()
        assert trainer_of(run).supervisor is None
    assert outcome.finished
    assert bed.folder.metrics_path.read_bytes() == before


def test_a_larger_budget_resumes_a_finished_run(bed: Bed) -> None:
    with bed.run(configure(1)) as run:
        ended = run.run()
    with bed.run(configure(1, frames=1000)) as run:
        outcome = run.run()
    assert outcome.finished
    assert outcome.frames == 1000
    assert f"resuming from frame {ended.frames:,}" in bed.notes.messages
    played = bed.newest(configure(1, frames=1000)).state["workers"][0]["state"]["played"]
    assert played * ROLLOUT_STEPS == 1000


def test_a_stopped_run_is_saved_and_resumed(bed: Bed) -> None:
    config = configure(2, frames=10**6)
    with bed.run(config, stop=lambda: run.steps > 330) as run:
        outcome = run.run()
    assert not outcome.finished
    assert outcome.frames > 330
    assert bed.newest(config).step == outcome.frames
    assert bed.status()["state"] == "interrupted"
    with bed.run(config, stop=lambda: run.steps > outcome.frames + 100) as run:
        assert run.steps == outcome.frames
        again = run.run()
    assert again.frames > outcome.frames + 100
    assert (
        f"resuming from frame {outcome.frames:,}; workers are asynchronous, so the result is not "
        "bit-identical to that of an uninterrupted run"
    ) in bed.notes.messages


def test_an_evaluation_that_is_interrupted_is_repeated_after_the_resume(bed: Bed) -> None:
    config = configure(1)
    asked = iter(range(10**9))

    def stop() -> bool:
        return run.steps >= 300 and next(asked) > 25  # in the second mode

    with bed.run(config, stop) as run:
        assert not run.run().finished
    assert bed.rows("evaluation") == []
    with bed.run(config) as run:
        assert run.run().finished
    assert [row["frames"] for row in bed.rows("evaluation")] == [300, 300, 600, 600]


def test_traces_of_an_evaluation_without_rows_are_removed(bed: Bed) -> None:
    """Several workers may reach the evaluation at another frame."""
    config = configure(2, frames=10**6)
    with bed.run(config, stop=lambda: run.steps > 330) as run:
        run.run()
    traces = bed.folder.traces_path
    kept = sorted(path.name for path in traces.iterdir())
    frames, _, rest = kept[0].partition("-")
    shutil.copy(traces / kept[0], traces / f"{int(frames) + 20:0{len(frames)}}-{rest}")
    written = len(list(traces.iterdir()))
    with bed.run(config):
        assert sorted(path.name for path in traces.iterdir()) == kept
    assert written == len(kept) + 1


# --- rows -----------------------------------------------------------------------------------------


def test_rows_have_the_keys_of_value_agents_and_those_of_workers(bed: Bed) -> None:
    with bed.run(configure(1)) as run:
        run.run()
    rows = bed.rows("train")
    assert [row["steps"] for row in rows] == [100, 200, 300, 400, 500, 600]
    assert rows == bed.notes.rows
    assert list(rows[0]) == [
        *("kind", "frames", "steps", "updates", "episodes", "score_last", "score_mean_100"),
        *("length_mean_100", "loss", "sigma", "dropped_updates", "worker_deaths"),
    ]
    assert rows[0]["loss"] == 0.5
    assert rows[-1]["updates"] == 600 // ROLLOUT_STEPS
    assert rows[-1]["worker_deaths"] == rows[-1]["dropped_updates"] == 0
    episodes = bed.rows("episode")
    assert len(episodes) == rows[-1]["episodes"] == 600 // ROLLOUT_STEPS // 3
    keys = ("frames", "env", "episode", "score", "steps")
    assert [episodes[0][key] for key in keys] == [15, 0, 3, 1.0, ROLLOUT_STEPS]


def test_a_run_with_one_worker_writes_the_same_rows_however_often_it_is_stopped(
    bed: Bed, tmp_path: Path
) -> None:
    with bed.run(configure(1)) as run:
        run.run()
    expected = bed.folder.metrics_path.read_bytes()
    other, stops = Bed(tmp_path / "other"), [120, 250, 310, 480, 10**9]
    for steps in stops:
        with other.run(configure(1), stop=lambda: run.steps > steps) as run:  # noqa: B023
            run.run()
    assert other.folder.metrics_path.read_bytes() == expected


def test_observers_receive_the_state_of_the_workers(bed: Bed) -> None:
    def phases() -> set[str]:
        return {worker.phase.value for workers in bed.notes.workers for worker in workers}

    with bed.run(configure(2, frames=10**6), stop=lambda: "running" in phases()) as run:
        run.run()
    assert all(len(workers) == 2 for workers in bed.notes.workers)
    assert {"starting", "running"} <= phases()


# --- deaths ---------------------------------------------------------------------------------------


def test_a_death_is_logged_and_the_worker_restarted(bed: Bed) -> None:
    config = configure(2, frames=2000)
    with bed.run(config, fault="raise", worker=1, until=2, after=4) as run:
        assert run.run().finished
    deaths = bed.rows("death")
    assert [row["worker"] for row in deaths] == [1, 1]
    assert {row["how"] for row in deaths} == {
        "exit code 1: ValueError: the environment; is out of order"
    }
    assert bed.rows("train")[-1]["worker_deaths"] == 2
    assert sum("worker 1 died (exit code 1: ValueError" in m for m in bed.notes.messages) == 2
    errors = (bed.path / "worker-errors.txt").read_text()
    assert errors.count("Traceback (most recent call last)") == 2
    workers = bed.newest(config).state["workers"]
    assert [worker["deaths"] for worker in workers] == [0, 2]
    assert [worker["incarnation"] for worker in workers] == [0, 2]


def test_steps_that_a_killed_worker_did_not_report_are_counted(bed: Bed) -> None:
    config = configure(1)
    with bed.run(config, fault="kill", until=3, after=3) as run:
        assert run.run().frames == 600
    assert bed.newest(config).state["workers"][0]["counters"]["steps"] == 600


def test_five_deaths_in_a_row_save_the_run_and_end_it_with_the_cause(bed: Bed) -> None:
    config = configure(2, frames=10**6)
    with (
        bed.run(config, fault="raise", worker=1) as run,
        pytest.raises(WorkersFailed) as failed,
    ):
        run.run()
    said = str(failed.value)
    assert "worker 1 died 5 times in a row without an update in between" in said
    assert "exit code 1: ValueError: the environment; is out of order; see " in said
    assert "fix the cause, then give the same command to resume" in said
    newest = bed.newest(config)
    assert f"saved at frame {newest.step:,}" in said
    assert newest.step > 0
    assert newest.state["workers"][0]["state"]["played"] * ROLLOUT_STEPS == newest.step
    assert newest.state["workers"][1]["state"] is None
    assert bed.status()["state"] == "failed"
    assert bed.status()["reason"] == said
    with bed.run(config, stop=lambda: run.trainer.updates > 0) as run:
        run.run()  # the cause is fixed
    assert trainer_of(run).handles[1].incarnation == 5


def test_a_hung_worker_is_restarted(bed: Bed) -> None:
    config = configure(2, frames=3000)
    with bed.run(config, fault="sleep", worker=0, until=1, after=3) as run:
        assert run.run().finished
    assert [row["how"] for row in bed.rows("death")] == ["no heartbeat for 0.6 s, killed"]


def test_a_worker_that_dies_during_an_evaluation_is_restarted_at_once(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(1, "evaluation.frames=200")
    monkeypatch.setattr("noisynet.loops.async_actors._HEALTH_SECONDS", 0.0)
    with bed.run(config) as run:
        supervised = list[Supervisor]()

        def kill_then_evaluate(*arguments: Any, **keywords: Any) -> Any:
            supervisor = trainer_of(run).supervisor
            assert supervisor is not None
            supervisor.handles[0].process.kill()
            supervisor.handles[0].process.wait()
            yield from evaluation_modes(*arguments, **keywords)
            assert supervisor.handles[0].deaths >= 1
            supervised.append(supervisor)

        monkeypatch.setattr("noisynet.loops.run.evaluation_modes", kill_then_evaluate)
        assert run.run().finished
    assert len(supervised) == 2
    state = bed.newest(config).state["workers"][0]
    assert state["incarnation"] == 0  # nothing was lost
    assert state["deaths"] == 2
    assert state["state"]["played"] * ROLLOUT_STEPS == 600


# --- gradients that are not finite ----------------------------------------------------------------


def test_single_dropped_updates_are_counted(bed: Bed) -> None:
    with bed.run(configure(2)) as run:
        for worker, (updates, dropped) in enumerate([(96, 4), (97, 3)]):
            for number in range(100):
                bad = number % 2 == 0 and number < 2 * dropped
                steps = (number + 1) * ROLLOUT_STEPS
                name, loss = ("'x'", np.nan) if bad else (None, 1.0)
                counts = (steps, updates, dropped)
                trainer_of(run)._on_report(
                    worker, RolloutReport(*counts, name, {"loss": float(loss)})
                )
        assert trainer_of(run).counts == {"dropped_updates": 7, "worker_deaths": 0}
        assert trainer_of(run).updates == 193
    assert bed.rows("train")[-1]["dropped_updates"] == 7
    assert bed.rows("train")[-1]["loss"] == 1.0  # dropped updates do not enter the mean


def test_five_consecutive_dropped_updates_end_the_run_and_keep_the_last_checkpoint(
    bed: Bed,
) -> None:
    config = configure(2, frames=10**6)
    with (
        bed.run(config, fault="nan", worker=1, after=60) as run,
        pytest.raises(NonFiniteLoss) as failed,
    ):
        run.run()
    said = str(failed.value)
    assert "expected a finite gradient, got 5 consecutive gradients of worker 1" in said
    assert "first in the gradient of 'policy.weight'" in said
    assert "the last checkpoint is kept" in said
    assert np.isfinite(bed.newest(config).tensors["squares"].numpy()).all()
    assert bed.status()["state"] == "failed"


@pytest.mark.parametrize("what", ["parameters", "squares"])
def test_weights_that_are_not_finite_are_never_saved(bed: Bed, what: str) -> None:
    config = configure(1)
    with bed.run(config) as run:
        run.checkpoint()
        getattr(trainer_of(run).shared, what)[:] = np.inf
        name = "squares" if what == "squares" else "agent.online."
        with pytest.raises(NonFiniteLoss, match=f"first in '{name}"):
            run.checkpoint()
    assert np.isfinite(bed.newest(config).tensors["squares"].numpy()).all()


# --- progress and snapshots -----------------------------------------------------------------------


def report(steps: int, updates: int, dropped: int, not_finite: str | None = None) -> RolloutReport:
    return RolloutReport(steps, updates, dropped, not_finite, {"loss": 0.5})


def test_totals_are_sums_over_the_workers(bed: Bed) -> None:
    with bed.run(configure(3)) as run:
        trainer = trainer_of(run)
        trainer._on_report(0, report(10, 2, 0))
        trainer._on_report(2, report(25, 4, 1, "'x'"))
        trainer.handles[1].deaths = 3
        assert (trainer.steps, trainer.updates) == (35, 6)
        assert trainer.counts == {"dropped_updates": 1, "worker_deaths": 3}


@pytest.mark.parametrize("square", [0.0, 1.0])
def test_mean_squares_begin_as_the_optimisers_setting_says(square: float, bed: Bed) -> None:
    with bed.run(configure(1, f"optimiser.initial_square={square}")) as run:
        assert (trainer_of(run).shared.squares == square).all()


def test_dropped_updates_are_counted_until_the_next_update(bed: Bed) -> None:
    in_a_row = []
    with bed.run(configure(1)) as run:
        for dropped, not_finite in ((1, "'x'"), (2, "'x'"), (2, None), (3, "'x'")):
            trainer_of(run)._on_report(0, report(5, 1, dropped, not_finite))
            in_a_row.append(trainer_of(run).progress[0].dropped_in_a_row)
    assert in_a_row == [1, 2, 0, 1]


def test_the_slot_of_a_dead_worker_has_what_it_did_not_report(bed: Bed) -> None:
    with bed.run(configure(2)) as run:
        trainer = trainer_of(run)
        trainer._on_report(1, report(5, 1, 0))
        trainer.shared.slots[1].count(5, dropped=False)
        trainer.shared.slots[1].count(7, dropped=False)
        trainer._on_death(Death(1, "killed", 1))
        assert trainer.progress == [Progress(), Progress(12, 2, 0, 0)]


@pytest.mark.parametrize("started", [True, False])
def test_a_restored_trainer_has_the_same_tensors_and_state(
    started: bool, bed: Bed, tmp_path: Path
) -> None:
    with bed.run(configure(2)) as run, Bed(tmp_path / "other").run(configure(2)) as other_run:
        trainer, other = trainer_of(run), trainer_of(other_run)
        trainer.shared.parameters[:] *= 2  # not as initialised; padding stays 0
        trainer.shared.squares[:] = np.arange(trainer.shared.squares.size) / 3
        if started:
            own = {"agent.stream.rollout": torch.arange(3, dtype=torch.uint8)}
            trainer.handles[1].snapshot = encode_snapshot(own, {"agent": {"drawn": True}})
            trainer.handles[0].incarnation, trainer.handles[0].deaths = 2, 3
            trainer.shared.slots[0].count(5, dropped=True)
            trainer.shared.slots[0].begin_episode(9)
            trainer._on_report(0, report(5, 0, 1, "'x'"))
        tensors, state = trainer.snapshot()
        other.restore(tensors, state)
        found, found_state = other.snapshot()
        assert found_state == state
        assert found.keys() == tensors.keys()
        assert all(found[name].equal(tensor) for name, tensor in tensors.items())
        assert np.array_equal(other.shared.parameters, trainer.shared.parameters)
        assert other.agent.parameters.tolist() == trainer.shared.parameters.tolist()
        assert other.progress == trainer.progress
        if started:
            assert other.handles[1].snapshot is not None
            assert decode_snapshot(other.handles[1].snapshot)[1] == {"agent": {"drawn": True}}


# --- checkpoints --------------------------------------------------------------------------------


def test_a_run_is_not_resumed_with_another_number_of_workers(bed: Bed) -> None:
    with bed.run(configure(2)) as run:
        run.run()
    with pytest.raises(CheckpointMismatch, match="workers"), open_run(configure(3), bed.folder):
        pass


def test_a_damaged_newest_checkpoint_is_renamed_and_the_previous_one_used(bed: Bed) -> None:
    config = configure(1)
    with bed.run(config) as run:
        run.run()
    expected = bed.folder.metrics_path.read_bytes()
    before, newest = sorted(bed.folder.checkpoints_path.iterdir())
    newest.write_bytes(b"{}")
    with bed.run(config) as run:
        assert any("is damaged and was renamed to" in message for message in bed.notes.messages)
        assert run.steps == int(before.stem)
        assert run.run().finished
    assert bed.folder.metrics_path.read_bytes() == expected
