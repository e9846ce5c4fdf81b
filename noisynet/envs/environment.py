"""The one interface of all environments: N games played side by side.

An episode is exactly (seed, actions). Whoever starts one by the same seed and sends the same
actions gets bit-identical frames, rewards and flags, whatever the other environments do, whatever
was played before and however many environments there are. Resuming a run and rendering an old
episode to video both rest on this promise.
"""

from __future__ import annotations

import operator
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

SEED_LIMIT = 2**31
"""Episode seeds are below this: the smallest range that every emulator accepts."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """What an agent and a replay must know about an environment."""

    name: str
    """The name that makes it, such as "atari/pong"."""
    num_actions: int
    """Actions are 0, …, num_actions − 1."""
    frame_shape: tuple[int, ...]
    """Shape of one frame as stored: (H, W), (C, H, W) or (d,)."""
    frame_dtype: str
    """ "uint8" for images and binary planes, "float32" for flat vectors."""
    stack: int
    """How many successive frames make one observation."""
    frames_per_step: int
    """How many emulator frames one agent step takes."""

    @property
    def pixel_scale(self) -> float:
        """TEMP."""
        return 1 / 255 if self.frame_dtype == "uint8" and self.frame_shape[-1] >= 36 else 1.0


class Step(NamedTuple):
    """What one action of each of the N environments led to."""

    frame: NDArray[Any]
    """[N, *frame_shape]: the frame after the action; the last one of the episode if it ended."""
    reward: NDArray[np.float64]
    """[N]: the raw reward, never clipped."""
    terminated: NDArray[np.bool_]
    """[N]: the episode ended within the game: nothing is to be expected after it."""
    truncated: NDArray[np.bool_]
    """[N]: the episode was cut by a time limit only; never true together with `terminated`."""
    life_lost: NDArray[np.bool_]
    """[N]: the counter of lives went down in this step (always false where there is none)."""


class Environment(ABC):
    """N independent environments that are started by seed and stepped together.

    A subclass gives `_start`, `_recv` and `_screen`, and `_send` and `_close` if it has something
    to do there; it is final. The checks of what callers pass stand here, once.

    Attributes:
        spec: what agents must know.
        num_envs: N.
    """

    def __init__(self, spec: EnvironmentSpec, num_envs: int) -> None:
        self.spec = spec
        self.num_envs = check_count("num_envs", num_envs, at_least=1)
        self._running = np.zeros(num_envs, dtype=np.bool_)
        self._started = np.zeros(num_envs, dtype=np.bool_)
        self._sent: NDArray[np.int64] | None = None
        self._closed = False

    def start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        """Begin a new episode in every environment that is given a seed.

        Args:
            seeds: one per environment; None leaves that environment alone. A running episode that
                is given a seed is abandoned.

        Returns:
            First frames [N, *frame_shape]; rows without a seed are zeros.
        """
        self._check_idle("start")
        checked = self._check_seeds(seeds)
        asked = np.array([seed is not None for seed in checked])
        if not asked.any():
            return self._no_frames()
        frames = self._start(checked)
        frames[~asked] = 0
        self._running |= asked
        self._started |= asked
        return frames

    def send(self, actions: NDArray[np.int64]) -> None:
        """Start one step of all environments; emulators run until `recv` asks for the result.

        Args:
            actions: [N] integers in 0, …, num_actions − 1.
        """
        self._check_idle("send")
        checked = self._check_actions(actions)
        if not self._running.all():
            waiting = np.flatnonzero(~self._running).tolist()
            raise RuntimeError(
                f"environments {waiting} of {self.spec.name} have no running episode: expected "
                "start(seeds) with a seed for each of them before the next send"
            )
        self._send(checked)
        self._sent = checked

    def recv(self) -> Step:
        """Wait for the step begun by `send` and return it."""
        if self._sent is None:
            raise RuntimeError(f"recv of {self.spec.name} without a send: call send(actions) first")
        actions, self._sent = self._sent, None
        step = self._recv(actions)
        self._running &= ~(step.terminated | step.truncated)
        return step

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Send `actions` and wait for what they led to."""
        self.send(actions)
        return self.recv()

    def screen(self, index: int) -> NDArray[np.uint8]:
        """Return what a viewer sees of environment `index` now: uint8 [H, W, 3]."""
        self._check_idle("screen")
        if not 0 <= index < self.num_envs:
            raise IndexError(f"expected an environment in 0..{self.num_envs - 1}, got {index}")
        if not self._started[index]:
            raise RuntimeError(
                f"environment {index} of {self.spec.name} was never started: call start(seeds)"
            )
        return self._screen(index)

    def close(self) -> None:
        """Free what the environments hold. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        """Begin episodes where a seed is given (at least one is); rows without are not read."""

    @abstractmethod
    def _recv(self, actions: NDArray[np.int64]) -> Step:
        """Return the step that `actions` [N], already passed to `_send`, lead to."""

    @abstractmethod
    def _screen(self, index: int) -> NDArray[np.uint8]:
        """Return the screen of one environment that was started."""

    def _send(self, actions: NDArray[np.int64]) -> None:  # noqa: B027 — nothing to do is common
        """Let emulators run ahead; environments without threads do all their work in `_recv`."""

    def _close(self) -> None:  # noqa: B027 — nothing to do is common
        """Free resources; called once."""

    def _no_frames(self) -> NDArray[Any]:
        return np.zeros((self.num_envs, *self.spec.frame_shape), dtype=self.spec.frame_dtype)

    def _check_idle(self, doing: str) -> None:
        if self._closed:
            raise RuntimeError(f"{doing} on {self.spec.name} after close: make a new environment")
        if self._sent is not None:
            raise RuntimeError(
                f"{doing} on {self.spec.name} while a step is under way: call recv() first"
            )

    def _check_seeds(self, seeds: Sequence[int | None]) -> list[int | None]:
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"expected {self.num_envs} seeds, one per environment (None to leave one alone), "
                f"got {len(seeds)}"
            )
        return [None if seed is None else check_seed(seed) for seed in seeds]

    def _check_actions(self, actions: ArrayLike) -> NDArray[np.int64]:
        given = np.asarray(actions)
        if given.shape != (self.num_envs,) or given.dtype.kind not in "iu":
            raise ValueError(
                f"expected actions as an integer array of shape ({self.num_envs},), one per "
                f"environment, got shape {given.shape} and dtype {given.dtype}"
            )
        if given.min() < 0 or given.max() >= self.spec.num_actions:
            raise ValueError(
                f"expected actions in 0..{self.spec.num_actions - 1} for {self.spec.name}, "
                f"got {given.tolist()}"
            )
        # A copy: the caller may reuse its array between send and recv.
        return given.astype(np.int64)


def episode_seed(run_seed: int, role: str, environment: int, episode: int) -> int:
    """Return the seed of one episode, the same on every machine.

    Args:
        run_seed: the seed of the whole run.
        role: "train" or "eval", so that evaluation never plays a training episode.
        environment: index of the environment that plays it.
        episode: how many episodes that environment started before in this role.

    Returns:
        An integer in 0, …, 2³¹ − 1.
    """
    if role not in ("train", "eval"):
        raise ValueError(f"expected the role 'train' or 'eval', got {role!r}")
    for name, value in (("run_seed", run_seed), ("environment", environment), ("episode", episode)):
        check_count(name, value, at_least=0)
    # Python's own hash of a string differs from process to process; a checksum does not.
    key = (zlib.crc32(role.encode()), environment, episode)
    state = np.random.SeedSequence(run_seed, spawn_key=key).generate_state(1, np.uint32)
    return int(state[0]) % SEED_LIMIT


def check_seed(seed: object) -> int:
    """Return `seed` as an int, or raise ValueError if it is not an integer in 0, …, 2³¹ − 1."""
    value = _as_integer("a seed", seed)
    if not 0 <= value < SEED_LIMIT:
        raise ValueError(f"expected a seed in 0..{SEED_LIMIT - 1}, got {value}; see episode_seed")
    return value


def check_count(name: str, value: object, *, at_least: int) -> int:
    """Return `value` as an int, or raise ValueError if it is not an integer ≥ `at_least`."""
    count = _as_integer(name, value)
    if count < at_least:
        raise ValueError(f"expected {name} to be at least {at_least}, got {count}")
    return count


def _as_integer(name: str, value: object) -> int:
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"expected {name} to be an integer, got {value!r}") from None
