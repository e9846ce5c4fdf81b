"""Synthetic data, on which agents are run when they are audited."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class SyntheticData:
    """Random observations, actions and rewards from a random stream of their own."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def array(self, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """Draw an array: standard normal if `dtype` is floating, uniform over a byte if not."""
        if np.issubdtype(dtype, np.floating):
            return self.rng.standard_normal(shape).astype(dtype)
        return self.rng.integers(256, size=shape).astype(dtype)

    def observation(self, space: Any) -> Any:
        """Draw one observation of a Gymnasium space."""
        from gymnasium import spaces

        if isinstance(space, spaces.Dict):
            return {name: self.observation(entry) for name, entry in space.items()}
        if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            # Box.sample is uniform within the bounds, which may be as large as 3e38.
            return self.array(space.shape, space.dtype)
        space = copy.deepcopy(space)  # sampling advances the random stream of a space
        space.seed(int(self.rng.integers(2**31)))
        return space.sample()

    def actions(self, count: int, num_actions: int) -> NDArray[np.int64]:
        """Draw discrete actions [count]."""
        return self.rng.integers(num_actions, size=count)

    def rewards(self, *shape: int) -> NDArray[np.float32]:
        """Draw standard normal rewards."""
        return self.rng.standard_normal(shape, dtype=np.float32)
