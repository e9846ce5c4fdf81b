"""Action selection: ε-greedy in Q, or sampled from a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisynet import config


def epsilon_at(exploration: config.EpsilonGreedy, step: int, starts_steps: int) -> float:
    """ε at a step: constant until learning starts, then annealed linearly."""
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
    """Actions [count]: greedy ones, each replaced by a uniform one with probability ε.

    `greedy` is called only if one of its actions is needed.
    """
    explore = stream.random(count) < epsilon
    uniform = stream.integers(num_actions, size=count)
    return uniform if explore.all() else np.where(explore, uniform, greedy())


def sampled_actions(
    logits: NDArray[np.floating[Any]], stream: np.random.Generator
) -> NDArray[np.int64]:
    """Actions [N] sampled from the softmax of logits [N, A], with one uniform number each."""
    weight = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64)
    cumulative = weight.cumsum(axis=1)
    drawn = stream.random(len(logits)) * cumulative[:, -1]
    index = (cumulative <= drawn[:, None]).sum(axis=1)
    actions: NDArray[np.int64] = np.minimum(index, logits.shape[1] - 1)  # rounding can exceed it
    return actions
