"""Gymnasium environments that fail, for runs in other processes (not a test)."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray


class Failing(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Episodes of 20 steps; those with an odd seed fail in the tenth.

    Args:
        fault: "raise", "sleep", or "huge": a reward whose square overflows.
        always: whether all episodes fail.
    """

    def __init__(self, fault: str, always: bool = False) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.fault, self.always = fault, always
        self.steps, self.wrong = 0, False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed, options=options)
        self.steps, self.wrong = 0, self.always or bool((seed or 0) % 2)
        return self._observation(), {}

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Return a reward of 1, or fail."""
        self.steps += 1
        reward = 1.0
        if self.wrong and self.steps == 10:
            if self.fault == "raise":
                raise RuntimeError(f"the emulator gave up in step {self.steps}")
            if self.fault == "sleep":
                time.sleep(3600)
            reward = 1e38
        return self._observation(), reward, self.steps == 20, False, {}

    def _observation(self) -> NDArray[np.float32]:
        return np.array([1.0, self.steps / 20], np.float32)


gymnasium.register("Failing-v0", f"{__name__}:Failing")
