"""RMSProp in one pass over memory: drop-ins for the functions in `noisynet.optimisers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisynet.kernels.compiled import compiled


def centred_rmsprop_(
    parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor, *rates: float
) -> None:
    """See `noisynet.optimisers.centred_rmsprop_`; PyTorch's operations make seven passes."""
    theta, d, g, v = _flat(parameter, gradient, average, square)
    centred_rmsprop(theta, d, g, v, (*rates, 1.0))
    torch.autograd.graph.increment_version([parameter, average, square])


def shared_rmsprop_(parameter: Tensor, gradient: Tensor, square: Tensor, *rates: float) -> None:
    """See `noisynet.optimisers.shared_rmsprop_`."""
    theta, d, v = _flat(parameter, gradient, square)
    _shared_rmsprop(theta, d, v, rates)
    torch.autograd.graph.increment_version([parameter, square])


def _flat(parameter: Tensor, gradient: Tensor, *statistics: Tensor) -> list[Any]:
    """The memory of each tensor as one array, with the elements in the parameter's order."""
    strides, last = parameter.stride(), torch.channels_last
    dense = parameter.is_contiguous() or parameter.is_contiguous(memory_format=last)
    if not dense or any(tensor.stride() != strides for tensor in statistics):
        raise ValueError(
            "RMSProp's kernel expected a contiguous or channels-last parameter, and statistics "
            f"with its memory layout, got strides {strides} and {[t.stride() for t in statistics]}."
        )
    if gradient.stride() != strides:
        gradient = torch.empty_like(parameter).copy_(gradient)
    flat = (parameter.numel(),), (1,)
    return [t.detach().as_strided(*flat).numpy() for t in (parameter, gradient, *statistics)]


@compiled
def centred_rmsprop(parameter: Any, gradient: Any, average: Any, square: Any, rates: Any) -> None:
    """`centred_rmsprop_` for arrays, in one loop; the fourth of the rates scales the gradient."""
    number = parameter.dtype.type
    lr, decay, rest = number(rates[0]), number(rates[1]), number(1) - number(rates[1])
    epsilon, scale = number(rates[2]), number(rates[3])
    for i in range(parameter.size):
        d = scale * gradient[i]
        g = average[i] + rest * (d - average[i])
        v = decay * square[i] + rest * d * d
        average[i], square[i] = g, v
        variance = max(v - g * g, number(0))  # rounding can make it negative
        parameter[i] -= lr * d / np.sqrt(variance + epsilon)


@compiled
def _shared_rmsprop(parameter: Any, gradient: Any, square: Any, rates: Any) -> None:
    number = parameter.dtype.type
    lr, decay, epsilon = number(rates[0]), number(rates[1]), number(rates[2])
    rest = number(1) - decay
    for i in range(parameter.size):
        d = gradient[i]
        v = decay * square[i] + rest * d * d
        square[i] = v
        parameter[i] -= lr * d / np.sqrt(v + epsilon)
