"""Rows of metrics in a file that a resumed run truncates to its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import RunDamaged, storage_errors, sync_directory, write_all


class MetricsLog:
    """An append-only JSON-lines file: one row per line, keys in the order given.

    Equal rows are equal bytes, so that a resumed and an uninterrupted run end with equal files.
    Durations and times of day therefore go to a second log, timing.jsonl. Non-finite numbers are
    written as the strings "nan", "inf" and "-inf".

    A row is in the file when `append` returns. After a failed write the file ends with the last
    whole row, and `append` may be called again. Opening a file drops an unfinished last line.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._descriptor = -1
        with storage_errors("open", self.path):
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            self._end = self.path.read_bytes().rfind(b"\n") + 1
            if os.fstat(self._descriptor).st_size != self._end:
                os.ftruncate(self._descriptor, self._end)
            sync_directory(self.path.parent)  # the file may be new

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one row.

        Raises:
            TypeError, ValueError: The row cannot be encoded; nothing is written.
            StorageError: The write failed; nothing is left of the row.
        """
        line = encode(dict(row)) + b"\n"
        with storage_errors("add a row to", self.path):
            try:
                os.ftruncate(self._descriptor, self._end)  # in case that the last attempt could not
                write_all(self._descriptor, line, self._end)
            except BaseException:
                with suppress(OSError):  # drop the first part of the row, all that a full disk took
                    os.ftruncate(self._descriptor, self._end)
                raise
        self._end += len(line)

    def offset(self) -> int:
        """Sync the file and return its length in bytes, for a checkpoint.

        A checkpoint must not refer to rows that a power cut could still remove.
        """
        with storage_errors("sync", self.path):
            os.fsync(self._descriptor)
        return self._end

    def truncate(self, offset: int) -> None:
        """Drop every row after `offset`, which came from `offset()`.

        Raises:
            RunDamaged: The file is shorter than `offset`, or no row ends there.
        """
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")
        if offset > self._end:
            raise RunDamaged(
                f"{self.path} has {self._end} bytes of whole rows, but {offset} at the time of the "
                "checkpoint: rows are missing; restore the file from a backup"
            )
        with storage_errors("truncate", self.path):
            if offset and os.pread(self._descriptor, 1, offset - 1) != b"\n":
                raise RunDamaged(
                    f"no row of {self.path} ends at byte {offset}, but one did at the time of the "
                    "checkpoint: the file was changed; restore it from a backup"
                )
            os.ftruncate(self._descriptor, offset)
            self._end = offset
            os.fsync(self._descriptor)

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

    def append(self, row: Mapping[str, Any]) -> None:
        """Drop the row."""

    def offset(self) -> int:
        """Zero: there are no rows."""
        return 0

    def truncate(self, offset: int) -> None:
        """Nothing to drop."""


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """Read all rows of a file, which a run may still be writing.

    An unfinished last line is ignored. A missing file has no rows.

    Raises:
        RunDamaged: Another line is not a row; the message has its number.
    """
    path = Path(path)
    with storage_errors("read", path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return []
    rows = []
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            row = decode(line)
        except ValueError as error:
            raise RunDamaged(f"line {number} of {path} is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise RunDamaged(f"line {number} of {path} is a {type(row).__name__}, not a row")
        rows.append(row)
    return rows
