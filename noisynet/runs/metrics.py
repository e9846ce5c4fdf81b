"""Rows of numbers, appended to a file that a resumed run cuts back to its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import RunDamaged, storage_errors, sync_directory, write_all

__all__ = ["MetricsLog", "read_metrics"]

_TAIL_BYTES = 1 << 16


class MetricsLog:
    """An append-only JSON-lines file: one row per line, keys in the order given.

    The same rows are the same bytes: an interrupted and an uninterrupted run must end with equal
    files, so times of day and durations never go in metrics.jsonl but in timing.jsonl, which is
    another `MetricsLog`. Non-finite numbers are written as the texts "nan", "inf" and "-inf".

    A row is in the file when `append` returns. After a refusal by the disk the file ends with the
    last whole row, and appending may be tried again. Opening drops a line that a killed process
    left unfinished.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._descriptor = -1
        self._torn = False
        with storage_errors("open", self.path):
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            self._end = _end_of_last_line(self._descriptor)
            if os.fstat(self._descriptor).st_size != self._end:
                self._drop_torn_row()
            sync_directory(self.path.parent)  # the file may be new

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds one row.

        Raises:
            TypeError, ValueError: The row does not fit JSON; nothing is written.
            StorageError: The disk refused; nothing is left of the row.
        """
        line = encode(dict(row)) + b"\n"
        with storage_errors("add a row to", self.path):
            if self._torn:
                self._drop_torn_row()
            self._torn = True
            try:
                write_all(self._descriptor, line, self._end)
            except BaseException:
                with suppress(OSError):  # if this is refused too, the next append tries again
                    self._drop_torn_row()
                raise
        self._end += len(line)
        self._torn = False

    def _drop_torn_row(self) -> None:
        """A full disk may have taken the first half of a row."""
        os.ftruncate(self._descriptor, self._end)
        self._torn = False

    def sync(self) -> None:
        """Waits until the disk has every row."""
        with storage_errors("sync", self.path):
            os.fsync(self._descriptor)

    def offset(self) -> int:
        """Length of the file in bytes, for a checkpoint to keep; syncs first.

        The sync comes first because a checkpoint must never refer to rows that a power cut can
        still take away.
        """
        self.sync()
        return self._end

    def cut_back(self, offset: int) -> None:
        """Drops every row after `offset`, which a checkpoint got from `offset()`.

        Raises:
            RunDamaged: The file is shorter than `offset`, or no row ends there.
        """
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")
        if offset > self._end:
            raise RunDamaged(
                f"{self.path} has {self._end} bytes of whole rows, but the checkpoint was made "
                f"when it had {offset}: rows are lost; restore the file from a copy"
            )
        with storage_errors("cut back", self.path):
            if offset and os.pread(self._descriptor, 1, offset - 1) != b"\n":
                raise RunDamaged(
                    f"no row of {self.path} ends at byte {offset}, where the checkpoint says one "
                    "does: the file was changed; restore it from a copy"
                )
            os.ftruncate(self._descriptor, offset)
            self._end = offset
        self.sync()

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):  # a constructor that failed, or interpreter exit
            self.close()


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """All rows of a file that a run may be writing to or was killed while writing to.

    A last line without its end is one that was never finished, and is left out. No file, no rows.

    Raises:
        RunDamaged: Any other line that is not a row, with its number.
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


def _end_of_last_line(descriptor: int) -> int:
    """Offset just after the last newline; 0 where there is none."""
    position = os.fstat(descriptor).st_size
    while position > 0:
        start = max(0, position - _TAIL_BYTES)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0
