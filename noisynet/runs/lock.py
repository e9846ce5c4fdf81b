"""One writer per run folder: a lock that the kernel releases when its owner exits or dies."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import RunError, storage_errors

EXIT_LOCKED: Final = 75
"""Exit code of a process whose run is locked by another one: EX_TEMPFAIL of sysexits.h."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """The process that holds, or held, the lock of a run folder."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since})"


class RunLocked(RunError):  # noqa: N818 - says what happened
    """The run folder is locked by another process; `owner` names it if it is known."""

    owner: Owner | None = None


class RunLock:
    """The lock of a run folder, held until `release` or the end of a `with` block.

    The kernel releases the lock when the process exits or dies. A file beside it names the owner. A
    clean release removes that file, so a new owner that finds one knows that the last was killed.

    Attributes:
        note: A message about the killed process whose lock was taken over, else None.
    """

    def __init__(self, path: Path) -> None:
        import filelock

        self.path = path
        self.note: str | None = None
        # A soft lock would outlive a killed owner, so file systems without flock are not supported.
        self._lock = filelock.FileLock(
            path,
            blocking=False,
            thread_local=False,
            fallback_to_soft=False,
        )
        with storage_errors("lock", path):
            try:
                self._lock.acquire()
            except filelock.Timeout:
                raise _locked(path) from None
            try:
                self._sign()
            except BaseException:
                self._lock.release()
                raise
        if self.note is not None:
            _log.info(self.note)

    def _sign(self) -> None:
        signed = signature_path(self.path)
        if signed.exists():
            owner = read_owner(self.path)
            self.note = (
                f"took over the lock of {self.path.parent} from "
                f"{owner or 'an unknown process'}, which ended without releasing it"
            )
        since = datetime.now(UTC).isoformat(timespec="seconds")
        signature = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        signed.write_bytes(encode(signature) + b"\n")

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._lock.is_locked:
            with suppress(OSError):  # a full or read-only disk: the lock is still released below
                if (signed := signature_path(self.path)).exists():
                    signed.unlink()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _locked(path: Path) -> RunLocked:
    owner = None
    for _ in range(20):  # the owner signs just after it takes the lock
        owner = read_owner(path)
        if owner is not None:
            break
        time.sleep(0.01)
    error = RunLocked(
        f"{path.parent} is locked by {owner or 'another process'}; "
        "wait until it ends, stop it, or choose another --out or --name"
    )
    error.owner = owner
    return error


def read_owner(path: Path) -> Owner | None:
    """Return the last owner of a lock, alive or not; None if it is not known."""
    try:
        return Owner(**decode(signature_path(path).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def signature_path(path: Path) -> Path:
    """Return the path of the file that names the owner; taking the lock may empty the lock file."""
    return path.with_suffix(".owner")
