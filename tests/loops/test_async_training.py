"""A run with workers: its stops, rows, checkpoints and ends; the workers themselves are stubs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loops.stub_worker import ROLLOUT_STEPS, program
from noisynet.agents import NonFiniteLoss
from noisynet.config import ActorCriticConfig, build_config
from noisynet.loops import ActorTraining, Health, WorkersFailed, make_actor_training
from noisynet.loops.async_actors import SCHEMA, identity
from noisynet.loops.handover import Report
from noisynet.runs import (
    Checkpoint,
    CheckpointMismatch,
    RunDamaged,
    RunFolder,
    StorageError,
    load_newest,
    read_metrics,
    save_checkpoint,
)


class Notes:
    """An observer that keeps everything."""

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
    """A run folder, and runs in it with stubs for workers."""

    def __init__(self, path: Path) -> None:
        self.path, self.notes = path, Notes()

    @contextmanager
    def training(
        self,
        config: ActorCriticConfig,
        stop: Callable[[], bool] = lambda: False,
        **told: Any,
    ) -> Iterator[ActorTraining]:
        self.notes = Notes()
        stored = config.model_dump(mode="json")
        self.folder = RunFolder.create_or_open(self.path, stored, must_match=[])
        with make_actor_training(
            config, self.folder, "cpu", [self.notes], stop, patience_seconds=0.6
        ) as training:
            training.program = program(**told)
            yield training

    def newest(self, config: ActorCriticConfig) -> Checkpoint:
        with make_actor_training(config, self.folder, "cpu", [], lambda: False) as training:
            expected = identity(config, training.spec)
        checkpoint, skipped = load_newest(
            self.folder.checkpoints_path, schema=SCHEMA, identity=expected, repair=False
        )
        assert checkpoint is not None
        assert skipped == []
        return checkpoint

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in read_metrics(self.folder.metrics_path) if row["kind"] == kind]

    def status(self) -> dict[str, Any]:
        status = self.folder.read_status()
        assert status is not None
        return status


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "run")


# --- stops ----------------------------------------------------------------------------------------


def test_a_run_evaluates_and_checkpoints_at_its_stops_and_meets_its_budget(bed: Bed) -> None:
    config = configure(3)
    with bed.training(config) as training:
        stops = list[int]()
        checkpoint = training.checkpoint

        def note_and_checkpoint() -> None:
            stops.append(training.steps)
            checkpoint()

        training.checkpoint = note_and_checkpoint  # type: ignore[method-assign]
        outcome = training.run()
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


def test_a_finished_run_starts_no_worker_when_it_is_asked_again(bed: Bed) -> None:
    config = configure(1)
    with bed.training(config) as training:
        assert training.run().finished
    before = bed.folder.metrics_path.read_bytes()
    with bed.training(config, fault="raise at start") as training:
        outcome = training.run()
        assert training.supervisor is None
    assert outcome.finished
    assert bed.folder.metrics_path.read_bytes() == before


def test_a_longer_budget_is_played_from_where_the_run_ended(bed: Bed) -> None:
    with bed.training(configure(1)) as training:
        ended = training.run()
    with bed.training(configure(1, frames=1000)) as training:
        outcome = training.run()
    assert outcome.finished
    assert outcome.frames == 1000
    assert f"continuing from frame {ended.frames:,}" in bed.notes.messages
    played = bed.newest(configure(1, frames=1000)).state["workers"][0]["state"]["played"]
    assert played * ROLLOUT_STEPS == 1000


def test_somebody_who_says_stop_finds_the_run_saved(bed: Bed) -> None:
    config = configure(2, frames=10**6)
    with bed.training(config, stop=lambda: training.steps > 330) as training:
        outcome = training.run()
    assert not outcome.finished
    assert outcome.frames > 330
    assert bed.newest(config).step == outcome.frames
    assert bed.status()["state"] == "interrupted"
    with bed.training(config, stop=lambda: training.steps > outcome.frames + 100) as training:
        assert training.steps == outcome.frames
        again = training.run()
    assert again.frames > outcome.frames + 100
    said = next(message for message in bed.notes.messages if "continuing" in message)
    assert f"continuing from frame {outcome.frames:,} with weights, statistics, counters" in said
    assert "2 workers, which are asynchronous: this is not bit for bit what" in said


def test_a_stop_during_an_evaluation_leaves_the_evaluation_to_the_next_start(bed: Bed) -> None:
    config = configure(1)
    asked = iter(range(10**9))

    def stop() -> bool:
        return training.steps >= 300 and next(asked) > 25  # within the second mode

    with bed.training(config, stop) as training:
        assert not training.run().finished
    assert bed.rows("evaluation") == []
    assert bed.newest(config).state["evaluations"] == 0
    with bed.training(config) as training:
        assert training.run().finished
    assert [row["frames"] for row in bed.rows("evaluation")] == [300, 300, 600, 600]


def test_traces_of_an_evaluation_that_was_not_logged_are_dropped(bed: Bed) -> None:
    """Several workers would come to it again at another frame."""
    config = configure(2, frames=10**6)
    with bed.training(config, stop=lambda: training.steps > 330) as training:
        training.run()
    traces = bed.folder.traces_path
    kept = sorted(path.name for path in traces.iterdir())
    frames, _, rest = kept[0].partition("-")
    shutil.copy(traces / kept[0], traces / f"{int(frames) + 20:0{len(frames)}}-{rest}")
    written = len(list(traces.iterdir()))
    with bed.training(config):
        assert sorted(path.name for path in traces.iterdir()) == kept
    assert written == len(kept) + 1


# --- rows -----------------------------------------------------------------------------------------


def test_rows_have_the_keys_of_the_value_agents_and_those_of_workers(bed: Bed) -> None:
    with bed.training(configure(1)) as training:
        training.run()
    rows = bed.rows("train")
    assert [row["steps"] for row in rows] == [100, 200, 300, 400, 500, 600]
    assert rows == bed.notes.rows
    assert list(rows[0]) == [
        *("kind", "frames", "steps", "updates", "episodes", "score_last", "score_mean_100"),
        *("loss", "sigma", "dropped_updates", "worker_deaths"),
    ]
    assert rows[0]["loss"] == 0.5
    assert rows[-1]["updates"] == 600 // ROLLOUT_STEPS
    assert rows[-1]["worker_deaths"] == rows[-1]["dropped_updates"] == 0
    episodes = bed.rows("episode")
    assert len(episodes) == rows[-1]["episodes"] == 600 // ROLLOUT_STEPS // 3
    keys = ("frames", "env", "episode", "score", "steps")
    assert [episodes[0][key] for key in keys] == [15, 0, 3, 1.0, ROLLOUT_STEPS]


def test_a_run_of_one_worker_writes_the_same_rows_however_often_it_is_stopped(
    bed: Bed, tmp_path: Path
) -> None:
    with bed.training(configure(1)) as training:
        training.run()
    expected = bed.folder.metrics_path.read_bytes()
    other, stops = Bed(tmp_path / "other"), [120, 250, 310, 480, 10**9]
    for steps in stops:
        with other.training(configure(1), stop=lambda: training.steps > steps) as training:  # noqa: B023
            training.run()
    assert other.folder.metrics_path.read_bytes() == expected


def test_observers_are_told_how_the_workers_are(bed: Bed) -> None:
    def phases() -> set[str]:
        return {worker.phase.value for workers in bed.notes.workers for worker in workers}

    with bed.training(configure(2, frames=10**6), stop=lambda: "running" in phases()) as run:
        run.run()
    assert all(len(workers) == 2 for workers in bed.notes.workers)
    assert {"starting", "running"} <= phases()


# --- deaths ---------------------------------------------------------------------------------------


def test_a_death_is_counted_in_the_metrics_told_and_survived(bed: Bed) -> None:
    config = configure(2, frames=2000)
    with bed.training(config, fault="raise", worker=1, until=2, after=4) as training:
        assert training.run().finished
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


def test_what_a_killed_worker_could_not_report_is_counted_all_the_same(bed: Bed) -> None:
    config = configure(1)
    with bed.training(config, fault="kill", until=3, after=3) as training:
        assert training.run().frames == 600
    assert bed.newest(config).state["workers"][0]["counters"]["steps"] == 600


def test_five_deaths_in_a_row_save_the_run_and_end_it_with_a_diagnosis(bed: Bed) -> None:
    config = configure(2, frames=10**6)
    with (
        bed.training(config, fault="raise", worker=1) as training,
        pytest.raises(WorkersFailed) as failed,
    ):
        training.run()
    said = str(failed.value)
    assert "worker 1 died 5 times in a row without an update in between" in said
    assert "exit code 1: ValueError: the environment; is out of order; see " in said
    assert "the same command continues it" in said
    newest = bed.newest(config)
    assert f"saved at frame {newest.step:,}" in said
    assert newest.step > 0
    assert newest.state["workers"][0]["state"]["played"] * ROLLOUT_STEPS == newest.step
    assert newest.state["workers"][1]["state"] is None
    assert bed.status()["state"] == "failed"
    assert bed.status()["reason"] == said
    with bed.training(config, stop=lambda: bool(training.crew.updates > 0)) as training:
        training.run()  # whose cause was put right
    assert training.crew.members[1].incarnation == 5


def test_a_hung_worker_is_replaced(bed: Bed) -> None:
    config = configure(2, frames=3000)
    with bed.training(config, fault="sleep", worker=0, until=1, after=3) as training:
        assert training.run().finished
    assert [row["how"] for row in bed.rows("death")] == ["no heartbeat for 0.6 s, so it was killed"]


def test_a_worker_that_dies_during_an_evaluation_is_started_again_meanwhile(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(1, "evaluation.frames=200")
    monkeypatch.setattr("noisynet.loops.async_actors._HEALTH_SECONDS", 0.0)
    with bed.training(config) as training:
        evaluate = training.journal.evaluate

        def kill_then_evaluate(steps: int, stop: Callable[[], bool]) -> None:
            assert training.supervisor is not None
            training.supervisor.members[0].process.kill()
            training.supervisor.members[0].process.wait()
            evaluate(steps, stop)
            assert training.supervisor.members[0].deaths >= 1

        training.journal.evaluate = kill_then_evaluate  # type: ignore[method-assign]
        assert training.run().finished
    state = bed.newest(config).state["workers"][0]
    assert state["incarnation"] == 0  # nothing was lost
    assert state["deaths"] == 2
    assert state["state"]["played"] * ROLLOUT_STEPS == 600


# --- gradients that are not finite ----------------------------------------------------------------


def test_updates_dropped_one_by_one_are_counted(bed: Bed) -> None:
    with bed.training(configure(2)) as training:
        for worker, (updates, dropped) in enumerate([(96, 4), (97, 3)]):
            for number in range(100):
                bad = number % 2 == 0 and number < 2 * dropped
                steps = (number + 1) * ROLLOUT_STEPS
                name, loss = ("'x'", np.nan) if bad else (None, 1.0)
                counts = (steps, updates, dropped)
                training._note(worker, Report(*counts, name, {"loss": float(loss)}))
        assert training.crew.dropped == 7
        assert training.crew.updates == 193
    assert bed.rows("train")[-1]["dropped_updates"] == 7
    assert bed.rows("train")[-1]["loss"] == 1.0  # what was dropped counts for nothing


def test_five_dropped_in_a_row_of_one_worker_end_the_run_and_keep_the_last_checkpoint(
    bed: Bed,
) -> None:
    config = configure(2, frames=10**6)
    with (
        bed.training(config, fault="nan", worker=1, after=60) as training,
        pytest.raises(NonFiniteLoss) as failed,
    ):
        training.run()
    said = str(failed.value)
    assert "expected a finite gradient, got 5 in a row of worker 1" in said
    assert "first in the gradient of 'policy.weight'" in said
    newest = bed.newest(config)
    assert f"the last checkpoint, at frame {newest.step:,}, is kept" in said
    assert bed.status()["state"] == "failed"


@pytest.mark.parametrize("what", ["parameters", "squares"])
def test_a_checkpoint_is_never_written_of_weights_that_are_not_finite(bed: Bed, what: str) -> None:
    config = configure(1)
    with bed.training(config) as training:
        training.checkpoint()
        getattr(training.crew.shared, what)[:] = np.inf
        name = "squares" if what == "squares" else "agent.online."
        with pytest.raises(NonFiniteLoss, match=f"first in '{name}"):
            training.checkpoint()
    assert np.isfinite(bed.newest(config).tensors["squares"].numpy()).all()


# --- disks that refuse ----------------------------------------------------------------------------


def test_one_refused_checkpoint_is_borne_and_a_second_in_a_row_ends_the_run(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, refusals = configure(1), list[int]()

    def save(folder: Path, checkpoint: Checkpoint, **keywords: Any) -> Any:
        if checkpoint.step in refused:
            refusals.append(checkpoint.step)
            raise StorageError("the disk is full")
        return save_checkpoint(folder, checkpoint, **keywords)

    monkeypatch.setattr("noisynet.loops.async_actors.save_checkpoint", save)
    for refused, borne in (({200}, True), ({600}, False), ({200, 300}, False)):
        shutil.rmtree(bed.path, ignore_errors=True)
        refusals.clear()
        with bed.training(config) as training:
            if borne:
                assert training.run().finished
                assert any("the checkpoint before is kept" in m for m in bed.notes.messages)
                assert refusals == [200]
            else:
                with pytest.raises(StorageError, match="the disk is full"):
                    training.run()
                assert len(refusals) == 2
                assert bed.status()["state"] == "failed"
        assert bed.newest(config).step not in refused  # a run never ends well without its last


# --- folders that are not right -------------------------------------------------------------------


def test_a_run_is_not_continued_with_another_number_of_workers(bed: Bed) -> None:
    with bed.training(configure(2)) as training:
        training.run()
    with pytest.raises(CheckpointMismatch, match="workers"):
        make_actor_training(configure(3), bed.folder, "cpu", [], lambda: False)


def test_a_run_whose_checkpoints_were_removed_never_starts_afresh(bed: Bed) -> None:
    with bed.training(configure(1)) as training:
        training.run()
    for generation in bed.folder.checkpoints_path.iterdir():
        generation.rename(bed.path.parent / generation.name)
    with pytest.raises(RunDamaged, match="has metrics but no checkpoints"):
        make_actor_training(configure(1), bed.folder, "cpu", [], lambda: False)


def test_a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_is_used(bed: Bed) -> None:
    config = configure(1)
    with bed.training(config) as training:
        training.run()
    expected = bed.folder.metrics_path.read_bytes()
    before, newest = sorted(bed.folder.checkpoints_path.iterdir())
    (newest / "state.json").write_text(json.dumps({}))
    with bed.training(config) as training:
        assert any("is set aside as" in message for message in bed.notes.messages)
        assert training.steps == int(before.name)
        assert training.run().finished
    assert bed.folder.metrics_path.read_bytes() == expected


def test_what_a_new_run_cannot_be_made_of_leaves_no_folder(tmp_path: Path) -> None:
    config = configure(1, 'environment_options={"bogus": 1}')
    path = tmp_path / "runs" / "run"
    folder = RunFolder.create_or_open(path, config.model_dump(mode="json"), must_match=[])
    with folder.lock(), pytest.raises(ValueError, match="bogus"):
        make_actor_training(config, folder, "cpu", [], lambda: False)
    assert not path.exists()
