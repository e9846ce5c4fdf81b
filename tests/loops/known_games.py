"""An environment whose every frame, reward and end can be computed by hand (not a test)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisynet.envs import Environment, EnvironmentSpec, Step

STACK = 3


class KnownGames(Environment):
    """Games that follow from their seed, their time and the last action alone.

    An episode lasts 3 to 6 steps. It is terminated if its seed is even and truncated otherwise. A
    life is lost in its second step, and in the last one if the seed is a multiple of three.
    """

    def __init__(self, num_envs: int = 1, frames_per_step: int = 4) -> None:
        spec = EnvironmentSpec("deep_sea/4", 4, (3,), "float32", STACK, frames_per_step, 1.0)
        super().__init__(spec, num_envs)
        self.seeds, self.times = [0] * num_envs, [0] * num_envs
        self.last = [0] * num_envs

    @staticmethod
    def length(seed: int) -> int:
        return 3 + seed % 4

    @staticmethod
    def frame(seed: int, time: int, action: int) -> NDArray[np.float32]:
        return np.array([1 + seed % 1_000, time, action], np.float32)

    @staticmethod
    def reward(time: int, action: int) -> float:
        return time - 2.0 * action

    @classmethod
    def end(cls, seed: int, time: int) -> tuple[bool, bool, bool]:
        """Whether that step terminates, truncates, and costs a life."""
        over = time == cls.length(seed)
        ended = over and seed % 2 == 0
        return ended, over and not ended, time == 2 or (over and seed % 3 == 0)

    @classmethod
    def observation(cls, seed: int, actions: Sequence[int], time: int) -> NDArray[np.float32]:
        """The stack after `time` steps of an episode."""
        frames = [np.zeros(3, np.float32)] * STACK
        frames += [cls.frame(seed, t, actions[t - 1] if t else 0) for t in range(time + 1)]
        return np.stack(frames[-STACK:])

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        for env, seed in enumerate(seeds):
            if seed is not None:
                self.seeds[env], self.times[env], self.last[env] = seed, 0, 0
        return self._frames()

    def _recv(self, actions: NDArray[np.int64]) -> Step:
        self.last = actions.tolist()
        self.times = [time + 1 for time in self.times]
        ends = [self.end(*game) for game in zip(self.seeds, self.times, strict=True)]
        rewards = [self.reward(*game) for game in zip(self.times, self.last, strict=True)]
        terminated, truncated, lives = (np.array(column) for column in zip(*ends, strict=True))
        return Step(self._frames(), np.array(rewards), terminated, truncated, lives)

    def _screen(self, index: int) -> NDArray[np.uint8]:
        raise NotImplementedError

    def _frames(self) -> NDArray[np.float32]:
        games = zip(self.seeds, self.times, self.last, strict=True)
        return np.stack([self.frame(*game) for game in games])
