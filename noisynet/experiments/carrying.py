"""One run carried to its end: processes started, watched, and started again when killed."""

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
from noisynet.experiments.progress import Progress, State, look

RETRIES: Final = 3
"""How often a killed run is started again without having got any further."""

LOOK_SECONDS: Final = 2.0
"""How often the folder of a run that another process is at is looked into."""

PROGRAM: Final = (sys.executable, "-m", "noisynet.experiments.run_process")
"""What a run's process is; it is given its parent's pid and what follows `noisynet`."""

# What `RunLocked` says: another process has been faster, which is no failure.
_REFUSAL: Final = "is locked by"
_POLITE: Final = (128 + signal.SIGTERM, 128 + signal.SIGINT)
_LAST_BYTES: Final = 1 << 14


class Stage(Enum):
    """Where a sweep is with a run."""

    WAITING = "waiting"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be done about the run."""
        return self in (Stage.DONE, Stage.FAILED, Stage.STOPPED)


@dataclass(frozen=True)
class How:
    """How the processes of runs are started.

    Attributes:
        device: as after `--device`.
        tensorboard: whether events are written.
        program: what a process is.
    """

    device: str = "auto"
    tensorboard: bool = True
    program: tuple[str, ...] = PROGRAM

    def command(self, spec: RunSpec) -> list[str]:
        """The command line of a run's process that is started from here."""
        more = ["--device", self.device, *([] if self.tensorboard else ["--no-tensorboard"])]
        return [*self.program, str(os.getpid()), *spec.arguments(), *more]


class Deaths:
    """Counts how often a run was killed without getting any further."""

    def __init__(self) -> None:
        self.in_a_row, self.frames = 0, -1

    def one_too_many(self, frames: int) -> bool:
        """Count a death of a run whose newest checkpoint has so many frames."""
        self.in_a_row = 1 if frames > self.frames else self.in_a_row + 1
        self.frames = frames
        return self.in_a_row > RETRIES


class Carrier:
    """Carries one run to its end. Nothing waits: its owner calls `tend` again and again.

    Args:
        spec: the run.
        how: its processes are started.
        tell: told what happens, in a few words.
        place: where its processes are, for the log.

    Attributes:
        spec: the run.
        stage: where it is.
        cores: that its process was given.
        reason: why it failed.
        begun: whether its folder was there before, or a process was started.
    """

    def __init__(
        self,
        spec: RunSpec,
        how: How,
        tell: Callable[[RunSpec, str], None],
        *,
        place: str = "this machine",
    ) -> None:
        self.spec, self.how, self._tell, self._place = spec, how, tell, place
        self.stage, self.reason, self.cores, self.begun = Stage.WAITING, "", 0, False
        self._process: subprocess.Popen[bytes] | None = None
        self._deaths, self._log_start, self._looked_at = Deaths(), 0, 0.0
        self._stopping = False
        self._look()

    def start(self, cores: int, threads: int) -> bool:
        """Start the run's process, unless somebody else was faster; whether it was started.

        Args:
            cores: that it is counted with.
            threads: of its arithmetic.
        """
        self._look()
        if self.stage is not Stage.WAITING:
            return False
        try:
            self._process = self._launch(threads)
        except OSError as error:
            self._fail(f"its process could not be started: {error}")
            return False
        self.stage, self.cores = Stage.RUNNING, cores
        self._say("continued" if self.begun else "started")
        self.begun = True
        return True

    def _launch(self, threads: int) -> subprocess.Popen[bytes]:
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        command = self.how.command(self.spec)
        with self.spec.log.open("ab") as log:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            log.write(f"--- {now}, {self._place}: {' '.join(command)}\n".encode())
            log.flush()
            self._log_start = log.tell()
            # A group of its own: Ctrl-C is for the sweep, which then stops its runs, once.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                process_group=0,
            )

    def tend(self) -> None:
        """See whether the process has ended, or whoever else was at the run."""
        if self.stage is Stage.RUNNING:
            assert self._process is not None
            code = self._process.poll()
            if code is not None:
                self._process = None
                self._ended(code)
        elif self.stage is Stage.ELSEWHERE and time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._look()

    def stop(self) -> None:
        """Have the process write a checkpoint and end; a run that waits will not be started."""
        already, self._stopping = self._stopping, True
        if self._process is None and not self.stage.ended:
            self.stage = Stage.STOPPED
        elif self._process is not None and not already:  # a second signal would mean: at once
            self._process.terminate()

    def kill(self) -> None:
        """End the process at once; its last checkpoint is kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    # --- what the folder says --------------------------------------------------------------------

    def _look(self) -> None:
        """Take the stage from the folder, while no process of this carrier's is at it."""
        self._looked_at = time.monotonic()
        progress = look(self.spec)
        self.begun = self.begun or progress.state is not State.NEW
        if progress.state is State.DONE:
            self._become_done(progress)
        elif progress.state is State.UNREADABLE:
            self._fail(progress.reason)
        elif progress.state is State.TAKEN:
            if self.stage is not Stage.ELSEWHERE:
                self._say(f"left to {progress.owner}, which is at it")
            self.stage = Stage.ELSEWHERE
        else:
            self.stage = Stage.WAITING

    def _become_done(self, progress: Progress) -> None:
        if self.stage in (Stage.RUNNING, Stage.ELSEWHERE):
            score = "no evaluation" if progress.score is None else f"score {progress.score:.2f}"
            self._say(f"done: {progress.frames:,} frames, {score}")
        self.stage = Stage.DONE

    def _ended(self, code: int) -> None:
        progress = look(self.spec)
        said = self._said()
        if progress.state is State.DONE:
            self._become_done(progress)
        elif self._stopping:
            self.stage = Stage.STOPPED
        elif code > 0 and any(_REFUSAL in line for line in said):
            self.stage, self._looked_at = Stage.ELSEWHERE, time.monotonic()
            self._say("left to another process, which was faster")
        elif code < 0 or code in _POLITE:
            self._killed(code, progress.frames)
        else:
            self._fail(_reason(said) or f"its process ended with exit code {code} and no word")

    def _killed(self, code: int, frames: int) -> None:
        number = -code if code < 0 else code - 128
        names = {known.value: known.name for known in signal.Signals}
        how = f"killed by {names.get(number, f'signal {number}')}"
        if self._deaths.one_too_many(frames):
            self._fail(f"{how}, {self._deaths.in_a_row} times in a row without getting further")
        else:
            self.stage = Stage.WAITING
            self._say(f"{how}; it will go on from frame {frames:,}")

    def _fail(self, reason: str) -> None:
        self.stage, self.reason = Stage.FAILED, reason
        self._say(f"failed: {reason}")

    def _said(self) -> list[str]:
        """The last lines of this process."""
        with suppress(OSError), self.spec.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
            return [line for line in lines if line.strip()]
        return []

    def _say(self, message: str) -> None:
        self._tell(self.spec, message)


def _reason(said: Sequence[str]) -> str:
    """The last line, or all of an error of several lines."""
    words: list[str] = []
    for line in reversed(said):
        if words and not line.startswith("noisynet: "):
            break
        words.insert(0, line.removeprefix("noisynet: ").strip())
        if not line.startswith("noisynet: "):
            break
    return "; ".join(words)
