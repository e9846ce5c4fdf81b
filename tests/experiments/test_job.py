"""What a job makes of the exit of its process."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from noisynet.experiments import RunSpec, build_plan
from noisynet.experiments.job import MAX_RETRIES, Job, JobState
from noisynet.experiments.process import Exit, LocalProcess, ProcessOptions
from noisynet.experiments.progress import Progress, ProgressState
from noisynet.runs import EXIT_LOCKED, RunFolder


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    plan = build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4", seeds=1)
    return plan.specs[0]


def run_job(spec: RunSpec, *program: str) -> tuple[Job, list[str]]:
    """A job whose process has exited, and its log."""
    log: list[str] = []
    options = ProcessOptions(program=program)
    job = Job(
        spec,
        lambda run, _, threads: LocalProcess(run, options, threads),
        lambda _, message: log.append(message),
    )
    job.start(1, 1)
    while job.state is JobState.RUNNING:
        job.poll()
    return job, log


class Killed:
    """A process that was killed when the newest checkpoint was at this frame."""

    def __init__(self, frames: int) -> None:
        self.frames = frames

    def has_started(self) -> bool:
        return True

    def poll(self) -> Exit:
        progress = Progress(ProgressState.UNFINISHED, self.frames)
        return Exit(-signal.SIGKILL, progress, "SIGKILL")

    def stop(self, *, kill: bool) -> None: ...


def test_a_run_without_progress_is_retried_and_progress_resets_the_count(spec: RunSpec) -> None:
    frames = [0, 0, 0, 10, 10, 10, 10]
    left, states = iter(frames), []
    job = Job(spec, lambda *_: Killed(next(left)), lambda *_: None)
    for _ in frames:
        job.start(1, 1)
        states.append(job.state)
    assert states == [JobState.WAITING] * 6 + [JobState.FAILED]
    assert job.reason == "killed by SIGKILL, 4 times in a row without progress"
    assert MAX_RETRIES == 3


def test_a_finished_run_that_another_sweep_has_just_opened_is_waited_for(spec: RunSpec) -> None:
    class Finished(Killed):
        def poll(self) -> Exit:
            return Exit(0, Progress(ProgressState.LOCKED, self.frames))

    log: list[str] = []
    job = Job(spec, lambda *_: Finished(400), lambda _, message: log.append(message))
    job.start(1, 1)
    assert (job.state, log) == (
        JobState.LOCKED,
        ["started", "locked by another process; waiting for it"],
    )


def test_a_process_that_a_cluster_has_not_started_is_queued(spec: RunSpec) -> None:
    class Queued(Killed):
        begun = ended = False

        def has_started(self) -> bool:
            return self.begun

        def poll(self) -> Exit | None:  # type: ignore[override]
            return super().poll() if self.ended else None

    process, log = Queued(5), []
    job = Job(spec, lambda *_: process, lambda _, message: log.append(message))
    job.start(1, 1)
    assert (job.state, log) == (JobState.QUEUED, [])
    process.begun = True
    job.poll()
    assert (job.state, log) == (JobState.RUNNING, ["started"])
    process.ended = True
    job.poll()
    assert (job.state, log[1:]) == (
        JobState.WAITING,
        ["killed by SIGKILL; will resume from frame 5"],
    )


def test_the_reason_of_a_failure_is_the_error_message_of_the_run(spec: RunSpec) -> None:
    job, log = run_job(spec, sys.executable, "-c", "raise ValueError('no such game')")
    assert (job.state, job.reason) == (JobState.FAILED, "ValueError: no such game")
    assert log == ["started", "failed: ValueError: no such game"]


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
