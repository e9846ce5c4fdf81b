"""One writer per run folder: a lock that the kernel frees when its owner ends in any way."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import RunError, storage_errors

__all__ = ["EXIT_LOCKED", "Owner", "RunLock", "RunLocked", "read_owner", "signature_path"]

EXIT_LOCKED: Final = 75
"""Exit code of a process whose run is locked by another one: EX_TEMPFAIL of sysexits.h."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """The process that holds, or held, the lock of a run folder.

    Attributes:
        pid: Its process id, on its own host.
        host: Name of the machine it runs on.
        since: When it took the lock, ISO 8601 in UTC.
    """

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since})"


class RunLocked(RunError):  # noqa: N818 - says what happened
    """Another process writes to this run folder; `owner` names it where it has said so."""

    owner: Owner | None = None


class RunLock:
    """The right to write to one run folder, until `release` or the end of a `with` block.

    The kernel holds the lock and frees it when the process ends in any way. A file beside it only
    tells others who the owner is; a clean release removes it, so that a new owner who finds one
    knows that the last was killed.

    Attributes:
        note: A sentence about the killed process whose lock this one took over, else None.
    """

    def __init__(self, path: Path) -> None:
        import filelock

        self.path = path
        self.note: str | None = None
        # A soft lock would outlive a killed owner, so a file system without flock is refused.
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
                raise _refusal(path) from None
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
                f"{owner or 'a process that did not sign it'}, which ended without releasing it"
            )
        since = datetime.now(UTC).isoformat(timespec="seconds")
        signature = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        signed.write_bytes(encode(signature) + b"\n")

    def release(self) -> None:
        """Gives the lock back; a second call does nothing."""
        if self._lock.is_locked:
            with suppress(OSError):  # unsigned on a full or read-only disk: still released below
                if (signed := signature_path(self.path)).exists():
                    signed.unlink()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def _refusal(path: Path) -> RunLocked:
    owner = None
    for _ in range(20):  # the owner signs just after it takes the lock
        owner = read_owner(path)
        if owner is not None:
            break
        time.sleep(0.01)
    refused = RunLocked(
        f"{path.parent} is being written by {owner or 'another process'}; "
        "wait until it ends, stop it, or choose another --out or --name"
    )
    refused.owner = owner
    return refused


def read_owner(path: Path) -> Owner | None:
    """Who signed for the lock file, killed or not; None where nobody did."""
    try:
        return Owner(**decode(signature_path(path).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def signature_path(path: Path) -> Path:
    """Where the owner of a lock file signs: beside it, as taking the lock may empty the file."""
    return path.with_suffix(".owner")
