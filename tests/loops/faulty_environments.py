"""Gymnasium environments with invalid rewards, for runs in other processes (not a test)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

FAULTS = {"Nan-v0": float("nan"), "Infinite-v0": float("inf"), "Huge-v0": 1e38}


class FaultyRewards(gymnasium.Env[NDArray[np.float32], np.int64]):
    """An endless episode with rewards of 1, and invalid ones from a given step.

    Args:
        reward: the invalid reward.
        from_step: first step with it.
    """

    def __init__(self, reward: float, from_step: int) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.fault, self.from_step, self.steps = reward, from_step, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed, options=options)
        self.steps = 0
        return self._observation(), {}

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Return the next reward."""
        self.steps += 1
        reward = self.fault if self.steps >= self.from_step else 1.0
        return self._observation(), reward, False, False, {}

    def _observation(self) -> NDArray[np.float32]:
        return np.array([1.0, self.steps % 10 / 10], np.float32)


for name, fault in FAULTS.items():
    gymnasium.register(name, f"{__name__}:FaultyRewards", kwargs={"reward": fault})
