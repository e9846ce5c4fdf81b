"""The losses of the value agents and of the actor-critic agents: tensors in, tensors out.

Names carry time, as in rlax: `_tm1` is the state x in which an action was taken, `_t` the next.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

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


# --- C51 and Rainbow -----------------------------------------------------------------------------


def categorical_mean(logits: Tensor, atoms: Tensor) -> Tensor:
    """The expected value Σ_i p_i z_i [...] of distributions with logits [..., N] on atoms [N]."""
    return (logits.softmax(dim=-1) * atoms).sum(dim=-1)


def categorical_projection(
    reward_t: Tensor, discount_t: Tensor, probability_t: Tensor, atoms: Tensor
) -> Tensor:
    """Φ T Z: the distribution of r + γZ projected onto the atoms (Bellemare et al. 2017, Eq. 7).

    Each shifted atom, clipped to the range, shares its probability between its two neighbours in
    proportion to how near they are.

    Args:
        reward_t: [B].
        discount_t: [B].
        probability_t: of each atom at y [B, N].
        atoms: z, evenly spaced and increasing [N].

    Returns:
        The probability of each atom [B, N].
    """
    shifted = reward_t[:, None] + discount_t[:, None] * atoms  # T z_j [B, N]
    shifted = shifted.clamp(atoms[0], atoms[-1])
    distance = (shifted[:, None, :] - atoms[:, None]).abs() / (atoms[1] - atoms[0])  # [B, N, N]
    return ((1 - distance).clamp(min=0) * probability_t[:, None, :]).sum(dim=-1)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """−Σ_i m_i log p_i [B] of target probabilities m [B, N] and logits [B, N]."""
    return -(target * F.log_softmax(logits, dim=-1)).sum(dim=-1)


def kl_divergence(target: Tensor, logits: Tensor) -> Tensor:
    """KL(m ‖ p) [B], at least 0: the cross-entropy less the entropy of m [B, N]."""
    return (cross_entropy(target, logits) + torch.xlogy(target, target).sum(dim=-1)).clamp(min=0)


# --- A3C -----------------------------------------------------------------------------------------


def log_policy(logits: Tensor) -> Tensor:
    """log π(·|x) [..., A] of the policy head's outputs."""
    return F.log_softmax(logits, dim=-1)


def policy_gradient(log_pi: Tensor, action: Tensor, advantage: Tensor) -> Tensor:
    """−log π(a|x) A: the loss whose gradient is the policy's (Eqs. 6, 21; 26 with noise).

    Args:
        log_pi: log π(·|x) [..., A].
        action: [...].
        advantage: Q̂ − V(x), treated as a constant [...].

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
