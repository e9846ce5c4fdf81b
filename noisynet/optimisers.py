"""RMSProp as the original agents have it, ε inside the root: centred (DQN) and shared (A3C)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import numba
import numpy as np
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

    def step(self) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for part in self.parts():
            part()

    def parts(self) -> list[Callable[[], None]]:
        """The step in parts that can be done in any order, and at the same time."""
        parts: list[Callable[[], None]] = []
        for group in self.param_groups:
            rates = group["lr"], group["decay"], group["epsilon"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                averages = state["gradient_average"], state["square_average"]
                tensors = (parameter.detach(), parameter.grad, *averages)
                if _share_a_layout_on_the_cpu(tensors):
                    parts += _in_one_pass(tensors, rates)
                else:
                    parts.append(partial(_in_many_passes, *tensors, *rates))
        return parts


@torch.no_grad()
def _in_many_passes(
    parameter: Tensor,
    gradient: Tensor,
    average: Tensor,
    square: Tensor,
    learning_rate: float,
    decay: float,
    epsilon: float,
) -> None:
    """One step in torch's own operations, each a pass over memory."""
    average.lerp_(gradient, 1 - decay)
    square.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
    variance = torch.addcmul(square, average, average, value=-1).clamp_min_(0)  # but for rounding
    root = variance.add_(epsilon).sqrt_()
    parameter.addcdiv_(gradient, root, value=-learning_rate)


def _share_a_layout_on_the_cpu(tensors: tuple[Tensor, ...]) -> bool:
    first = tensors[0]
    if first.device.type != "cpu" or first.dtype not in (torch.float32, torch.float64):
        return False
    return all(
        tensor.stride() == first.stride()
        and tensor.dtype == first.dtype
        and tensor.untyped_storage().nbytes() == tensor.nbytes  # dense, in whatever order
        for tensor in tensors
    )


def _in_one_pass(
    tensors: tuple[Tensor, ...], rates: tuple[float, float, float]
) -> Iterator[Callable[[], None]]:
    """One step in a third of the time: memory, not arithmetic, is what it takes."""
    size = tensors[0].numel()
    arrays = [tensor.as_strided((size,), (1,)).numpy() for tensor in tensors]
    of_its_type = [arrays[0].dtype.type(rate) for rate in rates]
    for start in range(0, size, _PART):
        slices = [array[start : start + _PART] for array in arrays]
        yield partial(_centred_rmsprop, *slices, *of_its_type)
    for tensor in tensors[0], tensors[2], tensors[3]:  # autograd is to know that they have changed
        torch.autograd.graph.increment_version(tensor)


# Parameters of a part: large enough not to spend its time on being shared out.
_PART: Final = 1 << 18


@numba.njit(
    error_model="numpy", nogil=True
)  # compiled at the first step; a cache on disk would be a pickle
def _centred_rmsprop(
    parameter: Any, gradient: Any, average: Any, square: Any, lr: Any, decay: Any, epsilon: Any
) -> None:
    rest = type(decay)(1) - decay
    for i in range(parameter.size):
        d = gradient[i]
        g = average[i] + rest * (d - average[i])
        v = decay * square[i] + rest * d * d
        average[i], square[i] = g, v
        variance = max(v - g * g, type(decay)(0))  # rounding can make it negative
        parameter[i] -= lr * d / np.sqrt(variance + epsilon)


def annealed(initial: float, step: int, total: int) -> float:
    """A rate that falls linearly from `initial` to 0 over `total` steps."""
    return initial * max(0.0, 1.0 - step / total)


@torch.no_grad()
def shared_rmsprop_step(
    parameter: Tensor,
    square: Tensor,
    gradient: Tensor,
    learning_rate: float,
    decay: float,
    epsilon: float,
) -> None:
    """v ← ρv + (1−ρ)d²; θ ← θ − lr·d/√(v + ε), in place (A3C, section 4).

    θ and v may be shared by processes that all do this, without locks: each takes what it finds,
    and what two write at once is one's or the other's, number by number (Hogwild).

    Args:
        parameter: θ, flat.
        square: v, the running average of squares, likewise.
        gradient: d, likewise.
        learning_rate: lr.
        decay: ρ.
        epsilon: ε, for gradients of a loss summed over a roll-out.
    """
    if parameter.device.type != "cpu" or parameter.dtype not in (torch.float32, torch.float64):
        square.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
        parameter.addcdiv_(gradient, square.add(epsilon).sqrt_(), value=-learning_rate)
        return
    arrays = [tensor.numpy() for tensor in (parameter, square, gradient)]
    of_type = arrays[0].dtype.type
    _shared_rmsprop(*arrays, of_type(learning_rate), of_type(decay), of_type(epsilon))
    for tensor in parameter, square:  # autograd is to know that they have changed
        torch.autograd.graph.increment_version(tensor)


@numba.njit(error_model="numpy", nogil=True)
def _shared_rmsprop(
    parameter: Any, square: Any, gradient: Any, lr: Any, decay: Any, epsilon: Any
) -> None:
    rest = type(decay)(1) - decay
    for i in range(parameter.size):
        d = gradient[i]
        v = decay * square[i] + rest * d * d
        square[i] = v
        parameter[i] -= lr * d / np.sqrt(v + epsilon)
