"""A network's parameters as views of one vector, which workers can share and copy at once."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

# Every parameter starts on a cache line of its own: 16 numbers of 4 bytes. The padding is zero and
# stays zero.
_ALIGNMENT: Final = 16


def flatten_parameters(network: nn.Module) -> Tensor:
    """Move every trainable parameter into one new vector, of which they become views.

    Memory layouts stay: channels-last convolutions remain channels-last.

    Returns:
        The vector.
    """
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    flat = parameters[0].new_zeros(sum(map(_padded_size, parameters)))
    for parameter, view in zip(parameters, views_of(flat, network), strict=True):
        view.copy_(parameter.detach())
        parameter.data = view
    return flat


def views_of(flat: Tensor, network: nn.Module) -> list[Tensor]:
    """Views of a vector, each with the shape and the strides of a trainable parameter."""
    views, start = [], 0
    for parameter in network.parameters():
        if parameter.requires_grad:
            views.append(_view_like(flat[start : start + parameter.numel()], parameter))
            start += _padded_size(parameter)
    return views


def _padded_size(parameter: Tensor) -> int:
    return -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT


def _view_like(vector: Tensor, parameter: Tensor) -> Tensor:
    if parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last):
        outputs, inputs, height, width = parameter.shape
        return vector.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
    return vector.view(parameter.shape)
