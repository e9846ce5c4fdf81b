"""The columns of a replay: arrays in memory, or files that are mapped into memory."""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
import shutil
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from noisynet.runs.files import open_file, read_file, remove_file, remove_temporaries
from noisynet.runs.files import write_atomically as write_file

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]

_FORMAT_VERSION = 2
_LAYOUT_FILE = "layout.json"
_LONGEST_LAYOUT = 1 << 16
_BEGUN = ("frames", "ages", "serials")


@dataclass(frozen=True)
class RowLayout:
    """Layout of a row: the newest frame of an observation and the transition that starts there.

    Attributes:
        frame_shape: shape of one frame, e.g. `(84, 84)`.
        frame_dtype: `"uint8"` or `"float32"`.
        num_actions: number of discrete actions; an action takes one byte for up to 256, else two.
    """

    frame_shape: tuple[int, ...]
    frame_dtype: str = "uint8"
    num_actions: int = 18

    def __post_init__(self) -> None:
        if self.frame_dtype not in ("uint8", "float32"):
            raise ValueError(
                f"frame_dtype must be 'uint8' or 'float32', got {self.frame_dtype!r}: convert the "
                "observations first"
            )
        if any(size < 1 for size in self.frame_shape):
            raise ValueError(f"frame_shape needs positive sizes, got {self.frame_shape}")
        if not 1 <= self.num_actions <= np.iinfo(np.int16).max + 1:
            raise ValueError(f"num_actions must be in 1..32768, got {self.num_actions}")

    @property
    def frame_items(self) -> int:
        """Number of values in one frame."""
        return math.prod(self.frame_shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return sum(dtype.itemsize * items for dtype, items in self.columns().values())

    def columns(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """Return name → (dtype, values per row) of every column."""
        action = np.uint8 if self.num_actions <= 256 else np.int16
        return {
            "frames": (np.dtype(self.frame_dtype), self.frame_items),
            "actions": (np.dtype(action), 1),
            "rewards": (np.dtype(np.float32), 1),
            "discounts": (np.dtype(np.float32), 1),
            "ages": (np.dtype(np.uint32), 1),
            "starts": (np.dtype(np.bool_), 1),
            "serials": (np.dtype(np.uint32), 1),
        }


class Columns:
    """Arrays with one entry per slot, each in a file of its own if there is a folder.

    `layout.json` is written last. A folder without it was not completed and is made again. Files
    with fewer slots grow. All disk space is reserved at once if the system can (`posix_fallocate`).
    Otherwise the files are sparse, and a disk that fills up later kills the process (SIGBUS).

    Raises:
        ValueError: the folder has another layout, or a file is missing or truncated.
        OSError: the disk has not enough space for the full size.
    """

    frames: Array  # [slots, frame_items]
    actions: Array  # [slots], as are all that follow
    rewards: npt.NDArray[np.float32]
    discounts: npt.NDArray[np.float32]
    ages: npt.NDArray[np.uint32]
    starts: BoolArray
    serials: npt.NDArray[np.uint32]

    def __init__(
        self, layout: RowLayout, slots: int, folder: Path | None = None, read_only: bool = False
    ) -> None:
        self._maps: dict[str, mmap.mmap] = {}
        if folder is not None:
            self._maps = _open_files(layout, slots, folder, read_only)
        self.arrays: dict[str, Array] = {}
        for name, (dtype, items) in layout.columns().items():
            shape = (slots, items) if name == "frames" else (slots,)
            # A plain array on the mapping: scalar access to np.memmap is slower.
            mapped = self._maps.get(name)
            array = np.zeros(shape, dtype) if mapped is None else np.frombuffer(mapped, dtype)
            self.arrays[name] = array.reshape(shape)
            setattr(self, name, self.arrays[name])

    def checksum(self, slot: int, begun: bool = False) -> int:
        """Return the CRC-32 of a row, its number included.

        Of a row that has only `begun`, and still waits for its action, just the columns that the
        action does not change.
        """
        checksum = 0
        for name in _BEGUN if begun else self.arrays:
            checksum = zlib.crc32(self.arrays[name][slot : slot + 1].data, checksum)
        return checksum

    def flush(self) -> None:
        """Sync the files (msync)."""
        for mapped in self._maps.values():
            mapped.flush()


def delete_columns(folder: Path) -> None:
    """Delete the files of a replay, and the folder if nothing else is in it. Raises `OSError`."""
    names = RowLayout((1,)).columns()
    # layout.json first: a folder without it is not read any more.
    for path in (folder / _LAYOUT_FILE, *(folder / f"{name}.bin" for name in names)):
        with suppress(FileNotFoundError):
            remove_file(path)
    remove_temporaries(folder)
    with suppress(OSError):
        folder.rmdir()


def _open_files(
    layout: RowLayout, slots: int, folder: Path, read_only: bool
) -> dict[str, mmap.mmap]:
    """Map the file of every column; make the files if the folder is new, else check or grow them.

    Files that grow keep their rows: as long as a ring has not wrapped, row r of a longer ring is in
    the same slot. `layout.json` follows the files, which may therefore be longer than it says.
    """
    if not read_only:
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(folder)
    columns = {name: [dtype.str, items] for name, (dtype, items) in layout.columns().items()}
    description = {"version": _FORMAT_VERSION, "slots": slots, "columns": columns}
    row_bytes = {
        folder / f"{name}.bin": items * dtype.itemsize
        for name, (dtype, items) in layout.columns().items()
    }
    exists = read_only or os.path.lexists(folder / _LAYOUT_FILE)
    found_slots = _check_existing(folder, description, row_bytes) if exists else 0
    if read_only:
        return {path.stem: _map_to_read(path, slots * size) for path, size in row_bytes.items()}
    needed, free = slots * sum(row_bytes.values()), shutil.disk_usage(folder).free
    # Blocks that the files already have are used again, or freed first.
    owned = sum(path.stat().st_blocks * 512 for path in row_bytes if path.exists())
    if needed > free + owned:
        raise _no_space(folder, needed)
    try:
        maps = {
            path.stem: _map_file(path, slots * size, exists) for path, size in row_bytes.items()
        }
    except OSError as error:
        if not exists:
            for path in filter(os.path.lexists, row_bytes):
                remove_file(path)
        raise _no_space(folder, needed) if error.errno == errno.ENOSPC else error from error
    if found_slots < slots:
        write_file(folder / _LAYOUT_FILE, json.dumps(description).encode())
    return maps


def _check_existing(folder: Path, expected: dict[str, Any], row_bytes: dict[Path, int]) -> int:
    """Check the files against `layout.json`; return the number of their slots."""
    found = _read_description(folder / _LAYOUT_FILE)
    keys = [key for key in ("version", "columns") if found.get(key) != expected[key]]
    if keys:
        differences = "; ".join(f"{k}: expected {expected[k]}, found {found.get(k)}" for k in keys)
        raise ValueError(
            f"{folder} has a replay of another layout ({differences}): use the settings that it "
            "was made with, or another folder"
        )
    slots = found.get("slots")
    if not isinstance(slots, int) or not 0 <= slots < 2**40:
        raise _damaged(f"{folder / _LAYOUT_FILE} has {slots!r} slots")
    for path, size in row_bytes.items():
        actual = path.stat().st_size if path.exists() else -1
        if actual < slots * size:
            found_size = "no file" if actual < 0 else f"{actual:,} bytes"
            raise _damaged(f"{path} should have {slots * size:,} bytes, found {found_size}")
    return slots


def _read_description(path: Path) -> dict[str, Any]:
    data = read_file(path, _LONGEST_LAYOUT)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):  # not JSON, or not UTF-8
        found = None
    if not isinstance(found, dict):
        content = repr(data[:40])[1:] if data else "an empty file"
        raise _damaged(f"{path} should describe the replay files as a JSON object, found {content}")
    return found


def _damaged(what: str) -> ValueError:
    return ValueError(
        f"{what}: the replay is damaged; restore the file from a backup, or delete the folder and "
        "start again"
    )


def _no_space(folder: Path, needed: int) -> OSError:
    free = shutil.disk_usage(folder).free
    return OSError(
        errno.ENOSPC,
        f"the replay needs {needed:,} bytes in {folder}, {free:,} are free: free some space, "
        "choose another folder, or lower capacity or slack_rows",
    )


def _map_to_read(path: Path, size: int) -> mmap.mmap:
    descriptor = open_file(path)
    try:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)


def _map_file(path: Path, size: int, exists: bool) -> mmap.mmap:
    descriptor = open_file(path, os.O_RDWR if exists else os.O_RDWR | os.O_CREAT)
    try:
        if not exists:
            os.ftruncate(descriptor, 0)
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)
        if hasattr(os, "posix_fallocate"):  # macOS has none
            os.posix_fallocate(descriptor, 0, size)
        os.fsync(descriptor)  # the length is on the disk before layout.json says it
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
