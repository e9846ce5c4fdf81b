"""What an actor-critic agent learns from, and what it tells of having learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rollout:
    """T steps of N environments.

    Attributes:
        observation: what was acted on, and at last what is bootstrapped from
            [T + 1, N, stack, *frame].
        action: what was done [T, N].
        reward: what that was worth, clipped if rewards are to be [T, N].
        discount: γ, but 0 where the step ended the game or a life [T, N].
        begins: whether an episode begins with the observation: nothing is remembered from before
            [T + 1, N].
        cut: whether a time limit ended the episode after the step [T, N].
        final: for every t where something was cut, the observations after step t
            [N, stack, *frame].
    """

    observation: NDArray[Any]
    action: NDArray[np.int64]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    begins: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    final: Mapping[int, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class RolloutLearnt:
    """What a roll-out taught.

    Attributes:
        loss: what was differentiated: summed over steps, the mean over environments.
        policy_loss: the policy's part of it (Eq. 6), without the entropy bonus.
        value_loss: the value's part, weighted (Eq. 7).
        entropy: of the policy, the mean over steps and environments, in nats.
        gradient_norm: before it was clipped.
        finite: whether the gradient can be used.
    """

    loss: float
    policy_loss: float
    value_loss: float
    entropy: float
    gradient_norm: float
    finite: bool
