"""RMSProp as the original agents have it, ε inside the root: centred (DQN) and shared (A3C)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
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
        self._flat: dict[nn.Parameter, _Flat] = {}

    def step(self) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for part in self.parts():
            part()

    def parts(self) -> list[Callable[[], None]]:
        """The step in parts that can be done in any order, and at the same time."""
        parts: list[Callable[[], None]] = []
        moved: list[Tensor] = []
        for group in self.param_groups:
            rates = [group["lr"], group["decay"], group["epsilon"]]
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                tensors = parameter, state["gradient_average"], state["square_average"]
                flat = self._flat.get(parameter)
                if flat is None or not flat.is_of(tensors):
                    flat = self._flat[parameter] = _Flat(tensors)
                if flat.fits(gradient):
                    parts += flat.parts(gradient, rates)
                    moved += tensors
                else:
                    parts.append(partial(_in_many_passes, gradient, *tensors, *rates))
        torch.autograd.graph.increment_version(moved)  # torch sees nothing of what is moved so
        return parts


class _Flat:
    """A parameter and its averages as flat arrays: a step of them is one pass over memory.

    That takes a third of the time of many passes: memory, not arithmetic, is what it costs.
    """

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.addresses = [tensor.data_ptr() for tensor in tensors]
        parameter = tensors[0]
        self.stride, self.dtype, self.size = parameter.stride(), parameter.dtype, parameter.numel()
        possible = parameter.device.type == "cpu" and _is_dense(parameter)
        possible = possible and self.dtype in (torch.float32, torch.float64)
        self.possible = possible and all(map(self._is_alike, tensors))
        arrays = [self._flatten(tensor) for tensor in tensors] if self.possible else []
        starts = range(0, self.size, _PART)
        self.pieces = [[array[start : start + _PART] for array in arrays] for start in starts]

    def is_of(self, tensors: tuple[Tensor, ...]) -> bool:
        """Whether it still stands for these, which may have been replaced."""
        return [tensor.data_ptr() for tensor in tensors] == self.addresses

    def fits(self, gradient: Tensor) -> bool:
        """Whether the gradient is laid out in the same way."""
        return self.possible and self._is_alike(gradient)

    def parts(self, gradient: Tensor, rates: Sequence[float]) -> Iterator[Callable[[], None]]:
        """The step, a piece of the arrays at a time."""
        flat = self._flatten(gradient)
        if len(self.pieces) == 1:
            yield partial(_centred_rmsprop, flat, *self.pieces[0], *rates)
            return
        for number, pieces in enumerate(self.pieces):
            piece = flat[number * _PART : (number + 1) * _PART]
            yield partial(_centred_rmsprop, piece, *pieces, *rates)

    def _is_alike(self, tensor: Tensor) -> bool:
        return tensor.stride() == self.stride and tensor.dtype == self.dtype

    def _flatten(self, tensor: Tensor) -> NDArray[Any]:
        array: NDArray[Any] = tensor.detach().as_strided((self.size,), (1,)).numpy()
        return array


def _is_dense(tensor: Tensor) -> bool:
    """Whether it fills a stretch of memory, in whatever order."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return last == tensor.numel() - 1


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
