"""The losses of the value agents and of the actor-critic agents: tensors in, tensors out.

Names carry time, as in rlax: `_tm1` is the state x in which an action was taken, `_t` the next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from noisynet.compiled import compiled

# --- DQN and Dueling -----------------------------------------------------------------------------


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


class ValueLoss(NamedTuple):
    """What `value_loss` gives.

    Attributes:
        loss: the mean loss of the batch.
        error: target − Q(x, a) [B].
        target: [B].
        gradient: of the loss, at q_tm1 [B, A].
    """

    loss: float
    error: Tensor
    target: Tensor
    gradient: Tensor


def value_loss(
    q_tm1: Tensor,
    action_tm1: Tensor,
    reward_t: Tensor,
    discount_t: Tensor,
    q_t: Tensor,
    q_t_selector: Tensor | None,
    weight: Tensor,
    threshold: float,
) -> ValueLoss:
    """All of the above and the gradient, in one compiled call on a CPU.

    Called one by one, these operations on [B] numbers cost more than a small network's passes.

    Args:
        q_tm1: the online network's values at x [B, A].
        action_tm1: what was done [B].
        reward_t: [B].
        discount_t: [B].
        q_t: the target network's values at y [B, A].
        q_t_selector: the online network's, for double Q-learning.
        weight: importance weights [B].
        threshold: Huber's; infinite for the squared loss.
    """
    gradient, error, target = torch.empty_like(q_tm1), *q_t.new_empty(2, len(q_t))
    selector = q_t if q_t_selector is None else q_t_selector
    columns = q_tm1, action_tm1, reward_t, discount_t, q_t, selector, weight
    tensors = *columns, error, target, gradient
    loss = _value_loss(threshold, *[tensor.detach().numpy() for tensor in tensors])
    return ValueLoss(loss, error, target, gradient)


@compiled
def _value_loss(
    limit: float,
    q_tm1: Any,
    action_tm1: Any,
    reward_t: Any,
    discount_t: Any,
    q_t: Any,
    selector: Any,
    weight: Any,
    error: Any,
    target: Any,
    gradient: Any,
) -> float:
    batch, actions = q_tm1.shape
    number = error.dtype.type  # what is too large for the networks is to be so here
    threshold, total = number(limit), number(0)
    for b in range(batch):
        best = 0
        for a in range(1, actions):
            value = selector[b, a]
            if value > selector[b, best] or value != value:  # what is not a number stays seen
                best = a
        target[b] = reward_t[b] + discount_t[b] * q_t[b, best]  # Eqs. 2 and 14; 5 and 16
        error[b] = target[b] - q_tm1[b, action_tm1[b]]
        size = abs(error[b])
        quadratic = size if size < threshold or size != size else threshold
        total += weight[b] * quadratic * (size - number(0.5) * quadratic)
        slope = max(-threshold, min(threshold, error[b]))
        gradient[b] = 0
        gradient[b, action_tm1[b]] = -slope * weight[b] / batch  # the loss is of target − Q
    mean: float = total / batch
    return mean


# --- A3C -----------------------------------------------------------------------------------------


def log_policy(preference: Tensor) -> Tensor:
    """log π(·|x) for the policy head's outputs, before the softmax [..., A]."""
    return F.log_softmax(preference, dim=-1)


def policy_gradient(log_pi: Tensor, action: Tensor, advantage: Tensor) -> Tensor:
    """−log π(a|x) A: the loss whose gradient is the policy's (Eqs. 6, 21; 26 with noise).

    Args:
        log_pi: log π(·|x) [..., A].
        action: what was done [...].
        advantage: Q̂ − V(x), through which nothing is learnt here [...].

    Returns:
        [...].
    """
    log_probability = log_pi.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return -log_probability * advantage.detach()


def entropy(log_pi: Tensor) -> Tensor:
    """H(π(·|x)) = −Σ_a π(a|x) log π(a|x) (Eq. 6) for log π [..., A]."""
    return -(log_pi.exp() * log_pi).sum(dim=-1)


def over_rollout(loss: Tensor) -> Tensor:
    """The sum over the steps of a roll-out and the mean over its environments, for loss [T, N]."""
    return loss.sum() / loss.shape[1]
