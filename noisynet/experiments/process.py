"""The processes of a run: how they are started, and how they ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from noisynet.experiments.plan import RunSpec
from noisynet.experiments.progress import Progress, read_progress

PROGRAM: Final = (sys.executable, "-m", "noisynet.experiments.run_process")
"""The program of a run's process; its arguments are the parent's pid and those of `noisynet`."""

_SIGNAL_NAMES: Final = {known.value: known.name for known in signal.Signals}
_STOPPED_CODES: Final = (128 + signal.SIGTERM, 128 + signal.SIGINT)
_HEADER: Final = "--- "  # begins the output of each process in the log file
_ERROR_PREFIX: Final = "noisynet: "
_LOG_TAIL_BYTES: Final = 1 << 14


@dataclass(frozen=True)
class ProcessOptions:
    """How the processes of runs are started.

    `program` is the command to which the run's arguments are appended; None for `PROGRAM`, with the
    interpreter of the machine that starts the process.
    """

    device: str = "auto"
    tensorboard: bool = True
    program: tuple[str, ...] | None = None

    def command(self, spec: RunSpec) -> list[str]:
        """The command line of a run whose parent is this process."""
        options = ["--device", self.device, *([] if self.tensorboard else ["--no-tensorboard"])]
        return [*(self.program or PROGRAM), str(os.getpid()), *spec.arguments(), *options]


@dataclass(frozen=True)
class Exit:
    """How a process ended, and the progress of its run.

    The code is negative for a signal. `killed_by` is "" if it exited by itself, `where` the node
    of a cluster.
    """

    code: int
    progress: Progress
    killed_by: str = ""
    error: str = ""
    where: str = ""


class Process(Protocol):
    """The process of a run, on this machine or elsewhere. No method blocks."""

    def has_started(self) -> bool:
        """Whether it runs; False while a cluster has no place for it."""

    def poll(self) -> Exit | None:
        """How it ended; None if it has not."""

    def stop(self, *, kill: bool) -> None:
        """Ask it to write a checkpoint and exit; or kill it, which keeps its last checkpoint."""


class LocalProcess:
    """A process of this machine, whose output is appended to the run's log file.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self, spec: RunSpec, options: ProcessOptions, threads: int, where: str = ""
    ) -> None:
        self._spec, self._where = spec, where
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        command = options.command(spec)
        host = f"{where}, task of process {os.getpid()}" if where else "this machine"
        with spec.log.open("ab") as log:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            log.write(f"{_HEADER}{now}, {host}: {' '.join(command)}\n".encode())
            log.flush()
            # A process group of its own: Ctrl-C reaches the sweep only, which stops its runs once.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                process_group=0,
            )

    def has_started(self) -> bool:
        """True."""
        return True

    def poll(self) -> Exit | None:
        """How it ended; None if it has not."""
        return None if self._process.poll() is None else self.wait()

    def wait(self) -> Exit:
        """Wait for its end."""
        code = self._process.wait()
        number = -code if code < 0 else code - 128 if code in _STOPPED_CODES else 0
        killed_by = _SIGNAL_NAMES.get(number, f"signal {number}") if number else ""
        error = _error_message(self._spec.log)
        error = error or f"the process exited with code {code} and no error message"
        return Exit(code, read_progress(self._spec), killed_by, error, self._where)

    def stop(self, *, kill: bool) -> None:
        """Send SIGTERM or SIGKILL."""
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)


def _error_message(path: Path) -> str:
    """The last line of the newest process's output, or every line of an error of `noisynet`."""
    lines: list[str] = []
    with suppress(OSError), path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    message: list[str] = []
    for line in reversed(lines):
        ours = line.startswith(_ERROR_PREFIX)
        if line.startswith(_HEADER) or (message and not ours):
            break
        if line.strip():
            message.insert(0, line.removeprefix(_ERROR_PREFIX).strip())
            if not ours:
                break
    return "; ".join(message)
