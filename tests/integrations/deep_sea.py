"""Deep Sea as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class DeepSea(gymnasium.Env[Any, Any]):
    """Only `size` moves to the right in a row, each at a small cost, find the reward of 1."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.observation_space = gymnasium.spaces.Box(0, 1, (size * size,))
        self.action_space = gymnasium.spaces.Discrete(2)
        self.right = np.random.default_rng(0).integers(2, size=(size, size))
        self.row = self.column = 0

    def observe(self) -> Any:
        grid = np.zeros((self.size + 1, self.size), np.float32)
        grid[self.row, self.column] = 1
        return grid[:-1].ravel()

    def reset(self, **_options: Any) -> tuple[Any, dict[str, Any]]:
        self.row = self.column = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = bool(action == self.right[self.row, self.column])
        reward = float(right and self.column == self.size - 1) - right * 0.01 / self.size
        self.row += 1
        self.column = min(max(self.column + (1 if right else -1), 0), self.size - 1)
        return self.observe(), reward, self.row == self.size, False, {}
