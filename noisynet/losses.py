"""The losses of the value agents: tensors in, tensors out.

Names carry time, as in rlax: `_tm1` is the state x in which an action was taken, `_t` the next.
"""

from __future__ import annotations

import torch
from torch import Tensor


def q_learning_target(reward_t: Tensor, discount_t: Tensor, q_t: Tensor) -> Tensor:
    """r + γ max_b Q(y, b) (Eq. 2; Eq. 14 with noise in Q).

    Args:
        reward_t: [B].
        discount_t: [B], 0 where y is terminal: the target is then the reward alone.
        q_t: the target network's values at y [B, A].

    Returns:
        [B].
    """
    return reward_t + discount_t * q_t.amax(dim=1)


def double_q_target(
    reward_t: Tensor, discount_t: Tensor, q_t: Tensor, q_t_selector: Tensor
) -> Tensor:
    """r + γ Q(y, b*(y)) with b*(y) = argmax_b of the selector (Eqs. 4, 5; 15, 16 with noise).

    Args:
        reward_t: [B].
        discount_t: [B].
        q_t: the target network's values at y [B, A].
        q_t_selector: the online network's values at y, with noise of their own [B, A].

    Returns:
        [B].
    """
    best = q_t_selector.argmax(dim=1, keepdim=True)
    return reward_t + discount_t * q_t.gather(1, best)[:, 0]


def td_error(q_tm1: Tensor, action_tm1: Tensor, target: Tensor) -> Tensor:
    """target − Q(x, a) [B] for q_tm1 [B, A] and action_tm1 [B]."""
    return target - q_tm1.gather(1, action_tm1[:, None])[:, 0]


def huber(error: Tensor, threshold: float = 1.0) -> Tensor:
    """The loss whose gradient is the error clipped to ±threshold (Nature, methods)."""
    size = error.abs()
    quadratic = size.clamp(max=threshold)
    return quadratic * (size - 0.5 * quadratic)


def squared(error: Tensor) -> Tensor:
    """½ error²; the factor makes its gradient, like `huber`'s, the error itself (Eq. 14)."""
    return 0.5 * error.square()


def mean_over_batch(loss: Tensor, weight: Tensor) -> Tensor:
    """The weighted mean of a loss [B] with importance weights [B]."""
    return torch.mean(loss * weight)
