"""A folder of memory-mapped files, one per column."""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

FORMAT_VERSION = 1
LAYOUT_FILE = "layout.json"

ColumnType: TypeAlias = tuple[np.dtype[Any], int]


def open_columns(
    columns: Mapping[str, ColumnType], slots: int, folder: Path, *, preallocate: bool
) -> dict[str, mmap.mmap]:
    """Map the file of every column; make the files if the folder is new, else check them.

    `layout.json` is written last. A folder without it was not completed and is made again.

    Args:
        columns: name → (dtype, values per row).
        slots: rows of every column.
        folder: folder of the files.
        preallocate: reserve all blocks now if the system can (`posix_fallocate`). Otherwise the
            files are sparse, and a disk that fills up later kills the process (SIGBUS).

    Raises:
        ValueError: the folder has another layout, or a file is missing or truncated.
        OSError: the disk has not enough space for the full size.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {
        folder / f"{name}.bin": slots * items * dtype.itemsize
        for name, (dtype, items) in columns.items()
    }
    layout = {
        "version": FORMAT_VERSION,
        "slots": slots,
        "columns": {name: [dtype.str, items] for name, (dtype, items) in columns.items()},
    }
    exists = (folder / LAYOUT_FILE).exists()
    if exists:
        _check_existing(folder, layout, sizes)
    _check_free_space(folder, sizes)
    try:
        maps = {
            path.stem: _map_file(path, size, exists, preallocate) for path, size in sizes.items()
        }
    except OSError as error:
        if not exists:
            for path in sizes:
                path.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            raise _no_space(folder, sum(sizes.values()), shutil.disk_usage(folder).free) from error
        raise
    if not exists:
        unfinished = folder / f"{LAYOUT_FILE}.tmp"
        with unfinished.open("w") as file:
            json.dump(layout, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(folder / LAYOUT_FILE)
    return maps


def _check_existing(folder: Path, layout: dict[str, Any], sizes: dict[Path, int]) -> None:
    found = _read_layout(folder / LAYOUT_FILE)
    if found != layout:
        keys = sorted(key for key in layout if found.get(key) != layout[key])
        differences = "; ".join(f"{k}: expected {layout[k]}, found {found.get(k)}" for k in keys)
        raise ValueError(
            f"{folder} has a replay of another layout ({differences}): use the settings that it "
            "was made with, or another folder"
        )
    for path, size in sizes.items():
        actual = path.stat().st_size if path.exists() else None
        if actual != size:
            found_size = "no file" if actual is None else f"{actual:,} bytes"
            raise ValueError(
                f"{path} should have {size:,} bytes, found {found_size}: the replay is damaged; "
                "restore the file from a backup, or delete the folder and start again"
            )


def _read_layout(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    try:
        found = json.loads(data)
    except ValueError:  # not JSON, or not UTF-8
        found = None
    if not isinstance(found, dict):
        content = repr(data[:40])[1:] if data else "an empty file"
        raise ValueError(
            f"{path} should describe the replay files as a JSON object, found {content}: the "
            "replay is damaged; restore the file from a backup, or delete the folder and start "
            "again"
        )
    return found


def _check_free_space(folder: Path, sizes: dict[Path, int]) -> None:
    """Raise OSError, before any file is made, if the full size does not fit on the disk."""
    free = shutil.disk_usage(folder).free
    # Blocks that the files already have are used again, or freed first.
    owned = sum(path.stat().st_blocks * 512 for path in sizes if path.exists())
    needed = sum(sizes.values())
    if needed > free + owned:
        raise _no_space(folder, needed, free)


def _no_space(folder: Path, needed: int, free: int) -> OSError:
    return OSError(
        errno.ENOSPC,
        f"the replay needs {needed:,} bytes in {folder}, {free:,} are free: free some space, "
        "choose another folder, or lower capacity or slack_rows",
    )


def _map_file(path: Path, size: int, exists: bool, preallocate: bool) -> mmap.mmap:
    flags = os.O_RDWR if exists else os.O_RDWR | os.O_CREAT | os.O_TRUNC
    descriptor = os.open(path, flags, 0o644)
    try:
        os.ftruncate(descriptor, size)
        if preallocate and hasattr(os, "posix_fallocate"):  # macOS has none
            os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
