"""RMSProp in one pass over memory: drop-ins for the functions in `noisynet.optimisers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisynet.kernels.compiled import compiled


def centred_rmsprop_(
    parameter: Tensor,
    gradient: Tensor,
    average: Tensor,
    square: Tensor,
    learning_rate: float,
    decay: float,
    epsilon: float,
) -> None:
    """See `noisynet.optimisers.centred_rmsprop_`; PyTorch's operations make seven passes."""
    tensors = parameter, gradient, average, square
    theta, d, g, v = (_flat_like(parameter, tensor) for tensor in tensors)
    centred_rmsprop(theta, d, g, v, learning_rate, decay, epsilon)
    torch.autograd.graph.increment_version([parameter, average, square])


def shared_rmsprop_(
    parameter: Tensor,
    gradient: Tensor,
    square: Tensor,
    learning_rate: float,
    decay: float,
    epsilon: float,
) -> None:
    """See `noisynet.optimisers.shared_rmsprop_`."""
    theta, d, v = (_flat_like(parameter, tensor) for tensor in (parameter, gradient, square))
    _shared_rmsprop(theta, d, v, learning_rate, decay, epsilon)
    torch.autograd.graph.increment_version([parameter, square])


def _flat_like(parameter: Tensor, tensor: Tensor) -> Any:
    """The memory of a tensor as one array, element for element that of the parameter."""
    if tensor.stride() != parameter.stride():  # a gradient may have another layout
        tensor = torch.empty_like(parameter).copy_(tensor)
    return tensor.detach().as_strided((tensor.numel(),), (1,)).numpy()


@compiled
def centred_rmsprop(
    parameter: Any, gradient: Any, average: Any, square: Any, lr: Any, decay: Any, epsilon: Any
) -> None:
    """`centred_rmsprop_` for arrays, in one loop."""
    number = parameter.dtype.type
    lr, decay, epsilon = number(lr), number(decay), number(epsilon)
    rest = number(1) - decay
    for i in range(parameter.size):
        d = gradient[i]
        g = average[i] + rest * (d - average[i])
        v = decay * square[i] + rest * d * d
        average[i], square[i] = g, v
        variance = max(v - g * g, number(0))  # rounding can make it negative
        parameter[i] -= lr * d / np.sqrt(variance + epsilon)


@compiled
def _shared_rmsprop(
    parameter: Any, gradient: Any, square: Any, lr: Any, decay: Any, epsilon: Any
) -> None:
    number = parameter.dtype.type
    lr, decay, epsilon = number(lr), number(decay), number(epsilon)
    rest = number(1) - decay
    for i in range(parameter.size):
        d = gradient[i]
        v = decay * square[i] + rest * d * d
        square[i] = v
        parameter[i] -= lr * d / np.sqrt(v + epsilon)
