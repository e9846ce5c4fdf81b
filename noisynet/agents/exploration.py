"""Action selection: ε-greedy in Q, or sampled from a policy."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
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
    uniform = stream.random(len(logits)).tolist()
    return np.array([*map(_sampled_action, logits.tolist(), uniform)], np.int64)


def _sampled_action(logits: Sequence[float], uniform: float) -> int:
    # In plain Python: between two passes of a network, NumPy takes twice as long for few numbers.
    most = max(logits)
    cumulative = [*accumulate(math.exp(logit - most) for logit in logits)]
    last = len(logits) - 1  # rounding can exceed it
    return bisect_right(cumulative, uniform * cumulative[-1], hi=last)
