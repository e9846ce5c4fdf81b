"""One writer per run folder: a lock that the kernel releases when its owner exits or dies."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from noisynet.runs.encoding import encode
from noisynet.runs.files import (
    RunError,
    open_file,
    remove_file,
    storage_errors,
    write_atomically,
)
from noisynet.runs.reading import Owner, read_object, validate

EXIT_LOCKED: Final = 75
"""Exit code of a process whose run is locked by another one: EX_TEMPFAIL of sysexits.h."""

# Longer than `is_held` has the lock.
_PATIENCE_SECONDS: Final = 0.1

_log = logging.getLogger(__name__)


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
            timeout=_PATIENCE_SECONDS,
            thread_local=False,
            fallback_to_soft=False,
        )
        with storage_errors("lock", path):
            os.close(open_file(path, os.O_RDWR | os.O_CREAT))  # filelock empties the file
            try:
                self._lock.acquire(poll_interval=0.01)
            except filelock.Timeout:
                raise _locked(path) from None
            try:
                self._identity = _identity(path)
                self._sign()
            except BaseException:
                self._lock.release()
                raise
        if self.note is not None:
            _log.info(self.note)

    def _sign(self) -> None:
        signed = signature_path(self.path)
        if os.path.lexists(signed):
            owner = read_owner(self.path)
            self.note = (
                f"took over the lock of {self.path.parent} from "
                f"{owner or 'an unknown process'}, which ended without releasing it"
            )
        since = datetime.now(UTC).isoformat(timespec="seconds")
        signature = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        started = process_start(os.getpid())
        write_atomically(signed, encode({**signature, "started": started}) + b"\n")

    def check(self) -> None:
        """Check that the lock file is still the one that was locked.

        Raises:
            RunLocked: It was deleted or replaced, so another process may train this run by now.
        """
        with storage_errors("check the lock", self.path):
            if self._lock.is_locked and _identity(self.path) != self._identity:
                raise RunLocked(
                    f"{self.path} was deleted or replaced while this process used it, and another "
                    "one may train this run: this process stops; the run goes on from its last "
                    "checkpoint with the same command"
                )

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._lock.is_locked:
            with suppress(OSError, RunError):  # the lock is lost, or the disk full or read-only
                self.check()
                remove_file(signature_path(self.path))
            with suppress(OSError):  # an environment has closed the file, which released it
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


def _identity(path: Path) -> tuple[int, int] | None:
    """The device and the inode of a file; None if it does not exist."""
    with suppress(FileNotFoundError):
        found = path.lstat()
        return found.st_dev, found.st_ino
    return None


def read_owner(path: Path) -> Owner | None:
    """Return the last owner of a lock, alive or not; None if it is not known."""
    try:
        return validate(Owner, read_object(signature_path(path)), path)
    except RunError:
        return None


def is_held(path: Path, owner: Owner) -> bool:
    """Whether the lock is held, now, by its last owner.

    The owner file outlives a killed process, whose pid may be used again, and pids of other hosts
    say nothing. Where the process is not known to live, a shared lock is tried for a moment;
    `RunLock` waits for longer than that.
    """
    here = owner.host == socket.gethostname()
    if here and owner.started is not None and owner.started == process_start(owner.pid):
        return True
    try:
        descriptor = open_file(path)
    except (OSError, RunError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # locked; or there are no locks here, and the owner file is all that is known
        return True
    finally:
        os.close(descriptor)
    return False


def process_start(pid: int) -> str | None:
    """When a process of this host was started, as boot and clock ticks; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path(f'/proc/{pid}/stat').read_text().rpartition(') ')[2].split()[19]}"
    except (OSError, IndexError):
        return None


def signature_path(path: Path) -> Path:
    """Return the path of the file that names the owner; taking the lock may empty the lock file."""
    return path.with_suffix(".owner")
