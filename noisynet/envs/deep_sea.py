"""Deep Sea (Osband et al. 2019): an n×n grid where only n right moves in a row give the reward.

This is bsuite's deterministic variant. The diver starts in the top left cell, sinks one row per
step and moves left or right; which action is "right" is sampled once for each cell. Moving right
costs 0.01/n; moving right in the bottom right cell gives 1. Undirected exploration needs about 2ⁿ
episodes to find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from noisynet import paper
from noisynet.envs.environment import Environment, EnvironmentSpec, Step, check_count
from noisynet.envs.grid_rendering import PLAYER, TREASURE, render_cells


@final
class DeepSeaEnvironment(Environment):
    """N copies of a grid, with the same action map.

    Frames are one-hot over the n² cells; after the last step, below the grid, they are zeros.
    Episodes are deterministic, so their seeds have no effect.

    Args:
        size: n, at least 2.
        num_envs: N.
        mapping_seed: the seed of the action map; the default is that of bsuite's experiments.
        randomise_actions: False makes action 1 "right" in every cell. A network then generalises
            the cost of moving right over all cells, which is harder for undirected exploration.
    """

    def __init__(
        self,
        size: int,
        num_envs: int = 1,
        *,
        mapping_seed: int = paper.DEEP_SEA_MAPPING_SEED,
        randomise_actions: bool = True,
    ) -> None:
        self._size = check_count("the size of deep_sea", size, at_least=2)
        check_count("mapping_seed", mapping_seed, at_least=0)
        spec = EnvironmentSpec(
            name=f"deep_sea/{size}",
            num_actions=2,
            frame_shape=(size * size,),
            frame_dtype="float32",
            stack=1,
            frames_per_step=1,
            pixel_scale=1.0,
        )
        super().__init__(spec, num_envs)
        # The legacy generator, because bsuite samples its maps from it.
        generator = np.random.RandomState(mapping_seed)
        drawn: NDArray[np.int64] = generator.binomial(1, 0.5, (size, size))
        self._action_map = drawn if randomise_actions else np.ones_like(drawn)
        self._row = np.zeros(num_envs, dtype=np.int64)
        self._column = np.zeros(num_envs, dtype=np.int64)

    @property
    def action_map(self) -> NDArray[np.int64]:
        """The action that means "right" in each cell, [n, n]."""
        return self._action_map.copy()

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        asked = np.array([seed is not None for seed in seeds])
        self._row[asked] = 0
        self._column[asked] = 0
        return self._one_hot()

    def _recv(self, actions: NDArray[np.int64]) -> Step:
        right = actions == self._action_map[self._row, self._column]
        found = right & (self._column == self._size - 1)
        reward = 1.0 * found - right * (paper.DEEP_SEA_MOVE_COST / self._size)
        moved = self._column + np.where(right, 1, -1)
        self._column = np.clip(moved, 0, self._size - 1)
        self._row = self._row + 1
        terminated = self._row == self._size
        never = np.zeros_like(terminated)
        return Step(self._one_hot(), reward, terminated, never, never.copy())

    def _one_hot(self) -> NDArray[np.float32]:
        frames = np.zeros((self.num_envs, self._size * self._size), dtype=np.float32)
        afloat = np.flatnonzero(self._row < self._size)
        frames[afloat, self._row[afloat] * self._size + self._column[afloat]] = 1.0
        return frames

    def _screen(self, index: int) -> NDArray[np.uint8]:
        grid = (self._size, self._size)
        treasure = np.zeros(grid, dtype=np.bool_)
        treasure[-1, -1] = True
        diver = np.zeros(grid, dtype=np.bool_)
        # After the last step the diver is below the grid; its column is still shown.
        diver[min(self._row[index], self._size - 1), self._column[index]] = True
        return render_cells([(treasure, TREASURE), (diver, PLAYER)])
