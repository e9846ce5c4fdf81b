"""SHA-256 of an append-only replay in segments; each complete segment is hashed once.

Rows are counted from the start of the run and never renumbered. A ring keeps the window
[window_start, rows_written) of them; segment k is rows [k · segment_rows, (k + 1) · segment_rows).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["ReadRows", "SegmentHashes"]

ReadRows = Callable[[int, int], Iterable[memoryview]]
"""`read_rows(start, stop)` returns the bytes of those rows as contiguous pieces.

The concatenated pieces must not depend on where the ring wraps: column after column, each in one
piece, or in two if it wraps.
"""


class SegmentHashes:
    """Hashes of the segments of one replay.

    Args:
        segment_rows: Rows per segment. Every `state` hashes the incomplete segment again, so this
            bounds the cost of a checkpoint.
    """

    def __init__(self, segment_rows: int) -> None:
        if segment_rows < 1:
            raise ValueError(f"segment_rows must be at least 1, got {segment_rows}")
        self.segment_rows = segment_rows
        self._hashes: dict[int, str] = {}
        self._next = 0  # first segment not yet seen complete

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SegmentHashes:
        """Resume from the `state` in a checkpoint, without hashing complete segments again."""
        hashes = cls(state["segment_rows"])
        hashes._hashes = {int(index): digest for index, digest in state["segments"].items()}
        hashes._next = state["rows_written"] // hashes.segment_rows
        return hashes

    def completed(self, window_start: int, rows_written: int, read_rows: ReadRows) -> list[int]:
        """Hash each segment that became complete since the last call.

        Segments that are no longer entirely in the window are dropped.

        Returns:
            Numbers of the segments hashed now.
        """
        _check_window(window_start, rows_written)
        stop = rows_written // self.segment_rows
        if stop < self._next:
            raise ValueError(
                f"expected at least the {self._next * self.segment_rows} rows that are already "
                f"hashed, got {rows_written}; rows are counted from the start of the run, so after "
                "a resume use SegmentHashes.from_state"
            )
        first = _ceil_div(window_start, self.segment_rows)
        new = list(range(max(first, self._next), stop))
        for index in new:
            self._hashes[index] = self._hash_segment(index, read_rows)
        self._next = stop
        self._hashes = {k: digest for k, digest in self._hashes.items() if k >= first}
        return new

    def state(self, window_start: int, rows_written: int, read_rows: ReadRows) -> dict[str, Any]:
        """Bring the hashes up to date and return them for a checkpoint, JSON-able.

        The incomplete segment is hashed from its start, or from the start of the window.
        """
        self.completed(window_start, rows_written, read_rows)
        start = max(self._next * self.segment_rows, window_start)
        partial = None
        if start < rows_written:
            digest = _hash_rows(start, rows_written, read_rows)
            partial = {"start": start, "stop": rows_written, "sha256": digest}
        return {
            "segment_rows": self.segment_rows,
            "window_start": window_start,
            "rows_written": rows_written,
            "segments": {str(index): digest for index, digest in self._hashes.items()},
            "partial": partial,
        }

    def verify(
        self,
        state: Mapping[str, Any],
        window_start: int,
        rows_written: int,
        read_rows: ReadRows,
    ) -> list[str]:
        """Compare the rows in the window with the `state` in a checkpoint.

        Returns:
            A sentence for each mismatch.
        """
        _check_window(window_start, rows_written)
        for key, here in (("segment_rows", self.segment_rows), ("rows_written", rows_written)):
            if state[key] != here:
                return [f"{key} is {here} here, but {state[key]} in the checkpoint."]
        wrong = []
        first = _ceil_div(window_start, self.segment_rows)
        for index in range(first, rows_written // self.segment_rows):
            recorded = state["segments"].get(str(index))
            span = f"rows {index * self.segment_rows} to {(index + 1) * self.segment_rows}"
            if recorded is None:
                wrong.append(f"{span} have no SHA-256 in the checkpoint.")
            elif recorded != self._hash_segment(index, read_rows):
                wrong.append(f"{span} do not match their SHA-256.")
        return wrong + self._verify_partial(state, window_start, rows_written, read_rows)

    def _verify_partial(
        self, state: Mapping[str, Any], window_start: int, rows_written: int, read_rows: ReadRows
    ) -> list[str]:
        begun = rows_written // self.segment_rows * self.segment_rows
        partial = state["partial"]
        if max(begun, window_start) == rows_written:
            return []  # no incomplete segment in the window
        span = f"the newest rows, {max(begun, window_start)} to {rows_written},"
        if partial is None or partial["stop"] != rows_written:
            return [f"{span} have no SHA-256 in the checkpoint."]
        if partial["start"] < window_start:
            return []  # hashed together with rows that have left the window
        if partial["sha256"] != _hash_rows(partial["start"], rows_written, read_rows):
            return [f"{span} do not match their SHA-256."]
        return []

    def _hash_segment(self, index: int, read_rows: ReadRows) -> str:
        return _hash_rows(index * self.segment_rows, (index + 1) * self.segment_rows, read_rows)


def _hash_rows(start: int, stop: int, read_rows: ReadRows) -> str:
    # With the row numbers, so that exchanged segments are detected.
    digest = hashlib.sha256(f"{start}:{stop}:".encode())
    for piece in read_rows(start, stop):
        digest.update(piece)
    return digest.hexdigest()


def _check_window(window_start: int, rows_written: int) -> None:
    if not 0 <= window_start <= rows_written:
        raise ValueError(
            "expected 0 ≤ window_start ≤ rows_written, got "
            f"window_start {window_start} and rows_written {rows_written}"
        )


def _ceil_div(rows: int, segment_rows: int) -> int:
    return -(-rows // segment_rows)
