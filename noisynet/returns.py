"""Returns of roll-outs: tensors in, tensors out."""

from __future__ import annotations

import torch
from torch import Tensor


def n_step_returns(
    reward: Tensor,
    discount: Tensor,
    bootstrap: Tensor,
    truncated: Tensor | None = None,
    truncated_value: Tensor | None = None,
) -> Tensor:
    """Q̂_i = Σ_j γ^(j−i) r_(t+j) + γ^(k−i) V(x_(t+k)), backwards (Eqs. 17, 25; Algorithm 2).

    Args:
        reward: r after each of T steps of N environments [T, N].
        discount: γ, but 0 where the step ended the game or a life [T, N].
        bootstrap: V of the state after the last step [N].
        truncated: where a time limit ended the episode, so that the next step belongs to another
            one [T, N]; None: nowhere.
        truncated_value: V of the state after each step, used where `truncated` [T, N].

    Returns:
        [T, N].
    """
    if truncated is not None and truncated_value is None:
        raise ValueError("expected truncated_value, the values of truncated steps, got None")
    returns, value = [], bootstrap
    for t in reversed(range(len(reward))):
        if truncated is not None and truncated_value is not None:
            value = torch.where(truncated[t], truncated_value[t], value)
        value = torch.addcmul(reward[t], discount[t], value)  # Q ← r_i + γQ
        returns.append(value)
    return torch.stack(returns[::-1])
