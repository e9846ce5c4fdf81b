"""Storage of a replay: ring buffers in which each frame is stored once."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from noisynet.replay.rings import Array, BoolArray, IntArray, Rings, RowLayout

_LARGEST = float(np.finfo(np.float32).max)


class FrameStore:
    """One ring buffer of rows per environment, in memory or memory-mapped in a folder.

    Row t has the newest frame of x_t, the age of the episode, and the transition that starts there:
    action, reward, discount. An episode of T steps takes T + 1 rows. Its last row has the true
    final frame and starts no transition, so y of the last transition is right for terminated and
    truncated episodes. The rows of an environment are numbered from 0 and never renumbered; row r
    is in slot r mod `ring_rows`.

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
        folder: folder of the memory-mapped files; None for memory. A folder that already has rows
            counts as empty until `restore`.
        preallocate: reserve the disk space now, so that a full disk cannot kill the run later.
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
        folder: Path | str | None = None,
        preallocate: bool = True,
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
        self.folder = None if folder is None else Path(folder)
        self.rings = Rings(
            self.layout, num_envs, self.ring_rows, folder=self.folder, preallocate=preallocate
        )
        self.written: IntArray = np.zeros(num_envs, np.int64)  # [E] rows so far
        self._open = [False] * num_envs  # whether the newest row has no action yet
        # [E] Newest row at which returns stop (discount 0, or the end of the episode), or -1.
        self._stops: IntArray = np.full(num_envs, -1, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns; the size on disk, without `layout.json`."""
        return self.num_envs * self.ring_rows * self.layout.nbytes

    # Writing -------------------------------------------------------------------------------------

    def begin(self, env: int, frame: Array) -> None:
        """Start an episode of environment `env` with its first frame."""
        self._check_env(env)
        if self._open[env]:
            raise RuntimeError(
                f"environment {env} has a running episode: end it with "
                "append(..., episode_over=True) before begin"
            )
        self._put(env, self._checked(frame), age=0)
        self._open[env] = True

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
        if not self._open[env]:
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
        slot = self.rings.slot(env, row)
        rings = self.rings
        rings.actions[slot] = action
        rings.rewards[slot] = reward
        rings.discounts[slot] = discount
        rings.starts[slot] = True
        self._put(env, frame, age=int(rings.ages[slot]) + 1)
        self._open[env] = not episode_over
        if episode_over or rings.discounts[slot] == 0:  # as stored: float32 may round to 0
            self._stops[env] = row

    def _put(self, env: int, frame: Array, age: int) -> None:
        """Write a row without a transition, in every column: rows are hashed as a whole."""
        row = int(self.written[env])
        slot = self.rings.slot(env, row)
        self.rings.frames[slot] = frame.reshape(-1)
        self.rings.blank(slot)
        self.rings.ages[slot] = age
        self.rings.serials[slot] = (row + 1) % 2**32
        self.written[env] = row + 1

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
        slots = self.rings.slots(env, row)
        reach = np.minimum(self.rings.ages[slots], self.stack - 1)  # older frames are zeros
        fits: BoolArray = self.rings.starts[slots] & (row - reach >= low[env])
        return fits

    def count(self) -> int:
        """Return the number of transitions that can be sampled."""
        low, high = self.bounds()
        total = 0
        for env in range(self.num_envs):
            first, last = int(low[env]), int(high[env])
            total += sum(
                int(np.count_nonzero(rows))
                for rows in self.rings.slices("starts", env, first, last)
            )
            edge = np.arange(first, min(first + self.stack - 1, last))
            envs = np.full_like(edge, env)
            starts = self.rings.starts[self.rings.slots(envs, edge)]
            total -= int(np.count_nonzero(starts & ~self.can_start(envs, edge, low)))
        return total

    def stacks(self, env: IntArray, row: IntArray) -> Array:
        """Return the observations at stored rows as a new array [B, stack, *frame_shape]."""
        env, row = np.asarray(env, np.int64), np.asarray(row, np.int64)
        if np.any((env < 0) | (env >= self.num_envs)):
            raise IndexError(f"env must be in 0..{self.num_envs - 1}, got {env.tolist()}")
        oldest = row - np.minimum(self.rings.ages[self.rings.slots(env, row)], self.stack - 1)
        stored = self.rings.holds(env, row) & self.rings.holds(env, oldest)
        if not np.all(stored & (row < self.written[env])):
            raise IndexError(
                f"rows {row.tolist()} of environments {env.tolist()} are not all stored with their "
                f"stacks: {self.written.tolist()} rows were written to rings of {self.ring_rows}"
            )
        out = np.empty((len(row), self.stack, self.layout.frame_items), self.layout.frame_dtype)
        self.read_runs(env, row, 0, out)
        return out.reshape(len(row), self.stack, *self.layout.frame_shape)

    def read_runs(self, env: IntArray, row: IntArray, ahead: int, out: Array) -> None:
        """Read the stack at each row and the `ahead` frames after it, without checks.

        Args:
            env: environments [B].
            row: rows [B].
            ahead: number of frames after each row, of the same episode.
            out: receives the frames [B, stack + ahead, frame_items], contiguous.
        """
        offsets = np.arange(1 - self.stack, ahead + 1)  # [K]
        slots = self.rings.slots(env[:, None], row[:, None] + offsets)  # [B, K]
        # mode="clip" avoids the buffer that mode="raise" copies through; all slots are valid.
        np.take(self.rings.frames, slots, axis=0, out=out, mode="clip")
        ages = self.rings.ages[self.rings.slots(env, row)].astype(np.int64)
        before = -offsets > ages[:, None]  # [B, K] frames before the episode
        if before.any():
            out[before] = 0

    # State ---------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return JSON-able counters for `restore`; without a folder, also copies of the columns."""
        state: dict[str, Any] = {
            "layout": self._layout(),
            "written": self.written.tolist(),
            "open": list(self._open),
            "stops": self._stops.tolist(),
        }
        if self.folder is None:
            used = min(int(self.written.max()), self.ring_rows)
            state["columns"] = {
                name: self.rings.by_env(name)[:, :used].copy() for name in self.rings.names
            }
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state; rows that were written later are overwritten again.

        Raises:
            ValueError: the layout differs, or rows of the state's window were overwritten.
        """
        if state["layout"] != self._layout():
            raise ValueError(
                f"expected a state of a store with {self._layout()}, got {state['layout']}: make "
                "the store with the settings of the state"
            )
        for name, saved in state.get("columns", {}).items():
            self.rings.by_env(name)[:, : saved.shape[1]] = saved
        for env, written in enumerate(state["written"]):
            self.rings.check_holds(env, max(0, written - self.window_rows), written)
        self.written[:] = state["written"]
        self._open = list(state["open"])
        self._stops[:] = state["stops"]
        for env, is_open in enumerate(self._open):
            if is_open:  # a killed process may have stored the next action
                self.rings.blank(self.rings.slot(env, int(self.written[env]) - 1))

    def settled(self, env: int) -> int:
        """Return the number of rows of `env` that are final: all but one without an action."""
        self._check_env(env)
        return int(self.written[env]) - self._open[env]

    def rows(self, env: int, start: int, stop: int) -> list[memoryview]:
        """Return the bytes of settled rows `start` to `stop` (excluded), column after column.

        Concatenated, they do not depend on where the ring wraps.
        """
        if not 0 <= start <= stop <= self.settled(env):
            raise IndexError(
                f"expected 0 <= start <= stop <= {self.settled(env)} (settled rows of "
                f"environment {env}), got start {start} and stop {stop}"
            )
        self.rings.check_holds(env, start, stop)
        return self.rings.bytes_of(env, start, stop)

    def digest(self) -> str:
        """Return the SHA-256 of the windows, the same in memory and on disk."""
        layout = self._layout() | {"ring_rows": None, "open": self._open}
        digest = hashlib.sha256(json.dumps(layout).encode())
        for env, written in enumerate(self.written.tolist()):
            digest.update(f"{env}:{written}".encode())
            for piece in self.rings.bytes_of(env, max(0, written - self.window_rows), written):
                digest.update(piece)
        return digest.hexdigest()

    def flush(self) -> None:
        """Sync the files."""
        self.rings.flush()

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
