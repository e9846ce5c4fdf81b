"""Layers of small networks, forward and backward, in one compiled call each.

A call of torch costs more than most of their arithmetic. Planes such as MinAtar's are nearly empty:
what is 0 is passed over.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from noisynet.compiled import compiled

LARGEST: Final = 1 << 15
"""Weights up to which a layer is small: beyond, torch's matrix products are faster."""


def is_small(weights: int, dtype: torch.dtype) -> bool:
    """Whether a layer with so many weights is one for `dense` and `dense_backward`."""
    return weights <= LARGEST and dtype == torch.float32


def dense(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """Wx + b [B, q] for x [B, p], and perhaps its ReLU."""
    y = x.new_empty(len(x), len(weight))
    _dense(_array(x), _array(weight), _array(bias), relu, y.numpy())
    return y


def dense_backward(
    x: Tensor,
    weight: Tensor,
    gradient: Tensor,
    through_relu: bool,
    d_weight: Tensor,
    d_bias: Tensor,
) -> Tensor:
    """The gradients of x, of the weights and of the biases, given that of Wx + b [B, q].

    Args:
        x: what went in [B, p].
        weight: [q, p].
        gradient: [B, q].
        through_relu: x came out of a ReLU; its gradient is the one before it.
        d_weight: where the weights' gradient goes.
        d_bias: where the biases' gradient goes.

    Returns:
        The gradient of x.
    """
    d_x = torch.empty_like(x)
    arrays = _array(x), _array(weight), _array(gradient), through_relu
    _dense_backward(*arrays, d_x.numpy(), d_weight.numpy(), d_bias.numpy())
    return d_x


def convolve_planes(planes: Tensor, layer: nn.Conv2d, features: Tensor) -> None:
    """The ReLU of a convolution.

    Args:
        planes: bytes [B, channels, height, width].
        layer: the convolution.
        features: where it goes, as floats [B, filters · rows · columns].
    """
    assert layer.bias is not None, "every convolution here has one"
    _convolve_planes(
        *(planes.numpy(), _lying(layer.weight), _array(layer.bias)),
        _as_planes(features, planes, layer.weight),
    )


def convolve_planes_backward(
    planes: Tensor, features: Tensor, gradient: Tensor, d_weight: Tensor, d_bias: Tensor
) -> None:
    """The gradients of weights and biases, given that of what `convolve_planes` gave.

    Args:
        planes: what went in.
        features: what came out.
        gradient: of the features.
        d_weight: where the weights' gradient goes.
        d_bias: where the biases' gradient goes.
    """
    y, d_y = (_as_planes(tensor, planes, d_weight) for tensor in (features, gradient))
    _convolve_planes_backward(planes.numpy(), y, d_y, _lying(d_weight), d_bias.numpy())


def _as_planes(features: Tensor, planes: Tensor, weight: Tensor) -> Any:
    """Features as [B, filters, rows, columns]."""
    side, (height, width) = weight.shape[2], planes.shape[2:]
    shape = len(planes), len(weight), height - side + 1, width - side + 1
    return features.view(shape).numpy()


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def _lying(weight: Tensor) -> Any:
    """Filters as they lie in memory: [filters, kernel height, kernel width, channels]."""
    return weight.detach().permute(0, 2, 3, 1).numpy()


@compiled
def _dense(x: Any, weight: Any, bias: Any, relu: Any, y: Any) -> None:
    for b in range(len(x)):
        for o in range(len(weight)):
            total = np.float32(0)
            for i in range(x.shape[1]):
                total += x[b, i] * weight[o, i]
            total += bias[o]
            y[b, o] = max(total, np.float32(0)) if relu else total


@compiled
def _dense_backward(
    x: Any, weight: Any, gradient: Any, through_relu: Any, d_x: Any, d_weight: Any, d_bias: Any
) -> None:
    d_x[:], d_weight[:], d_bias[:] = 0, 0, 0
    for b in range(len(x)):
        for o in range(len(weight)):
            g = gradient[b, o]
            if g == 0:
                continue
            d_bias[o] += g
            for i in range(x.shape[1]):
                d_weight[o, i] += g * x[b, i]
                d_x[b, i] += g * weight[o, i]
        if through_relu:
            for i in range(x.shape[1]):
                if x[b, i] <= 0:
                    d_x[b, i] = 0


@compiled
def _convolve_planes(planes: Any, weight: Any, bias: Any, out: Any) -> None:
    filters, side, _, channels = weight.shape
    _, _, rows, columns = out.shape
    # Filters last: one pixel moves all of them at once.
    moves = np.empty((channels, side, side, filters), np.float32)
    for f in range(filters):
        for i in range(side):
            for j in range(side):
                for c in range(channels):
                    moves[c, i, j, f] = weight[f, i, j, c]
    y = np.empty((rows, columns, filters), np.float32)
    for b in range(len(planes)):
        y[:] = bias
        for c in range(channels):
            for h in range(planes.shape[2]):
                for w in range(planes.shape[3]):
                    if planes[b, c, h, w] == 0:
                        continue
                    value = np.float32(planes[b, c, h, w])
                    for i in range(max(0, h - rows + 1), min(side, h + 1)):
                        for j in range(max(0, w - columns + 1), min(side, w + 1)):
                            for f in range(filters):
                                y[h - i, w - j, f] += value * moves[c, i, j, f]
        for f in range(filters):
            for r in range(rows):
                for s in range(columns):
                    out[b, f, r, s] = max(y[r, s, f], np.float32(0))


@compiled
def _convolve_planes_backward(
    planes: Any, y: Any, gradient: Any, d_weight: Any, d_bias: Any
) -> None:
    filters, side, _, channels = d_weight.shape
    _, _, rows, columns = y.shape
    moves = np.zeros((channels, side, side, filters), np.float32)
    d_y = np.empty((rows, columns, filters), np.float32)
    d_bias[:] = 0
    for b in range(len(planes)):
        for f in range(filters):
            for r in range(rows):
                for s in range(columns):
                    g = gradient[b, f, r, s] if y[b, f, r, s] > 0 else np.float32(0)  # ReLU
                    d_y[r, s, f] = g
                    d_bias[f] += g
        for c in range(channels):
            for h in range(planes.shape[2]):
                for w in range(planes.shape[3]):
                    if planes[b, c, h, w] == 0:
                        continue
                    value = np.float32(planes[b, c, h, w])
                    for i in range(max(0, h - rows + 1), min(side, h + 1)):
                        for j in range(max(0, w - columns + 1), min(side, w + 1)):
                            for f in range(filters):
                                moves[c, i, j, f] += value * d_y[h - i, w - j, f]
    for f in range(filters):
        for i in range(side):
            for j in range(side):
                for c in range(channels):
                    d_weight[f, i, j, c] = moves[c, i, j, f]
