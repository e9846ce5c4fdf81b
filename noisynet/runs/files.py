"""Atomic writes, and errors that say what could not be written and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_WHAT_TO_DO = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your quota on that disk",
    errno.EFBIG: "raise the file size limit (ulimit -f) or choose another --out",
    errno.EROFS: "remount that disk writable or choose another --out",
    errno.EACCES: "give this user permission to write there or choose another --out",
    errno.EPERM: "give this user permission to write there or choose another --out",
    errno.EIO: "check that disk's health or choose another --out",
}


class RunError(Exception):
    """A run folder cannot be used; the message is meant for the user."""


class RunDamaged(RunError):  # noqa: N818 - says what happened
    """A file in the run folder is not what was written to it."""


class StorageError(RunError):
    """The disk is full, read-only, over quota, not permitted or failing.

    Attributes:
        errno: Error number, as in `OSError.errno`.
        path: File or folder that could not be written or read.
    """

    errno: int | None = None
    path: Path | None = None


@contextmanager
def storage_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` in the block into a `StorageError` about `doing` something to `path`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        if error.errno is not None and error.strerror != reason:  # a message of ours, with advice
            message = f"{error.strerror}"
        else:
            advice = _WHAT_TO_DO.get(error.errno or 0, "check that the folder is writable")
            message = (
                f"{reason} (errno {error.errno}); {advice}, then give the same command again to "
                "resume from the last good checkpoint"
            )
        failure = StorageError(f"cannot {doing} {path}: {message}")
        failure.errno, failure.path = error.errno, path
        raise failure from error


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside `path`: on the same file system, so that renaming is atomic."""
    return path.with_name(f".{path.name}.tmp-{os.getpid()}")


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed process left under `temporary_name`s in `folder`.

    Call this only with the run's lock: another process may still be writing.
    """
    with storage_errors("clear up", folder):
        for left_over in folder.glob(".*.tmp-*"):
            with suppress(OSError):
                left_over.unlink()


def write_all(descriptor: int, data: bytes, offset: int = 0) -> None:
    """Write all of `data` at `offset`, in several writes if the system splits it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and sync it. Raises plain `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory: a rename is durable only after this."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, doing: str = "write") -> None:
    """Replace the content of `path`; a reader always finds either the old or the new content.

    Raises:
        StorageError: The write failed; `path` has the old or the new content, whole.
    """
    temporary = temporary_name(path)
    with storage_errors(doing, path):
        try:
            write_synced(temporary, data)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
