"""What a job makes of the exit of its process."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from noisynet.experiments import RunSpec, build_plan
from noisynet.experiments.job import MAX_RETRIES, Job, JobState, KillCounter, ProcessOptions
from noisynet.runs import EXIT_LOCKED, RunFolder


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    plan = build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4", seeds=1)
    return plan.specs[0]


def run_job(spec: RunSpec, *program: str) -> tuple[Job, list[str]]:
    """A job whose process has exited, and its log."""
    log: list[str] = []
    job = Job(spec, ProcessOptions(program=program), lambda _, message: log.append(message))
    job.start(1, 1)
    while job.state is JobState.RUNNING:
        job.poll()
    return job, log


def test_a_run_without_progress_is_retried_and_progress_resets_the_count() -> None:
    kills = KillCounter()
    frames = [0, 0, 0, 10, 10, 10, 10]
    assert [kills.exceeds_retries(frame) for frame in frames] == [False] * 6 + [True]
    assert kills.in_a_row == MAX_RETRIES + 1


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; sys.exit(3)", "the process exited with code 3 and no error message"),
        ("raise ValueError('no such game')", "ValueError: no such game"),
        (
            "import sys; sys.stderr.write('hello\\nnoisynet: one\\nnoisynet: two\\n'); sys.exit(2)",
            "one; two",
        ),
    ],
)
def test_the_reason_of_a_failure_is_the_error_message_of_the_run(
    spec: RunSpec, program: str, reason: str
) -> None:
    job, log = run_job(spec, sys.executable, "-c", program)
    assert (job.state, job.reason) == (JobState.FAILED, reason)
    assert log == ["started", f"failed: {reason}"]


def test_a_missing_program_fails_the_job(spec: RunSpec) -> None:
    job, log = run_job(spec, "/no/such/program")
    assert job.state is JobState.FAILED
    assert "cannot start the process" in log[-1]


@pytest.mark.parametrize(
    ("code", "state"), [(EXIT_LOCKED, JobState.LOCKED), (1, JobState.FAILED), (2, JobState.FAILED)]
)
def test_the_exit_code_alone_tells_that_a_run_is_locked(
    spec: RunSpec, code: int, state: JobState
) -> None:
    """A process may lose the race for the lock after the job has read the folder."""
    message = "is being written by process 7; is locked by another process"
    program = f"import sys; sys.stderr.write({message!r}); sys.exit({code})"
    assert run_job(spec, sys.executable, "-c", program)[0].state is state


def test_a_locked_run_is_not_started_and_is_polled_until_it_is_released(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noisynet.experiments.job.LOCK_POLL_SECONDS", 0.0)
    stored = spec.config.model_dump(mode="json")
    folder = RunFolder.create_or_open(spec.folder, stored, must_match=["agent"])
    with folder.lock():
        job, log = run_job(spec, "/no/such/program")
        job.poll()
        assert job.state.value == "locked"
        assert [message.split(" (")[0] for message in log] == [
            f"locked by process {os.getpid()} on {socket.gethostname()}"
        ]
    job.poll()
    assert (job.state, job.started) == (JobState.WAITING, True)


def test_the_command_of_a_process(spec: RunSpec) -> None:
    options = ProcessOptions("cuda:1", tensorboard=False, program=("program",))
    assert options.command(spec) == [
        *("program", str(os.getpid()), *spec.arguments()),
        *("--device", "cuda:1", "--no-tensorboard"),
    ]
