"""How files of a run are opened: regular files inside its folder, never through links.

Every read and write of a run folder goes through `open_folder` and `open_file`, so that nothing
outside the folder is read, written, truncated or deleted. Errors say what could not be done, to
which path, and what to do.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

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


TEMPORARY: Final = re.compile(
    r"\.(config\.json|status\.json|layout\.json|run\.owner|\d{12,}(-on|-off)?\.safetensors)\.tmp-\d+"
)
"""The names that `write_atomically` gives to unfinished files of a run."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR
# Opening what is no regular file fails with one of these, or succeeds and shows in `fstat`.
_NOT_A_FILE: Final = (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR, errno.ENOTDIR)


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Open a run folder, or a folder in one, for operations on the names in it.

    Raises:
        RunDamaged: It is a symbolic link, or not a folder.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NOT_A_FILE and os.path.lexists(path):
            raise _refused(path, "a folder") from error
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def list_folder(path: Path) -> list[str]:
    """Return the names in a folder of a run; a missing one has none. Raises plain `OSError`."""
    if not os.path.lexists(path):
        return []
    with open_folder(path) as folder:
        return os.listdir(folder)  # noqa: PTH208 - a descriptor


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file of a run; `O_TRUNC` is not allowed. Raises plain `OSError`, too.

    Raises:
        RunDamaged: It, or its folder, is a symbolic link, or it is not a regular file. To write
            it, it must have no other name: a hard link may be outside the folder.
    """
    with open_folder(path.parent) as folder:
        # Without O_NONBLOCK, opening a FIFO waits for its other end.
        safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path.name, flags | safe, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                raise _refused(path, "a regular file") from error
            raise
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and not (flags & _WRITES and found.st_nlink > 1):
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(found.st_mode):
        raise RunDamaged(
            f"{path} has {found.st_nlink} names (hard links): writing it would change the others; "
            "replace it by a copy"
        )
    raise _refused(path, "a regular file")


def _refused(path: Path, expected: str) -> RunDamaged:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a folder",
        stat.S_IFREG: "a file",
    }
    found = (
        kinds.get(stat.S_IFMT(path.lstat().st_mode), "a device") if os.path.lexists(path) else ""
    )
    return RunDamaged(
        f"expected {expected} at {path}, got {found or 'nothing'}; noisynet reads and writes "
        "nothing outside a run folder: put the data itself there"
    )


def read_file(path: Path, most_bytes: int) -> bytes:
    """Read a small file of a run. Raises plain `OSError`, too.

    Raises:
        RunDamaged: It is not a regular file, or it is longer than `most_bytes`.
    """
    with open(open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise RunDamaged(f"{path} has {size:,} bytes, expected at most {most_bytes:,}")
        return file.read(size)


def remove_file(path: Path) -> None:
    """Remove a file of a run, or a link in its place. Raises plain `OSError`."""
    with open_folder(path.parent) as folder:
        os.unlink(path.name, dir_fd=folder)


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside `path`: on the same file system, so that renaming is atomic."""
    return path.with_name(f".{path.name}.tmp-{os.getpid()}")


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed process left of the files that are written atomically.

    Call this only with the run's lock: another process may still be writing.
    """
    with storage_errors("clear up", folder):
        for name in filter(TEMPORARY.fullmatch, list_folder(folder)):
            with suppress(OSError):
                remove_file(folder / name)


def write_all(descriptor: int, data: bytes, offset: int = 0) -> None:
    """Write all of `data` at `offset`, in several writes if the system splits it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def write_atomically(path: Path, data: bytes, doing: str = "write") -> None:
    """Replace the content of `path`; a reader always finds either the old or the new content.

    Raises:
        RunDamaged: Its folder is a symbolic link.
        StorageError: The write failed; `path` has the old or the new content, whole.
    """
    name = temporary_name(path).name
    with storage_errors(doing, path), open_folder(path.parent) as folder:
        try:
            with suppress(FileNotFoundError):  # of a killed process with the same pid
                os.unlink(name, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o666, dir_fd=folder)
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        os.fsync(folder)  # a rename is durable only after this
