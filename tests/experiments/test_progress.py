"""What a run's folder says of it: whether it is done, whose it is, and whether it can take it."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from noisynet.experiments import RunSpec, build_plan
from noisynet.experiments.progress import State, conflict, look, tail_rows
from noisynet.runs import RunFolder


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4").specs[0]


def folder_of(spec: RunSpec) -> RunFolder:
    stored = spec.config.model_dump(mode="json")
    return RunFolder.create_or_open(spec.folder, stored, must_match=["agent"])


def sign(spec: RunSpec, host: str, since: str) -> None:
    """A signature of this process, which does not hold the lock."""
    signature = {"pid": os.getpid(), "host": host, "since": since}
    (spec.folder / "run.owner").write_text(json.dumps(signature))


def test_a_run_without_folder_is_new(spec: RunSpec, tmp_path: Path) -> None:
    assert look(spec).state is State.NEW
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("state", "frames", "expected"),
    [
        ("finished", 50_000, State.DONE),
        ("finished", 50_003, State.DONE),  # several environments at once may overshoot
        ("finished", 40_000, State.HALF_DONE),
        ("interrupted", 50_000, State.HALF_DONE),
        ("failed", 20_000, State.HALF_DONE),
        ("running", 20_000, State.HALF_DONE),  # nobody holds the lock: it was killed
    ],
)
def test_a_run_is_done_if_its_folder_says_that_its_budget_is_spent(
    spec: RunSpec, state: str, frames: int, expected: State
) -> None:
    folder_of(spec).write_status(state, frames=frames, score=0.5)  # type: ignore[arg-type]
    found = look(spec)
    assert (found.state, found.frames, found.score) == (expected, frames, 0.5)


def test_a_finished_run_of_another_configuration_is_not_done(spec: RunSpec) -> None:
    folder_of(spec).write_status("finished", frames=50_000)
    other = replace(spec, config=spec.config.model_copy(update={"log_period_steps": 7}))
    assert look(other).state is State.HALF_DONE
    assert conflict(other) == "log_period_steps: the folder has 500, the plan 7"


def test_a_longer_budget_is_to_be_gone_on_with_and_a_shorter_one_refused(spec: RunSpec) -> None:
    folder_of(spec).write_status("finished", frames=50_000)
    longer = replace(spec, config=spec.config.model_copy(update={"frames": 60_000}))
    shorter = replace(spec, config=spec.config.model_copy(update={"frames": 40_000}))
    assert (look(longer).state, conflict(longer)) == (State.HALF_DONE, None)
    assert conflict(shorter) == (
        "frames: the folder has 50,000, which is more than the plan's 40,000"
    )


def test_a_run_whose_lock_is_held_is_taken(spec: RunSpec) -> None:
    with folder_of(spec).lock():
        found = look(spec)
    assert found.state is State.TAKEN
    assert found.owner is not None
    assert found.owner.pid == os.getpid()


@pytest.mark.parametrize("host", [socket.gethostname(), "a-machine-that-is-gone"])
def test_a_signature_that_nobody_holds_the_lock_for_is_not_believed(
    spec: RunSpec, host: str
) -> None:
    """After a machine was started again, a number may be another process's."""
    folder_of(spec)
    sign(spec, host, "2001-01-01T00:00:00+00:00")
    assert look(spec, ask_lock=False).state is State.TAKEN
    assert look(spec).state is State.HALF_DONE


def test_a_signature_of_another_machine_is_believed_while_the_lock_is_held(spec: RunSpec) -> None:
    with folder_of(spec).lock():
        sign(spec, "another-machine", "2001-01-01T00:00:00+00:00")
        assert look(spec).state is State.TAKEN


@pytest.mark.parametrize("file", ["config.json", "status.json"])
def test_a_damaged_folder_is_said_to_be_so(spec: RunSpec, file: str) -> None:
    folder_of(spec).write_status("finished", frames=50_000)
    (spec.folder / file).write_text("{")
    assert look(spec).state is State.UNREADABLE
    assert "is not JSON" in look(spec).reason


def test_the_last_rows_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "timing.jsonl"
    lines = [json.dumps({"frames": frames}) for frames in range(10_000)]
    path.write_text("\n".join([*lines, '{"frames": 1']))
    rows = [row["frames"] for row in tail_rows(path)]
    assert rows == list(range(rows[0], 10_000))
    assert 1000 < len(rows) < 9000
    assert tail_rows(tmp_path / "missing.jsonl") == []
