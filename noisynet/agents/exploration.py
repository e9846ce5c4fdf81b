"""How an agent chooses: ε-greedily or greedily among its values, or by sampling its policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisynet import config


def epsilon_at(exploration: config.EpsilonGreedy, step: int, starts_steps: int) -> float:
    """ε at a step: its initial value until learning starts, then falling linearly."""
    progress = (step - starts_steps) / exploration.anneal_steps
    fraction = min(1.0, max(0.0, progress))
    return exploration.initial + fraction * (exploration.final - exploration.initial)


def epsilon_greedy(
    greedy: Callable[[], NDArray[np.int64]],
    epsilon: float,
    count: int,
    num_actions: int,
    stream: np.random.Generator,
) -> NDArray[np.int64]:
    """Each of `count` greedy actions replaced by a uniform one with probability ε.

    The greedy ones are asked for only if one of them is taken: no value is computed in vain.
    """
    explore = stream.random(count) < epsilon
    uniform = stream.integers(num_actions, size=count)
    return uniform if explore.all() else np.where(explore, uniform, greedy())


def sampled_actions(
    preference: NDArray[np.floating[Any]], stream: np.random.Generator
) -> NDArray[np.int64]:
    """Actions [N] drawn from the softmax of preferences [N, A], by one uniform number each."""
    weight = np.exp(preference - preference.max(axis=1, keepdims=True), dtype=np.float64)
    cumulated = weight.cumsum(axis=1)
    drawn = stream.random(len(preference)) * cumulated[:, -1]
    beyond = (cumulated <= drawn[:, None]).sum(axis=1)
    actions: NDArray[np.int64] = np.minimum(beyond, preference.shape[1] - 1)  # but for rounding
    return actions
