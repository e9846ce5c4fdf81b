"""The interface of all environments: a vector of N independent games.

An episode is exactly (seed, actions). The same seed and the same actions give bit-identical frames,
rewards and flags, whatever the other environments do, whatever was played before and whatever N is.
Resuming a run and rendering an old episode to video both depend on this guarantee.
"""

from __future__ import annotations

import operator
import traceback
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

SEED_LIMIT = 2**31
"""Episode seeds are below this: the smallest range that every emulator accepts."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """What an agent and a replay buffer must know about an environment."""

    name: str
    """The name for `make_environment`, such as "atari/pong"."""
    num_actions: int
    """Actions are 0, …, num_actions − 1."""
    frame_shape: tuple[int, ...]
    """Shape of one frame as stored: (H, W), (C, H, W) or (d,)."""
    frame_dtype: str
    """ "uint8" for images of bytes and binary channels, "float32" for everything else."""
    stack: int
    """The number of successive frames in one observation."""
    frames_per_step: int
    """The number of emulator frames in one agent step."""
    pixel_scale: float
    """Observations are multiplied by this before the network: 1/255 for images of grey levels or
    colours up to 255, 1 for everything else."""
    action_names: tuple[str, ...] = ()
    """A name for each action; none where the environment has no names."""


class Step(NamedTuple):
    """The result of one action in each of the N environments."""

    frame: NDArray[Any]
    """[N, *frame_shape]: the frame after the action; the final frame if the episode ended."""
    reward: NDArray[np.float64]
    """[N]: the raw reward, never clipped."""
    terminated: NDArray[np.bool_]
    """[N]: the episode reached a terminal state."""
    truncated: NDArray[np.bool_]
    """[N]: a time limit ended the episode; never true together with `terminated`."""
    life_lost: NDArray[np.bool_]
    """[N]: the number of lives decreased in this step; always false in games without lives."""


class EnvironmentFailed(RuntimeError):  # noqa: N818 — says what happened
    """The code of an environment failed; the message names it, and the cause is its own error."""


class Environment(ABC):
    """N independent environments that are started by seed and stepped together.

    A subclass implements `_start`, `_recv` and `_screen`, and where needed `_send` and `_close`; it
    is final. Arguments are checked here, once for all subclasses.

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
            seeds: one per environment; None leaves that environment as it is. A seed for a running
                episode abandons that episode.

        Returns:
            First frames [N, *frame_shape]; rows without a seed are zeros.
        """
        self._check_idle("start")
        checked = self._check_seeds(seeds)
        asked = np.array([seed is not None for seed in checked])
        if not asked.any():
            return self._no_frames()
        try:
            frames = self._start(checked)
        except (EnvironmentFailed, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._failure("reset", error) from error
        frames[~asked] = 0
        self._running |= asked
        self._started |= asked
        return frames

    def send(self, actions: NDArray[np.int64]) -> None:
        """Begin one step with actions [N]; emulators run in the background until `recv`."""
        self._check_idle("send")
        checked = self._check_actions(actions)
        if not self._running.all():
            waiting = np.flatnonzero(~self._running).tolist()
            raise RuntimeError(
                f"environments {waiting} of {self.spec.name} have no running episode: expected "
                "start(seeds) with a seed for each of them before the next send"
            )
        try:
            self._send(checked)
        except (EnvironmentFailed, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._failure("step", error) from error
        self._sent = checked

    def recv(self) -> Step:
        """Wait for the step that `send` began and return its result."""
        if self._sent is None:
            raise RuntimeError(f"recv of {self.spec.name} without a send: call send(actions) first")
        actions, self._sent = self._sent, None
        try:
            step = self._recv(actions)
        except (EnvironmentFailed, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._failure("step", error) from error
        self._running &= ~(step.terminated | step.truncated)
        return step

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Send `actions` and return the result."""
        self.send(actions)
        return self.recv()

    def screen(self, index: int) -> NDArray[np.uint8]:
        """Return the current screen of environment `index` in colour: uint8 [H, W, 3]."""
        self._check_idle("screen")
        if not 0 <= index < self.num_envs:
            raise IndexError(f"expected an environment in 0..{self.num_envs - 1}, got {index}")
        if not self._started[index]:
            raise RuntimeError(
                f"environment {index} of {self.spec.name} was never started: call start(seeds)"
            )
        return self._screen(index)

    def close(self) -> None:
        """Release all resources. Closing twice is allowed."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        """Begin episodes where a seed is given (at least one is); other rows are ignored."""

    @abstractmethod
    def _recv(self, actions: NDArray[np.int64]) -> Step:
        """Return the result of `actions` [N], which `_send` has received before."""

    @abstractmethod
    def _screen(self, index: int) -> NDArray[np.uint8]:
        """Return the screen of an environment that was started."""

    def _send(self, actions: NDArray[np.int64]) -> None:  # noqa: B027 — optional
        """Start emulators in the background; other environments do all work in `_recv`."""

    def _close(self) -> None:  # noqa: B027 — optional
        """Release resources; called once."""

    def _failure(self, doing: str, error: BaseException) -> EnvironmentFailed:
        """Name the environment, and where its code failed."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        return EnvironmentFailed(
            f"{self.spec.name} failed in {doing}: {type(error).__name__}: {error} "
            f"({where.filename}, line {where.lineno}). Fix the environment"
        )

    def _no_frames(self) -> NDArray[Any]:
        return np.zeros((self.num_envs, *self.spec.frame_shape), dtype=self.spec.frame_dtype)

    def _check_idle(self, doing: str) -> None:
        if self._closed:
            raise RuntimeError(f"{doing} on {self.spec.name} after close: make a new environment")
        if self._sent is not None:
            raise RuntimeError(
                f"{doing} on {self.spec.name} between send and recv: call recv() first"
            )

    def _check_seeds(self, seeds: Sequence[int | None]) -> list[int | None]:
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"expected {self.num_envs} seeds, one per environment (None to keep its episode), "
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


def repeats_episodes(environment: Environment, steps: int = 8) -> bool:
    """Play the first steps of an episode twice and return whether they were the same.

    Runs of an environment that does not repeat them cannot be resumed within an episode, and its
    evaluation episodes cannot be rendered. Episodes that run are abandoned.
    """
    actions = np.random.default_rng(0).integers(
        environment.spec.num_actions, size=(steps, environment.num_envs)
    )
    played = []
    for _ in range(2):
        shown = [environment.start([1] * environment.num_envs).tobytes()]
        for step_actions in actions:
            step = environment.step(step_actions)
            shown += [field.tobytes() for field in step]
            if (step.terminated | step.truncated).any():
                break
        played.append(shown)
    return played[0] == played[1]


def episode_seed(run_seed: int, role: str, environment: int, episode: int) -> int:
    """Return the seed of one episode, in 0, …, 2³¹ − 1 and the same on every machine.

    Args:
        run_seed: the seed of the whole run.
        role: "train" or "eval", so that evaluation never repeats a training episode.
        environment: the index of the environment.
        episode: the number of episodes that this environment started before in this role.
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
