"""Ring buffers: the layout of a row, slots and slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisynet.config import Config, build_config
from noisynet.replay import FrameStore, RowLayout
from noisynet.replay.rings import Rings

ATARI = RowLayout((84, 84), "uint8", 18)


def test_an_atari_row_takes_one_frame_and_eighteen_bytes() -> None:
    assert ATARI.nbytes == 84 * 84 + 18


def test_the_replay_of_a_run_on_atari_fits_in_seven_point_two_gigabytes(tmp_path: Path) -> None:
    config = build_config("dqn", "atari/pong")
    assert isinstance(config, Config)
    slack = 2 * (config.checkpoint_period_frames // 4 + 2)  # two periods between checkpoints
    rows = config.replay.capacity_steps + slack + 4 + 1
    small = FrameStore(100, (84, 84), num_actions=18, slack_rows=200, folder=tmp_path)
    disk = sum(path.stat().st_blocks * 512 for path in (tmp_path, *tmp_path.iterdir()))
    assert disk - small.nbytes < 65_536  # partly used blocks and layout.json
    assert rows * ATARI.nbytes + 65_536 <= 7.2e9


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
