"""The ring buffers of a replay: one per environment, with one array per column."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from noisynet.replay.mapped_files import ColumnType, open_columns

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]


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

    def columns(self) -> dict[str, ColumnType]:
        """Return name → (dtype, values per row) of every column, in the order of hashing."""
        action = np.uint8 if self.num_actions <= 256 else np.int16
        return {
            "frames": (np.dtype(self.frame_dtype), self.frame_items),
            "actions": (np.dtype(action), 1),
            "rewards": (np.dtype(np.float32), 1),
            "discounts": (np.dtype(np.float32), 1),
            "ages": (np.dtype(np.uint32), 1),
            "starts": (np.dtype(np.bool_), 1),
            # Row number + 1, 0 if never written: `restore` detects overwritten rows by it.
            "serials": (np.dtype(np.uint32), 1),
        }

    @property
    def nbytes(self) -> int:
        """Bytes of one row over all columns."""
        return sum(dtype.itemsize * items for dtype, items in self.columns().values())


class Rings:
    """Columns of `num_envs` rings of `ring_rows` rows, in memory or memory-mapped in a folder.

    The rows of an environment are numbered from 0 and never renumbered. Row r of environment e is
    in slot `e * ring_rows + r % ring_rows` of every column.

    Args:
        layout: layout of a row.
        num_envs: number of rings.
        ring_rows: rows of each ring.
        folder: folder of the files; None for memory.
        preallocate: reserve the disk space now (see `mapped_files.open_columns`).
    """

    frames: Array  # [slots, frame_items]
    actions: Array  # [slots], as are all that follow
    rewards: npt.NDArray[np.float32]
    discounts: npt.NDArray[np.float32]
    ages: npt.NDArray[np.uint32]
    starts: BoolArray
    serials: npt.NDArray[np.uint32]

    def __init__(
        self,
        layout: RowLayout,
        num_envs: int,
        ring_rows: int,
        *,
        folder: Path | None,
        preallocate: bool,
    ) -> None:
        columns = layout.columns()
        self.names = tuple(columns)
        self.num_envs = num_envs
        self.ring_rows = ring_rows
        slots = num_envs * ring_rows
        self._maps: dict[str, mmap.mmap] = {}
        if folder is not None:
            self._maps = open_columns(columns, slots, folder, preallocate=preallocate)
        for name, (dtype, items) in columns.items():
            shape = (slots, items) if name == "frames" else (slots,)
            if folder is None:
                setattr(self, name, np.zeros(shape, dtype))
            else:
                # A plain array: scalar access to np.memmap is slower.
                setattr(self, name, np.frombuffer(self._maps[name], dtype).reshape(shape))

    def slots(self, env: IntArray, row: IntArray) -> IntArray:
        """Return the slots of rows of environments; the arrays are broadcast."""
        slots: IntArray = env * self.ring_rows + row % self.ring_rows
        return slots

    def slot(self, env: int, row: int) -> int:
        """Return the slot of one row."""
        return env * self.ring_rows + row % self.ring_rows

    def by_env(self, name: str) -> Array:
        """Return a view of one column [num_envs, ring_rows, ...]."""
        column: Array = getattr(self, name)
        return column.reshape(self.num_envs, self.ring_rows, *column.shape[1:])

    def slices(self, name: str, env: int, start: int, stop: int) -> list[Array]:
        """Return rows `start` to `stop` of one column: one slice, or two if the ring wraps."""
        ring = self.by_env(name)[env]
        first, count = start % self.ring_rows, stop - start
        slices = [ring[first : first + count], ring[: max(0, first + count - self.ring_rows)]]
        return [rows for rows in slices if len(rows)]

    def bytes_of(self, env: int, start: int, stop: int) -> list[memoryview]:
        """Return the bytes of rows `start` to `stop`, column after column."""
        return [
            rows.data.cast("B")
            for name in self.names
            for rows in self.slices(name, env, start, stop)
        ]

    def holds(self, env: IntArray, row: IntArray) -> BoolArray:
        """Whether each row is stored: written and not overwritten; [B]."""
        stored: BoolArray = self.serials[self.slots(env, row)] == (row + 1) % 2**32
        return stored & (row >= 0)

    def check_holds(self, env: int, start: int, stop: int) -> None:
        """Raise ValueError unless rows `start` to `stop` are stored."""
        rows = np.arange(start, stop)
        if not self.holds(np.full_like(rows, env), rows).all():
            raise ValueError(
                f"rows {start} to {stop} of environment {env} are not all stored: they were "
                "overwritten or never written; use a newer state, more slack_rows, or the folder "
                "of the state"
            )

    def blank(self, slot: int) -> None:
        """Clear the transition of a row."""
        self.starts[slot] = False
        self.actions[slot] = 0
        self.rewards[slot] = 0.0
        self.discounts[slot] = 0.0

    def flush(self) -> None:
        """Sync the files (msync)."""
        for mapped in self._maps.values():
            mapped.flush()
