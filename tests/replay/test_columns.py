"""Columns of a replay: the layout of a row, and files: sizes, space, what a folder has."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from noisynet.config import Config, build_config
from noisynet.replay import FrameStore, RowLayout

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
    assert store.columns.actions[0] == 29_999


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


def test_the_checksum_of_a_row_depends_on_every_column_and_on_nothing_else() -> None:
    store = make_store(None)
    for env in (0, 1):
        store.begin(env, np.full((8, 8), 7, np.uint8))
        store.append(env, 1, 1.0, 0.9, np.full((8, 8), 8, np.uint8), False)
    before = [store.columns.checksum(slot) for slot in range(4)]
    assert len(set(before[:2])) == 1  # the same row of another environment
    assert len(set(before)) == 2
    for array in store.columns.arrays.values():
        array[2] = ~array[2] if array.dtype == np.bool_ else array[2] + 1
        after = [store.columns.checksum(slot) for slot in range(4)]
        assert [slot for slot in range(4) if after[slot] != before[slot]] == [2]
        before = after


# --- files ---------------------------------------------------------------------------------------


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def make_store(folder: Path | None, **changes: Any) -> FrameStore:
    settings: dict[str, Any] = {"num_actions": 4, "num_envs": 2, "stack": 2, "slack_rows": 5}
    return FrameStore(40, (8, 8), folder=folder, **(settings | changes))


def test_the_files_have_the_size_of_nbytes(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert store.ring_rows == 40 // 2 + 5 + 2 + 1
    assert sum(path.stat().st_size for path in tmp_path.glob("*.bin")) == store.nbytes
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "actions.bin",
        "ages.bin",
        "discounts.bin",
        "frames.bin",
        "layout.json",
        "rewards.bin",
        "serials.bin",
        "starts.bin",
    ]


def test_disk_space_is_reserved_at_once(tmp_path: Path) -> None:
    store = make_store(tmp_path, slack_rows=20_000)
    reserved = (tmp_path / "frames.bin").stat().st_blocks * 512
    assert reserved >= 2 * store.ring_rows * 64


def test_a_disk_without_space_fails_before_any_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 10**6 - 999, 999))
    with pytest.raises(OSError, match=r"needs [\d,]+ bytes .* 999 are free") as caught:
        make_store(tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_during_preallocation_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved = []

    def full(descriptor: int, offset: int, size: int) -> None:
        reserved.append(size)
        if len(reserved) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="free some space"):
        make_store(tmp_path)
    assert len(reserved) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_does_not_prevent_reopening_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 10**6, 0))
    make_store(tmp_path)


def test_a_folder_of_another_layout_is_rejected_and_kept(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.begin(0, np.full((8, 8), 7, np.uint8))
    with pytest.raises(ValueError, match=r"another layout \(columns: expected .*, found "):
        make_store(tmp_path, num_actions=300)
    assert store.columns.frames[0, 0] == 7


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_file_is_reported(tmp_path: Path, damage: str) -> None:
    make_store(tmp_path)
    if damage == "cut":
        os.truncate(tmp_path / "rewards.bin", 8)
    else:
        (tmp_path / "rewards.bin").unlink()
    found = "8 bytes" if damage == "cut" else "no file"
    with pytest.raises(ValueError, match=rf"rewards.bin should have 224 bytes, found {found}"):
        make_store(tmp_path)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "an empty file"),
        (b'{"version": 2, "slo', r"""'{"version": 2, "slo'"""),
        (b"\xff\xfe", r"'\\xff\\xfe'"),
        (b"[1, 2]", r"'\[1, 2\]'"),
    ],
)
def test_a_damaged_layout_is_reported_with_what_to_do(
    tmp_path: Path, data: bytes, found: str
) -> None:
    make_store(tmp_path)
    (tmp_path / "layout.json").write_bytes(data)
    message = rf"{tmp_path}/layout\.json should describe .* found {found}: .* restore the file"
    with pytest.raises(ValueError, match=message):
        make_store(tmp_path)
    assert (tmp_path / "layout.json").read_bytes() == data


def test_an_incomplete_folder_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "frames.bin").write_bytes(b"x" * 100)
    store = make_store(tmp_path)
    assert not store.columns.frames.any()


def test_files_grow_and_keep_their_rows(tmp_path: Path) -> None:
    store = make_store(tmp_path, most_rows=8)
    store.begin(1, np.full((8, 8), 7, np.uint8))
    small = store.nbytes
    larger = make_store(tmp_path)
    assert (larger.columns.frames[1] == 7).all()
    assert not larger.columns.frames[2:].any()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.bin")) == larger.nbytes > small


def test_files_that_grew_before_a_kill_are_opened_in_either_size(tmp_path: Path) -> None:
    make_store(tmp_path, most_rows=8)
    os.truncate(tmp_path / "frames.bin", 2 * 28 * 64)  # the other files have not grown yet
    make_store(tmp_path, most_rows=8)
    store = make_store(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.glob("*.bin")) == store.nbytes
