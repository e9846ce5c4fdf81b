from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from noisynet.runs.segments import SegmentHashes


class _Ring:
    """Two arrays in a ring, as the replay has them, that counts the rows read."""

    def __init__(self, room: int, capacity: int) -> None:
        self.frames = np.zeros((room, 5), np.uint8)
        self.rewards = np.zeros(room, np.float32)
        self.capacity = capacity
        self.written = 0
        self.reads: list[tuple[int, int]] = []

    @property
    def window_start(self) -> int:
        return max(0, self.written - self.capacity)

    def write(self, rows: int) -> None:
        for _ in range(rows):
            slot = self.written % len(self.frames)
            self.frames[slot] = np.random.default_rng(self.written).integers(0, 256, 5)
            self.rewards[slot] = self.written
            self.written += 1

    def read_rows(self, start: int, stop: int) -> Iterator[memoryview]:
        assert self.written - len(self.frames) <= start <= stop <= self.written
        self.reads.append((start, stop))
        room = len(self.frames)
        for array in (self.frames, self.rewards):
            first, last = start % room, start % room + stop - start
            yield array[first : min(last, room)].data
            if last > room:
                yield array[: last - room].data


def test_each_complete_segment_is_hashed_once() -> None:
    ring, hashes = _Ring(room=40, capacity=30), SegmentHashes(4)
    stream = np.random.default_rng(0)
    hashed: list[int] = []
    while ring.written < 200:
        ring.write(int(stream.integers(0, 9)))
        hashed += hashes.completed(ring.window_start, ring.written, ring.read_rows)
    assert hashed == list(range(ring.written // 4))
    assert ring.reads == [(4 * k, 4 * k + 4) for k in hashed]


def test_state_covers_the_window_and_verifies_after_any_resume() -> None:
    ring, hashes = _Ring(room=40, capacity=30), SegmentHashes(4)
    stream = np.random.default_rng(1)
    for _ in range(40):
        ring.write(int(stream.integers(0, 11)))
        state = hashes.state(ring.window_start, ring.written, ring.read_rows)
        state = json.loads(json.dumps(state))
        whole = range(-(-ring.window_start // 4), ring.written // 4)
        assert [int(k) for k in state["segments"]] == list(whole)
        check = SegmentHashes(4)
        assert check.verify(state, ring.window_start, ring.written, ring.read_rows) == []
        hashes = SegmentHashes.from_state(state)
        ring.reads.clear()
        assert hashes.completed(ring.window_start, ring.written, ring.read_rows) == []
        assert ring.reads == []


def test_the_hash_does_not_depend_on_where_the_ring_wraps() -> None:
    small, large = _Ring(room=37, capacity=30), _Ring(room=500, capacity=30)
    for ring in (small, large):
        ring.write(119)
    states = [SegmentHashes(8).state(r.window_start, 119, r.read_rows) for r in (small, large)]
    assert states[0] == states[1]


def test_every_changed_row_in_a_complete_or_the_newest_segment_is_detected() -> None:
    ring, hashes = _Ring(room=40, capacity=30), SegmentHashes(8)
    ring.write(101)  # window [71, 101): segments 72–80, 80–88, 88–96 and the newest rows 96–101
    state = hashes.state(71, 101, ring.read_rows)
    for row in range(71, 101):
        ring.frames[row % 40, 2] ^= 1
        wrong = hashes.verify(state, 71, 101, ring.read_rows)
        ring.frames[row % 40, 2] ^= 1
        if row < 72:  # the only row whose segment began before the window
            assert wrong == []
        elif row < 96:
            start = row // 8 * 8
            assert wrong == [f"rows {start} to {start + 8} do not match their SHA-256."]
        else:
            assert wrong == ["the newest rows, 96 to 101, do not match their SHA-256."]


def test_exchanged_segments_are_detected() -> None:
    state = SegmentHashes(2).state(0, 4, lambda start, stop: [memoryview(b"same")])
    state["segments"] = {"0": state["segments"]["1"], "1": state["segments"]["0"]}
    wrong = SegmentHashes(2).verify(state, 0, 4, lambda start, stop: [memoryview(b"same")])
    assert len(wrong) == 2


def test_a_window_inside_the_newest_segment() -> None:
    ring, hashes = _Ring(room=10, capacity=6), SegmentHashes(64)
    ring.write(20)
    state = hashes.state(ring.window_start, 20, ring.read_rows)
    assert state["segments"] == {}
    assert (state["partial"]["start"], state["partial"]["stop"]) == (14, 20)
    assert hashes.verify(state, 14, 20, ring.read_rows) == []
    ring.rewards[5] = -1
    assert hashes.verify(state, 14, 20, ring.read_rows) != []


def test_nothing_written_yet() -> None:
    ring, hashes = _Ring(room=10, capacity=6), SegmentHashes(4)
    state = hashes.state(0, 0, ring.read_rows)
    assert (state["segments"], state["partial"], ring.reads) == ({}, None, [])
    assert hashes.verify(state, 0, 0, ring.read_rows) == []


def test_missing_hashes_in_the_checkpoint_are_a_mismatch() -> None:
    ring, hashes = _Ring(room=40, capacity=30), SegmentHashes(8)
    ring.write(20)
    state = hashes.state(0, 20, ring.read_rows)
    lacking = {**state, "segments": {"0": state["segments"]["0"]}, "partial": None}
    assert hashes.verify(lacking, 0, 20, ring.read_rows) == [
        "rows 8 to 16 have no SHA-256 in the checkpoint.",
        "the newest rows, 16 to 20, have no SHA-256 in the checkpoint.",
    ]
    assert hashes.verify(state, 0, 19, ring.read_rows) == [
        "rows_written is 19 here, but 20 in the checkpoint."
    ]
    assert SegmentHashes(4).verify(state, 0, 20, ring.read_rows) == [
        "segment_rows is 4 here, but 8 in the checkpoint."
    ]


def test_decreasing_row_counts_and_impossible_windows_are_rejected() -> None:
    ring, hashes = _Ring(room=40, capacity=30), SegmentHashes(4)
    ring.write(20)
    hashes.completed(0, 20, ring.read_rows)
    with pytest.raises(ValueError, match="at least the 20 rows that are already hashed, got 12"):
        hashes.completed(0, 12, ring.read_rows)
    with pytest.raises(ValueError, match="window_start 9 and rows_written 8"):
        hashes.state(9, 8, ring.read_rows)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        SegmentHashes(0)
