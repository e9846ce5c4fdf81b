"""Storage of a replay: ring buffers in which each frame is stored once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisynet.replay.columns import Array, BoolArray, Columns, IntArray, RowLayout

_LARGEST = float(np.finfo(np.float32).max)


class FrameStore:
    """One ring buffer of rows per environment, in memory or memory-mapped in a folder.

    Row t has the newest frame of x_t, the age of the episode, and the transition that starts there:
    action, reward, discount. An episode of T steps takes T + 1 rows. Its last row has the true
    final frame and starts no transition, so y of the last transition is right for terminated and
    truncated episodes. The rows of an environment are numbered from 0 and never renumbered.

    Only the newest `capacity // num_envs` rows of each environment, the *window*, are sampled. The
    ring is larger by `slack_rows + stack + n_step`: the window of a checkpoint stays intact until
    that many more rows are written. For two checkpoints, pass twice the rows between them.

    Args:
        capacity: rows that can be sampled, over all environments.
        frame_shape: shape of one frame; observations are `[stack, *frame_shape]`.
        frame_dtype: `"uint8"` or `"float32"`.
        num_actions: number of discrete actions.
        num_envs: number of environments, each with its own ring.
        stack: frames in an observation; those before an episode's first frame are zeros.
        n_step: steps over which returns are summed.
        slack_rows: additional rows of each ring, see above.
        most_rows: rows that an environment will have in all, if that is known: a ring of so many
            never wraps, and is the same as a longer one. It may be raised for an existing folder.
        folder: folder of the memory-mapped files; None for memory. A folder that already has rows
            counts as empty until `restore`.
        read_only: whether to open existing files for reading only.
    """

    def __init__(
        self,
        capacity: int,
        frame_shape: tuple[int, ...],
        *,
        frame_dtype: str = "uint8",
        num_actions: int,
        num_envs: int = 1,
        stack: int = 4,
        n_step: int = 1,
        slack_rows: int = 0,
        most_rows: int | None = None,
        folder: Path | str | None = None,
        read_only: bool = False,
    ) -> None:
        for name, value, least in (
            ("num_envs", num_envs, 1),
            ("stack", stack, 1),
            ("n_step", n_step, 1),
            ("slack_rows", slack_rows, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if capacity // num_envs < stack + n_step:
            raise ValueError(
                f"capacity must be at least num_envs * (stack + n_step) = "
                f"{num_envs * (stack + n_step)}, got {capacity}: no transition would fit"
            )
        self.layout = RowLayout(tuple(frame_shape), frame_dtype, num_actions)
        self.num_envs = num_envs
        self.stack = stack
        self.n_step = n_step
        self.window_rows = capacity // num_envs
        self.ring_rows = self.window_rows + slack_rows + stack + n_step
        if most_rows is not None:
            self.ring_rows = min(self.ring_rows, max(most_rows, stack + n_step))
        self.folder = None if folder is None else Path(folder)
        slots = num_envs * self.ring_rows
        self.columns = Columns(self.layout, slots, self.folder, read_only)
        self.written: IntArray = np.zeros(num_envs, np.int64)  # [E] rows so far
        self.running = [False] * num_envs  # [E] whether the newest row has no action yet
        # [E] Newest row at which returns stop (discount 0, or the end of the episode), or -1.
        self._stops: IntArray = np.full(num_envs, -1, np.int64)
        self._checksums: npt.NDArray[np.uint32] = np.zeros(slots, np.uint32)

    @classmethod
    def read(cls, state: dict[str, Any], folder: Path) -> FrameStore:
        """Open the files of a state to read them, and restore it; errors are those of `restore`."""
        layout = state["layout"]
        stack, n_step, envs = layout["stack"], layout["n_step"], layout["num_envs"]
        store = cls(
            layout["window_rows"] * envs,
            tuple(layout["frame_shape"]),
            frame_dtype=layout["frame_dtype"],
            num_actions=layout["num_actions"],
            num_envs=envs,
            stack=stack,
            n_step=n_step,
            slack_rows=max(0, layout["ring_rows"] - layout["window_rows"] - stack - n_step),
            most_rows=layout["ring_rows"],
            folder=folder,
            read_only=True,
        )
        store.restore(state)
        return store

    @property
    def nbytes(self) -> int:
        """Bytes of all columns; the size on disk, without `layout.json`."""
        return self.layout.nbytes * self.num_envs * self.ring_rows

    def slots(self, env: IntArray | int, row: IntArray) -> IntArray:
        """Return the slots of rows of environments; the arrays are broadcast.

        The rings are interleaved: row r of all environments, then row r + 1.
        """
        slots: IntArray = row % self.ring_rows * self.num_envs + env
        return slots

    def slot(self, env: int, row: int) -> int:
        """Return the slot of one row."""
        return row % self.ring_rows * self.num_envs + env

    # Writing -------------------------------------------------------------------------------------

    def begin(self, env: int, frame: Array) -> None:
        """Start an episode of environment `env` with its first frame."""
        self._check_env(env)
        if self.running[env]:
            raise RuntimeError(
                f"environment {env} has a running episode: end it with "
                "append(..., episode_over=True) before begin"
            )
        self._put(env, self._checked(frame), age=0)
        self.running[env] = True

    def begin_within(self, env: int, frames: Sequence[Array], age: int) -> None:
        """Start with an episode of environment `env` that is already running.

        Args:
            env: index of the environment; it has no rows yet.
            frames: newest frames of the current observation, at most `stack`, the newest last.
            age: steps of the episode so far.
        """
        self._check_env(env)
        for before in reversed(range(min(len(frames), age + 1))):
            slot = self._put(env, self._checked(frames[-1 - before]), age - before)
            self._checksums[slot] = self.columns.checksum(slot)
        self.running[env] = True

    def append(
        self,
        env: int,
        action: int,
        reward: float,
        discount: float,
        next_frame: Array,
        episode_over: bool,
    ) -> None:
        """Add one step of environment `env`.

        Args:
            env: index of the environment.
            action: action taken at the newest frame.
            reward: its reward, clipped if training clips rewards.
            discount: γ, or 0 at a termination or the loss of a life. Truncation keeps γ.
            next_frame: newest frame of the next observation; the true final one at the end.
            episode_over: whether the episode ended. A lost life alone does not end it.
        """
        self._check_env(env)
        if not self.running[env]:
            raise RuntimeError(f"environment {env} has no running episode: call begin first")
        if not 0 <= action < self.layout.num_actions:
            raise ValueError(
                f"action must be in 0..{self.layout.num_actions - 1} (num_actions), got {action}"
            )
        if not (abs(reward) <= _LARGEST and 0.0 <= discount <= 1.0):  # NaN fails both
            raise ValueError(
                f"expected a finite float32 reward and a discount in [0, 1], "
                f"got {reward} and {discount}"
            )
        frame = self._checked(next_frame)
        row = int(self.written[env]) - 1
        slot, columns = self.slot(env, row), self.columns
        columns.actions[slot] = action
        columns.rewards[slot] = reward
        columns.discounts[slot] = discount
        columns.starts[slot] = True
        self._checksums[slot] = columns.checksum(slot)
        last = self._put(env, frame, age=int(columns.ages[slot]) + 1)
        self.running[env] = not episode_over
        if episode_over:
            self._checksums[last] = columns.checksum(last)
        if episode_over or columns.discounts[slot] == 0:  # as stored: float32 may round to 0
            self._stops[env] = row

    def _put(self, env: int, frame: Array, age: int) -> int:
        """Write a row without a transition, in every column; return its slot."""
        row, columns = int(self.written[env]), self.columns
        slot = self.slot(env, row)
        columns.frames[slot] = frame.reshape(-1)
        columns.actions[slot], columns.rewards[slot], columns.discounts[slot] = 0, 0.0, 0.0
        columns.starts[slot] = False
        columns.ages[slot] = age
        columns.serials[slot] = (row + 1) % 2**32
        self.written[env] = row + 1
        return slot

    # Reading -------------------------------------------------------------------------------------

    def bounds(self) -> tuple[IntArray, IntArray]:
        """Return the first row of each window and the row after its last complete return; [E]."""
        low = np.maximum(self.written - self.window_rows, 0)
        # A return is complete n rows later, or at a stop.
        high = np.maximum(self.written - self.n_step, self._stops + 1)
        return low, np.maximum(high, low)

    def can_start(self, env: IntArray, row: IntArray, low: IntArray) -> BoolArray:
        """Whether a transition starts at each row and its stack is inside the window; [B].

        Args:
            env: environments [B].
            row: rows within the bounds [B].
            low: first row of each environment's window [E].
        """
        slots = self.slots(env, row)
        reach = np.minimum(self.columns.ages[slots], self.stack - 1)  # older frames are zeros
        fits: BoolArray = self.columns.starts[slots] & (row - reach >= low[env])
        return fits

    def count(self) -> int:
        """Return the number of transitions that can be sampled."""
        low, high = self.bounds()
        total = 0
        for env in range(self.num_envs):
            rows = np.arange(low[env], high[env])
            total += int(np.count_nonzero(self.can_start(np.full_like(rows, env), rows, low)))
        return total

    def read_runs(self, env: IntArray, row: IntArray, ahead: int, out: Array) -> None:
        """Read the stack at each row and the `ahead` frames after it, without checks.

        Args:
            env: environments [B].
            row: rows [B].
            ahead: number of frames after each row, of the same episode.
            out: receives the frames [B, stack + ahead, frame_items], contiguous.
        """
        offsets = np.arange(1 - self.stack, ahead + 1)  # [K]
        slots = self.slots(env[:, None], row[:, None] + offsets)  # [B, K]
        # mode="clip" avoids the buffer that mode="raise" copies through; all slots are valid.
        np.take(self.columns.frames, slots, axis=0, out=out, mode="clip")
        if self.stack > 1:
            ages = self.columns.ages[self.slots(env, row)].astype(np.int64)
            before = -offsets > ages[:, None]  # [B, K] frames before the episode
            if before.any():
                out[before] = 0

    # State ---------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return JSON-able counters for `restore`; without a folder, also copies of the columns."""
        state: dict[str, Any] = {
            "layout": self._layout(),
            "written": self.written.tolist(),
            "running": list(self.running),
            "stops": self._stops.tolist(),
            "sha256": self.digest(),
            "begun": self._begun(),
        }
        if self.folder is None:
            used = min(int(self.written.max()), self.ring_rows) * self.num_envs
            arrays = self.columns.arrays
            state["columns"] = {name: array[:used].copy() for name, array in arrays.items()}
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state; rows that were written later are overwritten again.

        Raises:
            ValueError: the layout differs, or rows of the state's window were overwritten or
                changed.
        """
        # A ring that has not wrapped may be longer now; one that has fails the check of serials.
        if {**state["layout"], "ring_rows": self.ring_rows} != self._layout():
            raise ValueError(
                f"expected a state of a store with {self._layout()}, got {state['layout']}: make "
                "the store with the settings of the state"
            )
        for name, saved in state.get("columns", {}).items():
            self.columns.arrays[name][: len(saved)] = saved
        self.written[:] = state["written"]
        self.running = list(state["running"])
        self._stops[:] = state["stops"]
        for env in range(self.num_envs):
            self._check_serials(env)
            for slot in self._complete(env).tolist():
                self._checksums[slot] = self.columns.checksum(slot)
        # Older states have no checksums of rows that wait for their actions.
        begun = state.get("begun", self._begun())
        if self.digest() != state["sha256"] or self._begun() != begun:
            raise ValueError(
                "the rows do not match their SHA-256: they were changed after the state was taken; "
                "restore the files from a backup"
            )

    def _check_serials(self, env: int) -> None:
        rows = np.arange(max(0, self.written[env] - self.window_rows), self.written[env])
        if np.any(self.columns.serials[self.slots(env, rows)] != (rows + 1) % 2**32):
            raise ValueError(
                f"rows {rows[0]} to {rows[-1] + 1} of environment {env} are not all stored: they "
                "were overwritten or never written; use a newer state, more slack_rows, or the "
                "folder of the state"
            )

    def _complete(self, env: int) -> IntArray:
        """Return the slots of all rows in a window but the one that still waits for its action."""
        written = int(self.written[env])
        first = max(0, written - self.window_rows)
        return self.slots(env, np.arange(first, written - self.running[env]))

    def _begun(self) -> list[int]:
        """Return a checksum of the row of each environment that still waits for its action."""
        return [
            self.columns.checksum(self.slot(env, int(self.written[env]) - 1), begun=True)
            for env in range(self.num_envs)
            if self.running[env]
        ]

    def digest(self) -> str:
        """Return the SHA-256 of the windows, the same in memory and on disk.

        It is computed from a checksum of each row, made when the row was completed or restored.
        """
        layout = self._layout() | {"ring_rows": None, "running": self.running}
        digest = hashlib.sha256(json.dumps([layout, self.written.tolist()]).encode())
        for env in range(self.num_envs):
            digest.update(self._checksums[self._complete(env)].data)
        return digest.hexdigest()

    def flush(self) -> None:
        """Sync the files."""
        self.columns.flush()

    def _layout(self) -> dict[str, Any]:
        return {
            "frame_shape": list(self.layout.frame_shape),
            "frame_dtype": self.layout.frame_dtype,
            "num_actions": self.layout.num_actions,
            "num_envs": self.num_envs,
            "stack": self.stack,
            "n_step": self.n_step,
            "window_rows": self.window_rows,
            "ring_rows": self.ring_rows,
        }

    def _check_env(self, env: int) -> None:
        if not 0 <= env < self.num_envs:
            raise IndexError(f"env must be in 0..{self.num_envs - 1}, got {env}")

    def _checked(self, frame: Array) -> Array:
        frame = np.asarray(frame)
        if frame.shape != self.layout.frame_shape or frame.dtype != self.layout.frame_dtype:
            raise ValueError(
                f"expected a frame of shape {self.layout.frame_shape} and dtype "
                f"{self.layout.frame_dtype}, got {frame.shape} and {frame.dtype}"
            )
        return frame
