"""Ring buffers: the layout of a row, slots and slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisynet.replay import FrameStore, RowLayout, rows_that_fit
from noisynet.replay.rings import Rings

ATARI = RowLayout((84, 84), "uint8", 18)


def test_an_atari_row_takes_one_frame_and_eighteen_bytes() -> None:
    assert ATARI.nbytes == 84 * 84 + 18


def test_a_million_atari_rows_fit_in_seven_point_two_gigabytes() -> None:
    rows = rows_that_fit(7.2e9, ATARI)
    assert rows * ATARI.nbytes <= 7.2e9 - 65_536 < (rows + 1) * ATARI.nbytes
    assert rows - 1_000_000 - 4 - 1 == 17_797  # what remains for slack


def test_a_folder_with_the_rows_that_fit_takes_no_more_disk_than_the_limit(tmp_path: Path) -> None:
    limit = 3_000_000
    slack = rows_that_fit(limit, ATARI) - 100 - 4 - 1
    store = FrameStore(100, (84, 84), num_actions=18, slack_rows=slack, folder=tmp_path)
    disk = sum(path.stat().st_blocks * 512 for path in (tmp_path, *tmp_path.iterdir()))
    assert store.nbytes <= disk <= limit
    assert limit - store.nbytes < 65_536 + ATARI.nbytes


def test_a_limit_below_one_row_fits_no_row() -> None:
    assert rows_that_fit(1_000, ATARI) == 0


def test_more_than_256_actions_take_two_bytes() -> None:
    assert RowLayout((), "uint8", 256).nbytes + 1 == RowLayout((), "uint8", 257).nbytes
    store = FrameStore(10, (), num_actions=30_000, stack=1)
    store.begin(0, np.array(0, np.uint8))
    store.append(0, 29_999, 0.0, 0.9, np.array(1, np.uint8), True)
    assert store.rings.actions[0] == 29_999


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (((2,), "float64", 4), "'uint8' or 'float32', got 'float64'"),
        (((0, 2), "uint8", 4), "positive sizes"),
        (((2,), "uint8", 0), "num_actions must be in 1..32768, got 0"),
        (((2,), "uint8", 32769), "num_actions must be in 1..32768, got 32769"),
    ],
)
def test_impossible_rows_are_rejected(layout: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RowLayout(*layout)


def test_slices_wrap_around_the_ring() -> None:
    rings = Rings(RowLayout((), "uint8", 4), 2, 5, folder=None, preallocate=False)
    for row in range(3, 8):
        rings.actions[rings.slot(1, row)] = row % 4
        rings.serials[rings.slot(1, row)] = row + 1
    slices = [rows.tolist() for rows in rings.slices("actions", 1, 3, 8)]
    assert slices == [[3, 0], [1, 2, 3]]  # rows 3 and 4, then 5 to 7
    assert [rows.tolist() for rows in rings.slices("actions", 1, 5, 6)] == [[1]]
    assert rings.slices("actions", 1, 5, 5) == []
    assert rings.holds(np.full(3, 1), np.array([2, 3, 7])).tolist() == [False, True, True]
    with pytest.raises(ValueError, match="rows 2 to 8 of environment 1 are not all stored"):
        rings.check_holds(1, 2, 8)
