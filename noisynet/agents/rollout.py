"""The input and the result of an actor-critic agent's update."""

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
        observation: the observations; the last ones are for the bootstrap value
            [T + 1, N, stack, *frame].
        action: the actions [T, N].
        reward: the rewards, clipped if the configuration says so [T, N].
        discount: γ, but 0 where the step ended the game or a life [T, N].
        begins: whether an episode begins with the observation, so that an LSTM starts from zeros
            [T + 1, N].
        cut: whether a time limit truncated the episode after the step [T, N].
        final: for every t with a truncated episode, the observations after step t
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
    """The result of `ActorCriticAgent.learn`.

    Attributes:
        loss: the loss, summed over steps and averaged over environments.
        policy_loss: its policy term (Eq. 6), without the entropy bonus.
        value_loss: its value term, weighted (Eq. 7).
        entropy: of the policy in nats, averaged over steps and environments.
        gradient_norm: of `ActorCriticAgent.gradient`, before clipping.
        finite: whether loss and gradient are finite; otherwise the gradient must not be applied.
    """

    loss: float
    policy_loss: float
    value_loss: float
    entropy: float
    gradient_norm: float
    finite: bool
