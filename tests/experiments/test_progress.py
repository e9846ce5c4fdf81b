"""The progress of a run, its lock, and conflicts with its folder."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from noisynet.experiments import RunSpec, build_plan
from noisynet.experiments.progress import (
    ProgressState,
    config_conflict,
    read_last_rows,
    read_progress,
)
from noisynet.runs import RunFolder


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4").specs[0]


def folder_of(spec: RunSpec) -> RunFolder:
    stored = spec.config.model_dump(mode="json")
    return RunFolder.create_or_open(spec.folder, stored, must_match=["agent"])


def sign(spec: RunSpec, host: str, since: str) -> None:
    """Write an owner file for this process, which does not hold the lock."""
    signature = {"pid": os.getpid(), "host": host, "since": since}
    (spec.folder / "run.owner").write_text(json.dumps(signature))


def test_a_run_without_folder_is_new(spec: RunSpec, tmp_path: Path) -> None:
    assert read_progress(spec).state is ProgressState.NEW
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("state", "frames", "expected"),
    [
        ("finished", 50_000, ProgressState.DONE),
        ("finished", 50_003, ProgressState.DONE),  # several environments at once may overshoot
        ("finished", 40_000, ProgressState.UNFINISHED),
        ("interrupted", 50_000, ProgressState.UNFINISHED),
        ("failed", 20_000, ProgressState.UNFINISHED),
        ("running", 20_000, ProgressState.UNFINISHED),  # killed: no process holds the lock
    ],
)
def test_a_run_is_done_if_its_status_is_finished_at_its_budget(
    spec: RunSpec, state: str, frames: int, expected: ProgressState
) -> None:
    folder_of(spec).write_status(state, frames=frames, score=0.5)  # type: ignore[arg-type]
    found = read_progress(spec)
    assert (found.state, found.frames, found.score) == (expected, frames, 0.5)


def test_a_finished_run_of_another_configuration_is_not_done(spec: RunSpec) -> None:
    folder_of(spec).write_status("finished", frames=50_000)
    other = replace(spec, config=spec.config.model_copy(update={"log_period_steps": 7}))
    assert read_progress(other).state is ProgressState.UNFINISHED
    assert config_conflict(other) == "log_period_steps: the folder has 500, the plan 7"


def test_a_longer_budget_resumes_and_a_shorter_one_is_a_conflict(spec: RunSpec) -> None:
    folder_of(spec).write_status("finished", frames=50_000)
    longer = replace(spec, config=spec.config.model_copy(update={"frames": 60_000}))
    shorter = replace(spec, config=spec.config.model_copy(update={"frames": 40_000}))
    assert (read_progress(longer).state, config_conflict(longer)) == (
        ProgressState.UNFINISHED,
        None,
    )
    assert config_conflict(shorter) == (
        "frames: the folder has 50,000, more than the plan's 40,000"
    )


def test_a_run_whose_lock_is_held_is_locked(spec: RunSpec) -> None:
    with folder_of(spec).lock():
        found = read_progress(spec)
    assert found.state is ProgressState.LOCKED
    assert found.owner is not None
    assert found.owner.pid == os.getpid()


@pytest.mark.parametrize("host", [socket.gethostname(), "another-machine"])
def test_an_owner_file_without_a_held_lock_is_ignored(spec: RunSpec, host: str) -> None:
    """After a reboot the pid may be another process's."""
    folder_of(spec)
    sign(spec, host, "2001-01-01T00:00:00+00:00")
    assert read_progress(spec).state is ProgressState.UNFINISHED


def test_an_owner_on_another_machine_counts_while_the_lock_is_held(spec: RunSpec) -> None:
    with folder_of(spec).lock():
        sign(spec, "another-machine", "2001-01-01T00:00:00+00:00")
        assert read_progress(spec).state is ProgressState.LOCKED


@pytest.mark.parametrize("file", ["config.json", "status.json"])
def test_a_damaged_folder_is_unreadable(spec: RunSpec, file: str) -> None:
    folder_of(spec).write_status("finished", frames=50_000)
    (spec.folder / file).write_text("{")
    assert read_progress(spec).state is ProgressState.UNREADABLE
    assert "is not JSON" in read_progress(spec).reason


def test_the_last_rows_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "timing.jsonl"
    lines = [json.dumps({"frames": frames}) for frames in range(10_000)]
    path.write_text("\n".join([*lines, '{"frames": 1']))
    rows = [row["frames"] for row in read_last_rows(path)]
    assert rows == list(range(rows[0], 10_000))
    assert 1000 < len(rows) < 9000
    assert read_last_rows(tmp_path / "missing.jsonl") == []
