"""Experience in rings of frames: each frame is stored once, however many stacks it is part of."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from noisynet.replay.rings import Array, BoolArray, IntArray, Rings, RowLayout

_LARGEST = float(np.finfo(np.float32).max)


class FrameStore:
    """One ring of rows for each environment, in memory or memory-mapped in a folder.

    Row t holds the newest frame of x_t, how old the episode was (`age`), and the transition that
    starts there: action, reward, discount. An episode of T steps takes T + 1 rows: its last row
    holds the true final frame and starts nothing, so y of the last transition is right whether the
    episode was terminated or truncated. Rows are numbered from 0 in each environment, for ever; row
    r lives in slot r mod `ring_rows`.

    Only the newest `capacity // num_envs` rows of each environment, the *window*, are sampled. The
    ring is larger by `slack_rows + stack + n_step`: what a checkpoint refers to stays whole until
    that many more rows were written. Pass twice the rows between checkpoints to keep two.

    Args:
        capacity: rows that can be sampled, over all environments.
        frame_shape: shape of one frame; observations are `[stack, *frame_shape]`.
        frame_dtype: `"uint8"` or `"float32"`.
        num_actions: number of discrete actions.
        num_envs: number of environments, each with its own ring.
        stack: frames in an observation; those before an episode's first frame are zeros.
        n_step: steps over which returns are summed.
        slack_rows: further rows of each ring, see above.
        folder: where the memory-mapped files live; None keeps everything in memory. A folder that
            already holds rows starts empty until `restore` says which of them count.
        preallocate: reserve the disk now, so that a disk that fills up later cannot kill the run.
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
                f"{num_envs * (stack + n_step)}, got {capacity}: no transition would ever fit"
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
        self.written: IntArray = np.zeros(num_envs, np.int64)  # [E] rows with a frame
        self._open = [False] * num_envs  # the newest row waits for its action
        # [E] Newest row after whose step returns stop (discount 0, or the episode's end), or -1.
        self._stops: IntArray = np.full(num_envs, -1, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, on disk when full (`layout.json` aside)."""
        return self.num_envs * self.ring_rows * self.layout.nbytes

    # Writing -------------------------------------------------------------------------------------

    def begin(self, env: int, frame: Array) -> None:
        """Start an episode of environment `env` with its first frame."""
        self._check_env(env)
        if self._open[env]:
            raise RuntimeError(
                f"environment {env} is within an episode: "
                "append(..., episode_over=True) must come before begin"
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
        """Add one step of environment `env`: what was done at its newest frame, and what came.

        Args:
            env: number of the environment.
            action: the action taken at the newest frame.
            reward: what it earned, as it shall be learnt from (clipped, when it shall be).
            discount: γ, or 0 at a termination or the loss of a life. Truncation keeps γ.
            next_frame: newest frame of the next observation; at the end the true final one.
            episode_over: whether the episode ended. A lost life alone does not end it: the stack
                goes on.
        """
        self._check_env(env)
        if not self._open[env]:
            raise RuntimeError(f"environment {env} has no episode under way: call begin first")
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
        """Write a row that starts nothing yet; every column, so that nothing stale is hashed."""
        row = int(self.written[env])
        slot = self.rings.slot(env, row)
        self.rings.frames[slot] = frame.reshape(-1)
        self.rings.blank(slot)
        self.rings.ages[slot] = age
        self.rings.serials[slot] = (row + 1) % 2**32
        self.written[env] = row + 1

    # Reading -------------------------------------------------------------------------------------

    def bounds(self) -> tuple[IntArray, IntArray]:
        """First row of each window, and the row after the last with a complete return; both [E]."""
        low = np.maximum(self.written - self.window_rows, 0)
        # n further rows complete a return; so does a stop, for all rows up to it.
        high = np.maximum(self.written - self.n_step, self._stops + 1)
        return low, np.maximum(high, low)

    def can_start(self, env: IntArray, row: IntArray, low: IntArray) -> BoolArray:
        """Whether a transition starts at each row whose whole stack is within the window; [B].

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
        """Number of transitions that can be sampled now."""
        low, high = self.bounds()
        total = 0
        for env in range(self.num_envs):
            first, last = int(low[env]), int(high[env])
            total += sum(
                int(np.count_nonzero(part)) for part in self.rings.parts("starts", env, first, last)
            )
            edge = np.arange(first, min(first + self.stack - 1, last))
            envs = np.full_like(edge, env)
            starts = self.rings.starts[self.rings.slots(envs, edge)]
            total -= int(np.count_nonzero(starts & ~self.can_start(envs, edge, low)))
        return total

    def stacks(self, env: IntArray, row: IntArray) -> Array:
        """Observations at stored rows: a new array [B, stack, *frame_shape]."""
        env, row = np.asarray(env, np.int64), np.asarray(row, np.int64)
        if np.any((env < 0) | (env >= self.num_envs)):
            raise IndexError(f"env must be in 0..{self.num_envs - 1}, got {env.tolist()}")
        oldest = row - np.minimum(self.rings.ages[self.rings.slots(env, row)], self.stack - 1)
        stored = self.rings.holds(env, row) & self.rings.holds(env, oldest)
        if not np.all(stored & (row < self.written[env])):
            raise IndexError(
                f"rows {row.tolist()} of environments {env.tolist()} are not all stored with their "
                f"stacks: {self.written.tolist()} were written, in rings of {self.ring_rows}"
            )
        out = np.empty((len(row), self.stack, self.layout.frame_items), self.layout.frame_dtype)
        self.read_runs(env, row, 0, out)
        return out.reshape(len(row), self.stack, *self.layout.frame_shape)

    def read_runs(self, env: IntArray, row: IntArray, ahead: int, out: Array) -> None:
        """Read the stacks at rows, and the `ahead` frames that follow each, without any check.

        Args:
            env: environments [B].
            row: rows [B].
            ahead: frames after each row, of the same episode.
            out: where they go [B, stack + ahead, frame_items], contiguous.
        """
        offsets = np.arange(1 - self.stack, ahead + 1)  # [K]
        slots = self.rings.slots(env[:, None], row[:, None] + offsets)  # [B, K]
        # "clip" never clips here, it spares the buffer that "raise" would copy through.
        np.take(self.rings.frames, slots, axis=0, out=out, mode="clip")
        ages = self.rings.ages[self.rings.slots(env, row)].astype(np.int64)
        before = -offsets > ages[:, None]  # [B, K] older than the episode
        if before.any():
            out[before] = 0

    # State ---------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What `restore` needs: JSON-able counters; without a folder also copies of the columns."""
        state: dict[str, Any] = {
            "layout": self._described(),
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
        """Return to a state of the same layout; later rows are overwritten as they come again.

        Raises:
            ValueError: when the layout differs, or rows of the state's window were overwritten.
        """
        if state["layout"] != self._described():
            raise ValueError(
                f"the state is of a store with {state['layout']}, this one has "
                f"{self._described()}: build the store with the settings of the state"
            )
        for name, saved in state.get("columns", {}).items():
            self.rings.by_env(name)[:, : saved.shape[1]] = saved
        for env, written in enumerate(state["written"]):
            self.rings.check_holds(env, max(0, written - self.window_rows), written)
        self.written[:] = state["written"]
        self._open = list(state["open"])
        self._stops[:] = state["stops"]
        for env, is_open in enumerate(self._open):
            if is_open:  # after a crash the newest row may hold the action of a lost future
                self.rings.blank(self.rings.slot(env, int(self.written[env]) - 1))

    def settled(self, env: int) -> int:
        """Number of rows of `env` that will not change: all but one that waits for its action."""
        self._check_env(env)
        return int(self.written[env]) - self._open[env]

    def rows(self, env: int, start: int, stop: int) -> list[memoryview]:
        """The bytes of settled rows `start` to `stop` (excluded), column after column.

        Joined, they are the same wherever the ring wraps, so a hash of them is, too.
        """
        if not 0 <= start <= stop <= self.settled(env):
            raise IndexError(
                f"expected 0 <= start <= stop <= {self.settled(env)} (settled rows of "
                f"environment {env}), got start {start} and stop {stop}"
            )
        self.rings.check_holds(env, start, stop)
        return self.rings.bytes_of(env, start, stop)

    def digest(self) -> str:
        """SHA-256 of what the windows hold, wherever it lies in memory or on disk."""
        described = self._described() | {"ring_rows": None, "open": self._open}
        digest = hashlib.sha256(json.dumps(described).encode())
        for env, written in enumerate(self.written.tolist()):
            digest.update(f"{env}:{written}".encode())
            for part in self.rings.bytes_of(env, max(0, written - self.window_rows), written):
                digest.update(part)
        return digest.hexdigest()

    def flush(self) -> None:
        """Return once everything written is on disk."""
        self.rings.flush()

    def _described(self) -> dict[str, Any]:
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
