"""Rows of metrics in a file that a resumed run truncates to its checkpoint."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from pydantic_core import from_json

from noisynet.runs.encoding import encode, restore_non_finite
from noisynet.runs.files import RunDamaged, open_file, open_folder, storage_errors, write_all
from noisynet.runs.reading import FileDigest, read_lines

_CHUNK: Final = 1 << 20
_LONGEST_TAIL: Final = 1 << 26  # without a line end; a power cut may leave zeros


class MetricsLog:
    """An append-only JSON-lines file: one row per line, keys in the order given.

    Equal rows are equal bytes, so that a resumed and an uninterrupted run end with equal files.
    Durations and times of day therefore go to a second log, timing.jsonl. Non-finite numbers are
    written as the strings "nan", "inf" and "-inf".

    A row is in the file when `append` returns. After a failed write the file ends with the last
    whole row, and `append` may be called again. Opening a file drops an unfinished last line.

    Args:
        path: The file.
        check: Called before each write; raises if this process must not write any more.
    """

    def __init__(self, path: Path | str, check: Callable[[], None] = lambda: None) -> None:
        self.path = Path(path)
        self._check = check
        self._descriptor = -1
        with storage_errors("open", self.path):
            self._descriptor = open_file(self.path, os.O_RDWR | os.O_CREAT)
            self._end, self._sha256 = self._scan(os.fstat(self._descriptor).st_size)
            if os.fstat(self._descriptor).st_size != self._end:
                os.ftruncate(self._descriptor, self._end)
            with open_folder(self.path.parent) as folder:
                os.fsync(folder)  # the file may be new

    def _scan(self, size: int) -> tuple[int, hashlib._Hash]:
        """Return the length of the whole rows within `size` bytes, and their SHA-256."""
        end, position = 0, 0
        rows = running = hashlib.sha256()
        while chunk := os.pread(self._descriptor, min(_CHUNK, size - position), position):
            whole = chunk.rfind(b"\n") + 1
            running.update(chunk[:whole])
            if whole:
                rows, end = running.copy(), position + whole
            running.update(chunk[whole:])
            position += len(chunk)
            if position - end > _LONGEST_TAIL:
                raise RunDamaged(f"{self.path} has no line end after byte {end:,}: it is damaged")
        return end, rows if end else hashlib.sha256()

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one row.

        Raises:
            TypeError, ValueError: The row cannot be encoded; nothing is written.
            StorageError: The write failed; nothing is left of the row.
        """
        line = encode(dict(row)) + b"\n"
        self._check()
        with storage_errors("add a row to", self.path):
            try:
                os.ftruncate(self._descriptor, self._end)  # in case that the last attempt could not
                write_all(self._descriptor, line, self._end)
            except BaseException:
                with suppress(OSError):  # drop the first part of the row, all that a full disk took
                    os.ftruncate(self._descriptor, self._end)
                raise
        self._end += len(line)
        self._sha256.update(line)

    def offset(self) -> int:
        """Sync the file and return its length in bytes, for a checkpoint.

        A checkpoint must not refer to rows that a power cut could still remove.
        """
        with storage_errors("sync", self.path):
            os.fsync(self._descriptor)
        return self._end

    def digest(self) -> FileDigest:
        """Sync the file and return its length and SHA-256, which every row has updated."""
        return FileDigest(bytes=self.offset(), sha256=self._sha256.hexdigest())

    def truncate(self, offset: int, sha256: str | None = None) -> None:
        """Drop every row after `offset`, which came from `offset()`; raises as `check` does."""
        with storage_errors("truncate", self.path):
            rows = self.check(offset, sha256)
            self._check()
            os.ftruncate(self._descriptor, offset)
            self._end, self._sha256 = offset, rows
            os.fsync(self._descriptor)

    def check(self, offset: int, sha256: str | None = None) -> hashlib._Hash:
        """Check that the first `offset` bytes are those of a checkpoint; return their SHA-256.

        Raises:
            RunDamaged: The file is shorter, no row ends there, or the rows before it have another
                SHA-256 than `sha256`.
        """
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")
        if offset > self._end:
            raise RunDamaged(
                f"{self.path} has {self._end} bytes of whole rows, but {offset} at the time of the "
                "checkpoint: rows are missing; restore the file from a backup"
            )
        end, rows = self._scan(offset)
        if end != offset:
            raise RunDamaged(
                f"no row of {self.path} ends at byte {offset}, but one did at the time of the "
                "checkpoint: the file was changed; restore it from a backup"
            )
        if sha256 is not None and rows.hexdigest() != sha256:
            raise RunDamaged(
                f"the first {offset:,} bytes of {self.path} do not match the SHA-256 in the "
                "checkpoint: rows were changed; restore the file from a backup. The weights can be "
                "used: noisynet evaluate, watch, and load in Python"
            )
        return rows

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):  # a constructor that failed, or interpreter exit
            self.close()


class NoMetrics(MetricsLog):
    """Drops every row: the log of training in memory."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._sha256 = hashlib.sha256()

    def append(self, row: Mapping[str, Any]) -> None:
        """Drop the row."""

    def offset(self) -> int:
        """Zero: there are no rows."""
        return 0

    def truncate(self, offset: int, sha256: str | None = None) -> None:
        """Nothing to drop."""


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """Read all rows of a file, which a run may still be writing.

    An unfinished last line is ignored. A missing file has no rows.

    Raises:
        RunDamaged: Another line is not a row; the message has its number.
    """
    path, rows = Path(path), []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = restore_non_finite(from_json(line))
        except ValueError as error:
            raise RunDamaged(f"line {number} of {path} is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise RunDamaged(f"line {number} of {path} is a {type(row).__name__}, not a row")
        rows.append(row)
    return rows
