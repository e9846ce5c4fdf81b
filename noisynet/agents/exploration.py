"""How an agent chooses among its values: ε-greedily, or greedily in a noisy network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisynet import config


def epsilon_at(exploration: config.EpsilonGreedy, step: int, starts_steps: int) -> float:
    """ε at a step: its initial value until learning starts, then falling linearly."""
    progress = (step - starts_steps) / exploration.anneal_steps
    fraction = min(1.0, max(0.0, progress))
    return exploration.initial + fraction * (exploration.final - exploration.initial)


def epsilon_greedy(
    greedy: NDArray[np.int64], epsilon: float, num_actions: int, stream: np.random.Generator
) -> NDArray[np.int64]:
    """Each action [N] replaced by a uniform one with probability ε."""
    explore = stream.random(len(greedy)) < epsilon
    return np.where(explore, stream.integers(num_actions, size=len(greedy)), greedy)
