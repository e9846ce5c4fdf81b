"""A job: the processes of one run, restarted from the newest checkpoint when they are killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Final

from noisynet.experiments.plan import RunSpec
from noisynet.experiments.process import Exit, Process
from noisynet.experiments.progress import Progress, ProgressState, read_progress
from noisynet.runs import EXIT_LOCKED

MAX_RETRIES: Final = 3
"""How often a killed run is restarted without having made progress."""

LOCK_POLL_SECONDS: Final = 2.0
"""How often the folder of a run locked by another process is read."""


class JobState(Enum):
    """The state of a job."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    LOCKED = "locked"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self in (JobState.DONE, JobState.FAILED, JobState.STOPPED)

    @property
    def has_process(self) -> bool:
        """Whether there is a process, which a cluster may not have started yet."""
        return self in (JobState.QUEUED, JobState.RUNNING)


class Job:
    """One run of a sweep. No method blocks: the runner calls `poll` until the state is final.

    `launch` starts a process of the run, given its cores and threads; `log` is called on every
    event. `started` says whether the run's folder existed or a process was started.
    """

    def __init__(
        self,
        spec: RunSpec,
        launch: Callable[[RunSpec, int, int], Process],
        log: Callable[[RunSpec, str], None],
    ) -> None:
        self.spec, self._launch, self._log = spec, launch, log
        self.state, self.reason, self.cores, self.started = JobState.WAITING, "", 0, False
        self._process: Process | None = None
        self._kills, self._killed_at, self._read_at, self._stopping = 0, -1, 0.0, False
        self._read_folder()

    def start(self, cores: int, threads: int) -> bool:
        """Start the run's process unless another process holds the lock; whether it was started."""
        self._read_folder()
        if self.state is not JobState.WAITING:
            return False
        try:
            self._process = self._launch(self.spec, cores, threads)
        except OSError as error:
            self._fail(f"cannot start the process: {error}")
            return False
        self.state, self.cores = JobState.QUEUED, cores
        self.poll()
        return True

    def poll(self) -> None:
        """Update the state: the process may have exited, or the run's lock been released."""
        if self._process is not None:
            if self.state is JobState.QUEUED and self._process.has_started():
                self.state = JobState.RUNNING
                self._report("resumed" if self.started else "started")
                self.started = True
            ended = self._process.poll()
            if ended is not None:
                self._process = None
                self._handle_exit(ended)
        elif self.state is JobState.LOCKED and time.monotonic() - self._read_at > LOCK_POLL_SECONDS:
            self._read_folder()

    def stop(self, *, kill: bool = False) -> None:
        """Ask the process to write a checkpoint and exit. A waiting job is not started any more.

        Args:
            kill: kill the process instead; its last checkpoint is kept.
        """
        already, self._stopping = self._stopping, True
        if self._process is None and not self.state.ended:
            self.state = JobState.STOPPED
        elif self._process is not None and (kill or not already):
            self._process.stop(kill=kill)  # a second SIGTERM would skip the checkpoint

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

    def _handle_exit(self, ended: Exit) -> None:
        where = f", on {ended.where}" if ended.where else ""
        locked = ended.progress.state is ProgressState.LOCKED
        if ended.progress.state is ProgressState.DONE:
            self._finish(ended.progress, where)
        elif self._stopping:
            self.state = JobState.STOPPED
        elif ended.code == EXIT_LOCKED or (ended.code == 0 and locked):
            # It exited because of the lock; or another sweep has just opened the finished run.
            self.state, self._read_at = JobState.LOCKED, time.monotonic()
            self._report("locked by another process; waiting for it")
        elif not ended.killed_by:
            self._fail(ended.error, where)
        else:
            self._handle_kill(ended, where)

    def _handle_kill(self, ended: Exit, where: str) -> None:
        """Restart the run, unless it was killed too often without progress in between."""
        frames = ended.progress.frames
        self._kills = 1 if frames > self._killed_at else self._kills + 1
        self._killed_at = frames
        cause = f"killed by {ended.killed_by}"
        if self._kills > MAX_RETRIES:
            self._fail(f"{cause}, {self._kills} times in a row without progress", where)
        else:
            self.state = JobState.WAITING
            self._report(f"{cause}; will resume from frame {frames:,}")

    def _finish(self, progress: Progress, where: str = "") -> None:
        if self.state.has_process or self.state is JobState.LOCKED:
            score = "no evaluation" if progress.score is None else f"score {progress.score:.2f}"
            self._report(f"done: {progress.frames:,} frames, {score}{where}")
        self.state = JobState.DONE

    def _fail(self, reason: str, where: str = "") -> None:
        self.state, self.reason = JobState.FAILED, reason
        self._report(f"failed: {reason}{where}")

    def _report(self, message: str) -> None:
        self._log(self.spec, message)
