"""A job: the processes of one run, restarted from the newest checkpoint when they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from noisynet.experiments.plan import RunSpec
from noisynet.experiments.progress import Progress, ProgressState, read_progress
from noisynet.runs import EXIT_LOCKED

MAX_RETRIES: Final = 3
"""How often a killed run is restarted without having made progress."""

LOCK_POLL_SECONDS: Final = 2.0
"""How often the folder of a run locked by another process is read."""

PROGRAM: Final = (sys.executable, "-m", "noisynet.experiments.run_process")
"""The program of a run's process; its arguments are the parent's pid and those of `noisynet`."""

_STOPPED_CODES: Final = (128 + signal.SIGTERM, 128 + signal.SIGINT)
_ERROR_PREFIX: Final = "noisynet: "
_LOG_TAIL_BYTES: Final = 1 << 14


class JobState(Enum):
    """The state of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    LOCKED = "locked"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self in (JobState.DONE, JobState.FAILED, JobState.STOPPED)


@dataclass(frozen=True)
class ProcessOptions:
    """How the processes of runs are started.

    Attributes:
        device: as after `--device`.
        tensorboard: whether TensorBoard events are written.
        program: the command to which the run's arguments are appended; None for `PROGRAM`, with the
            interpreter of the machine that starts the process.
    """

    device: str = "auto"
    tensorboard: bool = True
    program: tuple[str, ...] | None = None

    def command(self, spec: RunSpec) -> list[str]:
        """The command line of a run whose parent is this process."""
        options = ["--device", self.device, *([] if self.tensorboard else ["--no-tensorboard"])]
        return [*(self.program or PROGRAM), str(os.getpid()), *spec.arguments(), *options]


class KillCounter:
    """Counts how often in a row a run was killed without progress."""

    def __init__(self) -> None:
        self.in_a_row, self.frames = 0, -1

    def exceeds_retries(self, frames: int) -> bool:
        """Count one kill of a run whose newest checkpoint is at `frames`."""
        self.in_a_row = 1 if frames > self.frames else self.in_a_row + 1
        self.frames = frames
        return self.in_a_row > MAX_RETRIES


class Job:
    """One run of a sweep. No method blocks: the runner calls `poll` until the state is final.

    Args:
        spec: the run.
        options: how its processes are started.
        log: called with the run and a message on every event.
        host: where its processes run, for the log file.

    Attributes:
        spec: the run.
        state: of the job.
        cores: assigned to its process.
        reason: why it failed.
        started: whether the run's folder existed or a process was started.
    """

    def __init__(
        self,
        spec: RunSpec,
        options: ProcessOptions,
        log: Callable[[RunSpec, str], None],
        *,
        host: str = "this machine",
    ) -> None:
        self.spec, self.options, self._log, self._host = spec, options, log, host
        self.state, self.reason, self.cores, self.started = JobState.WAITING, "", 0, False
        self._process: subprocess.Popen[bytes] | None = None
        self._kills, self._log_start, self._read_at = KillCounter(), 0, 0.0
        self._stopping = False
        self._read_folder()

    def start(self, cores: int, threads: int) -> bool:
        """Start the run's process unless another process holds the lock; whether it was started.

        Args:
            cores: assigned to it.
            threads: OMP_NUM_THREADS of the process.
        """
        self._read_folder()
        if self.state is not JobState.WAITING:
            return False
        try:
            self._process = self._launch(threads)
        except OSError as error:
            self._fail(f"cannot start the process: {error}")
            return False
        self.state, self.cores = JobState.RUNNING, cores
        self._report("resumed" if self.started else "started")
        self.started = True
        return True

    def _launch(self, threads: int) -> subprocess.Popen[bytes]:
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        command = self.options.command(self.spec)
        with self.spec.log.open("ab") as log:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            log.write(f"--- {now}, {self._host}: {' '.join(command)}\n".encode())
            log.flush()
            self._log_start = log.tell()
            # A process group of its own: Ctrl-C reaches the sweep only, which stops its runs once.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                process_group=0,
            )

    def poll(self) -> None:
        """Update the state: the process may have exited, or the run's lock been released."""
        if self.state is JobState.RUNNING:
            assert self._process is not None
            code = self._process.poll()
            if code is not None:
                self._process = None
                self._handle_exit(code)
        elif self.state is JobState.LOCKED and time.monotonic() - self._read_at > LOCK_POLL_SECONDS:
            self._read_folder()

    def stop(self) -> None:
        """Ask the process to write a checkpoint and exit. A waiting job is not started any more."""
        already, self._stopping = self._stopping, True
        if self._process is None and not self.state.ended:
            self.state = JobState.STOPPED
        elif self._process is not None and not already:  # a second signal would skip the checkpoint
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process. Its last checkpoint is kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    # --- state ------------------------------------------------------------------------------------

    def _read_folder(self) -> None:
        """Set the state from the run's folder, while this job has no process."""
        self._read_at = time.monotonic()
        progress = read_progress(self.spec)
        self.started = self.started or progress.state is not ProgressState.NEW
        if progress.state is ProgressState.DONE:
            self._finish(progress)
        elif progress.state is ProgressState.UNREADABLE:
            self._fail(progress.reason)
        elif progress.state is ProgressState.LOCKED:
            if self.state is not JobState.LOCKED:
                self._report(f"locked by {progress.owner}; waiting for it")
            self.state = JobState.LOCKED
        else:
            self.state = JobState.WAITING

    def _finish(self, progress: Progress) -> None:
        if self.state in (JobState.RUNNING, JobState.LOCKED):
            score = "no evaluation" if progress.score is None else f"score {progress.score:.2f}"
            self._report(f"done: {progress.frames:,} frames, {score}")
        self.state = JobState.DONE

    def _handle_exit(self, code: int) -> None:
        progress = read_progress(self.spec)
        if progress.state is ProgressState.DONE:
            self._finish(progress)
        elif self._stopping:
            self.state = JobState.STOPPED
        elif code == EXIT_LOCKED:
            self.state, self._read_at = JobState.LOCKED, time.monotonic()
            self._report("locked by another process; waiting for it")
        elif code < 0 or code in _STOPPED_CODES:
            self._handle_kill(code, progress.frames)
        else:
            error = _error_message(self._log_tail())
            self._fail(error or f"the process exited with code {code} and no error message")

    def _handle_kill(self, code: int, frames: int) -> None:
        number = -code if code < 0 else code - 128
        names = {known.value: known.name for known in signal.Signals}
        cause = f"killed by {names.get(number, f'signal {number}')}"
        if self._kills.exceeds_retries(frames):
            self._fail(f"{cause}, {self._kills.in_a_row} times in a row without progress")
        else:
            self.state = JobState.WAITING
            self._report(f"{cause}; will resume from frame {frames:,}")

    def _fail(self, reason: str) -> None:
        self.state, self.reason = JobState.FAILED, reason
        self._report(f"failed: {reason}")

    def _log_tail(self) -> list[str]:
        """The last lines that this process has written."""
        with suppress(OSError), self.spec.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
            return [line for line in lines if line.strip()]
        return []

    def _report(self, message: str) -> None:
        self._log(self.spec, message)


def _error_message(lines: Sequence[str]) -> str:
    """The last line of a log, or every line of an error message that `noisynet` has printed."""
    message: list[str] = []
    for line in reversed(lines):
        ours = line.startswith(_ERROR_PREFIX)
        if ours or not message:
            message.insert(0, line.removeprefix(_ERROR_PREFIX).strip())
        if not ours:
            break
    return "; ".join(message)
