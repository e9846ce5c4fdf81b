"""A network's parameters as views of one vector, which workers can share and copy at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Final

import torch
from torch import Tensor

# Every parameter starts on a cache line of its own: 16 numbers of 4 bytes. The padding is zero and
# stays zero.
_ALIGNMENT: Final = 16


def flatten_parameters(parameters: Iterable[Tensor]) -> Tensor:
    """Move parameters into one new vector, of which they become views.

    Memory layouts stay: channels-last convolutions remain channels-last.

    Returns:
        The vector.
    """
    parameters = list(parameters)
    vector = parameters[0].new_zeros(sum(map(_padded_size, parameters)))
    for parameter, view in zip(parameters, views_of(vector, parameters), strict=True):
        view.copy_(parameter.detach())
        parameter.data = view
    return vector


def views_of(vector: Tensor, parameters: Iterable[Tensor]) -> list[Tensor]:
    """Views of a vector, each with the shape and the strides of a parameter."""
    parameters = list(parameters)
    return [
        _view_like(vector[start : start + parameter.numel()], parameter)
        for start, parameter in zip(offsets_of(parameters), parameters, strict=True)
    ]


def offsets_of(parameters: Iterable[Tensor]) -> list[int]:
    """Where each parameter starts in the vector of `flatten_parameters`."""
    return list(accumulate(map(_padded_size, parameters), initial=0))[:-1]


def _padded_size(parameter: Tensor) -> int:
    return -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT


def _view_like(vector: Tensor, parameter: Tensor) -> Tensor:
    if parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last):
        outputs, inputs, height, width = parameter.shape
        return vector.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
    return vector.view(parameter.shape)
