"""RMSProp as in the original agents, ε inside the root: centred (DQN) and shared (A3C)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

RMSPropStep = Callable[[Tensor, Tensor, Tensor, Tensor, float, float, float], None]
"""One step of a parameter: θ, d, g, v, lr, ρ, ε; changes θ, g and v in place."""

SharedRMSPropStep = Callable[[Tensor, Tensor, Tensor, float, float, float], None]
"""One step of shared parameters: θ, d, v, lr, ρ, ε; changes θ and v in place."""


@torch.no_grad()
def centred_rmsprop_(
    parameter: Tensor,
    gradient: Tensor,
    average: Tensor,
    square: Tensor,
    learning_rate: float,
    decay: float,
    epsilon: float,
) -> None:
    """g ← ρg + (1−ρ)d; v ← ρv + (1−ρ)d²; θ ← θ − lr·d/√(v − g² + ε), in place.

    Args:
        parameter: θ.
        gradient: d.
        average: g.
        square: v.
        learning_rate: lr.
        decay: ρ.
        epsilon: ε.
    """
    average.lerp_(gradient, 1 - decay)
    square.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
    variance = torch.addcmul(square, average, average, value=-1)
    variance.clamp_min_(0)  # rounding can make it negative
    # On a CPU, rsqrt_ and addcmul_ take three quarters of the time of sqrt_ and addcdiv_.
    parameter.addcmul_(gradient, variance.add_(epsilon).rsqrt_(), value=-learning_rate)


@torch.no_grad()
def shared_rmsprop_(
    parameter: Tensor,
    gradient: Tensor,
    square: Tensor,
    learning_rate: float,
    decay: float,
    epsilon: float,
) -> None:
    """v ← ρv + (1−ρ)d²; θ ← θ − lr·d/√(v + ε), in place (A3C, section 4).

    θ and v may be shared by processes that all do this without locks: each uses the values that it
    reads, and of two simultaneous writes one wins, number by number (Hogwild).

    Args:
        parameter: θ.
        gradient: d, of a loss summed over a roll-out.
        square: v.
        learning_rate: lr.
        decay: ρ.
        epsilon: ε.
    """
    square.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
    parameter.addcmul_(gradient, square.add(epsilon).rsqrt_(), value=-learning_rate)


class CentredRMSProp(torch.optim.Optimizer):
    """The optimiser of Nature DQN: centred RMSProp with ε inside the root.

    `torch.optim.RMSprop(centered=True)` adds ε outside the root, which changes the step where
    gradients are small. Nature's "gradient momentum" is the average g of the centring.

    Args:
        parameters: what to optimise.
        learning_rate: lr.
        decay: ρ, of both averages.
        epsilon: ε, for gradients of a *mean* loss; the original's 0.01 is for gradients summed over
            a batch of 32 and so corresponds to 0.01/32².
        step: the formula; `noisynet.kernels` has one that passes over memory once.
        compiled: whether `torch.compile` makes one call of the steps of all parameters, each a
            single pass over memory.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        decay: float,
        epsilon: float,
        step: RMSPropStep = centred_rmsprop_,
        *,
        compiled: bool = False,
    ) -> None:
        defaults = {"lr": learning_rate, "decay": decay, "epsilon": epsilon}
        super().__init__(parameters, defaults)
        self._step = step
        self._steps = torch.compile(_steps, dynamic=False, fullgraph=True) if compiled else _steps
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["gradient_average"] = torch.zeros_like(parameter)
                self.state[parameter]["square_average"] = torch.zeros_like(parameter)

    def __getstate__(self) -> dict[str, Any]:
        # Copies keep the step; the base class knows its own attributes only.
        return {**super().__getstate__(), "_step": self._step, "_steps": self._steps}

    def step(self) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            learnt = [parameter for parameter in group["params"] if parameter.grad is not None]
            states = [self.state[parameter] for parameter in learnt]
            self._steps(
                self._step,
                learnt,
                [parameter.grad for parameter in learnt],
                [state["gradient_average"] for state in states],
                [state["square_average"] for state in states],
                (group["lr"], group["decay"], group["epsilon"]),
            )


def _steps(
    step: RMSPropStep,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    averages: Sequence[Tensor],
    squares: Sequence[Tensor],
    rates: tuple[float, float, float],
) -> None:
    """One step of every parameter."""
    for tensors in zip(parameters, gradients, averages, squares, strict=True):
        step(*tensors, *rates)


def annealed(initial: float, step: int, total: int) -> float:
    """A rate that falls linearly from `initial` to 0 over `total` steps."""
    return initial * max(0.0, 1.0 - step / total)
