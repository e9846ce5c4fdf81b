"""Centred RMSProp as the original DQN has it, ε inside the root."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class CentredRMSProp(torch.optim.Optimizer):
    """g ← ρg + (1−ρ)d; v ← ρv + (1−ρ)d²; θ ← θ − lr·d/√(v − g² + ε).

    `torch.optim.RMSprop(centered=True)` adds ε outside the root, which changes the step where
    gradients are small. Nature's "gradient momentum" is the average g of the centring.

    Args:
        parameters: what to optimise.
        learning_rate: lr.
        decay: ρ, of both averages.
        epsilon: ε, for gradients of a *mean* loss; the original's 0.01 is for gradients summed over
            a batch of 32 and so corresponds to 0.01/32².
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        decay: float,
        epsilon: float,
    ) -> None:
        defaults = {"lr": learning_rate, "decay": decay, "epsilon": epsilon}
        super().__init__(parameters, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["gradient_average"] = torch.zeros_like(parameter)
                self.state[parameter]["square_average"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    _centred_rmsprop_(
                        parameter,
                        parameter.grad,
                        state["gradient_average"],
                        state["square_average"],
                        group["lr"],
                        group["decay"],
                        group["epsilon"],
                    )


def _centred_rmsprop_(
    parameter: Tensor,
    gradient: Tensor,
    average: Tensor,
    square: Tensor,
    learning_rate: float,
    decay: float,
    epsilon: float,
) -> None:
    """One step, in place; each line is one pass over memory."""
    average.lerp_(gradient, 1 - decay)
    square.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
    variance = torch.addcmul(square, average, average, value=-1).clamp_min_(0)  # but for rounding
    root = variance.add_(epsilon).sqrt_()
    parameter.addcdiv_(gradient, root, value=-learning_rate)
