"""RMSProp as the original agents have it, ε inside the root: centred (DQN) and shared (A3C)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from noisynet.compiled import compiled


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
        self._forget()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a file or of a copy."""
        super().__setstate__(state)
        self._forget()

    def _forget(self) -> None:
        """Leave the parts that were made for the last step, and what they were made of."""
        self._of: list[Any] = []
        self._parts: list[Callable[[], None]] = []
        self._moved: list[Tensor] = []

    def step(self) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for part in self.parts():
            part()

    def parts(self) -> list[Callable[[], None]]:
        """The step in parts that can be done in any order, and at the same time."""
        moving = [
            (parameter, parameter.grad, self.state[parameter], group)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        now = [_identity(*of) for of in moving]
        if now != self._of:  # gradients mostly lie where the last ones lay
            self._parts, self._moved = [], []
            for parameter, gradient, state, group in moving:
                tensors = parameter, state["gradient_average"], state["square_average"]
                rates = group["lr"], group["decay"], group["epsilon"]
                self._parts += _parts(gradient, tensors, rates)
                self._moved += tensors
            self._of = now
        torch.autograd.graph.increment_version(self._moved)  # torch does not see it by itself
        return self._parts


def _identity(parameter: Tensor, gradient: Tensor, state: Any, group: Any) -> tuple[Any, ...]:
    """What the parts of a step depend on."""
    tensors = parameter, gradient, state["gradient_average"], state["square_average"]
    places = [(tensor.data_ptr(), tensor.stride(), tensor.dtype) for tensor in tensors]
    return (*places, group["lr"], group["decay"], group["epsilon"])


def _parts(
    gradient: Tensor, tensors: tuple[Tensor, Tensor, Tensor], rates: tuple[float, float, float]
) -> list[Callable[[], None]]:
    """The step of one parameter, a piece of memory at a time if it lies like its gradient.

    That takes a third of the time of many passes: memory, not arithmetic, is what it costs.
    """
    parameter = tensors[0]
    alike = all(
        tensor.stride() == parameter.stride() and tensor.dtype == parameter.dtype
        for tensor in (gradient, *tensors)
    )
    alike = alike and parameter.dtype in (torch.float32, torch.float64)
    if not alike or parameter.device.type != "cpu" or not _is_dense(parameter):
        return [partial(_in_many_passes, gradient, *tensors, *rates)]
    size = parameter.numel()
    arrays = [tensor.detach().as_strided((size,), (1,)).numpy() for tensor in (gradient, *tensors)]
    return [
        partial(_centred_rmsprop, *pieces, *rates)  # type: ignore[call-arg]
        for pieces in (
            [a[start : start + _PART] for a in arrays] for start in range(0, size, _PART)
        )
    ]


def _is_dense(tensor: Tensor) -> bool:
    """Whether it fills a stretch of memory, in whatever order."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return last == tensor.numel() - 1


@torch.no_grad()
def clip_by_norm(
    parameters: Iterable[nn.Parameter],
    largest: float,
    share: Callable[[Sequence[Callable[[], Any]]], list[Any]],
) -> None:
    """Scale all gradients by the same factor so that their norm, taken together, is at most this.

    Args:
        parameters: whose gradients.
        largest: the norm they may have.
        share: does some tasks, and gives their results in order.
    """
    moving = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameter in moving if parameter.grad is not None]
    if not all(gradient.device.type == "cpu" and _is_dense(gradient) for gradient in gradients):
        nn.utils.clip_grad_norm_(moving, largest)
        return
    flat = [gradient.as_strided((gradient.numel(),), (1,)).numpy() for gradient in gradients]
    pieces = [
        array[start : start + _PART] for array in flat for start in range(0, array.size, _PART)
    ]
    norm = math.sqrt(sum(share([partial(_sum_of_squares, piece) for piece in pieces])))
    if not norm <= largest:  # one that is no number is passed on
        share([partial(_scale, piece, largest / (norm + 1e-6)) for piece in pieces])


@compiled
def _sum_of_squares(numbers: Any) -> Any:
    total = 0.0
    for number in numbers:
        total += np.float64(number) * number
    return total


@compiled
def _scale(numbers: Any, factor: Any) -> None:
    factor = numbers.dtype.type(factor)
    for i in range(numbers.size):
        numbers[i] *= factor


@torch.no_grad()
def _in_many_passes(
    gradient: Tensor,
    parameter: Tensor,
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


# Parameters of a part: large enough not to spend its time on being shared out.
_PART: Final = 1 << 18


@compiled
def _centred_rmsprop(
    gradient: Any, parameter: Any, average: Any, square: Any, lr: Any, decay: Any, epsilon: Any
) -> None:
    one = parameter.dtype.type
    lr, decay, epsilon = one(lr), one(decay), one(epsilon)
    rest = one(1) - decay
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
    rates = [arrays[0].dtype.type(rate) for rate in (learning_rate, decay, epsilon)]
    _shared_rmsprop(*arrays, *rates)
    for tensor in parameter, square:  # autograd is to know that they have changed
        torch.autograd.graph.increment_version(tensor)


@compiled
def _shared_rmsprop(
    parameter: Any, square: Any, gradient: Any, lr: Any, decay: Any, epsilon: Any
) -> None:
    rest = type(decay)(1) - decay
    for i in range(parameter.size):
        d = gradient[i]
        v = decay * square[i] + rest * d * d
        square[i] = v
        parameter[i] -= lr * d / np.sqrt(v + epsilon)
