"""Returns of roll-outs: tensors in, tensors out."""

from __future__ import annotations

import torch
from torch import Tensor


def n_step_returns(
    reward: Tensor,
    discount: Tensor,
    last_value: Tensor,
    cut: Tensor | None = None,
    cut_value: Tensor | None = None,
) -> Tensor:
    """Q̂_i = Σ_j γ^(j−i) r_(t+j) + γ^(k−i) V(x_(t+k)), backwards (Eqs. 17, 25; Algorithm 2).

    Args:
        reward: r after each of T steps of N environments [T, N].
        discount: γ, but 0 where the step ended the game or a life: nothing is expected after it
            [T, N].
        last_value: V of the state after the last step [N].
        cut: where a time limit ended the episode after a step, so that the next step is another
            episode's [T, N]; None: nowhere.
        cut_value: V of the state after each step, read where `cut` is true [T, N].

    Returns:
        [T, N].
    """
    returns, following = [], last_value
    for t in reversed(range(len(reward))):
        if cut is not None:
            assert cut_value is not None, "what was cut needs the values to go on with"
            following = torch.where(cut[t], cut_value[t], following)
        following = reward[t] + discount[t] * following  # Q ← r_i + γQ
        returns.append(following)
    return torch.stack(returns[::-1])
