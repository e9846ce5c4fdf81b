"""Large fully connected layers by tiles; the noise of their weights is made on the way.

Six rows of weights are perturbed and used while they are in the core's own cache: a layer's noise
then costs one pass over σ (docs/performance.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from noisynet.compiled import compiled
from noisynet.layers import NoisyLinear
from noisynet.networks.perturbation import arrays_of, is_for_one_pass, noise_of
from noisynet.networks.tiles import COLUMNS, ROWS, add_tile, six_from, six_of


def dense_of_one(x: Tensor, layer: Any, relu: bool) -> Tensor:
    """Wx + b [1, q] for x [1, p], and perhaps its ReLU; no weights are made.

    Args:
        x: what goes in.
        layer: plain or noisy, with biases.
        relu: whether a ReLU follows.
    """
    y, bias = x.new_empty(1, layer.out_features), layer.bias.detach().numpy()
    if not isinstance(layer, NoisyLinear) or layer._noise_off or not is_for_one_pass(layer):
        _dense_of_one(layer.weight.detach().numpy(), x.numpy()[0], bias, relu, y.numpy()[0])
        return y
    mu, sigma, inputs, outputs = arrays_of(layer.weight_mu, layer.weight_sigma, *noise_of(layer))
    _noisy_dense_of_one(mu, sigma, inputs, outputs, x.numpy()[0], bias, relu, y.numpy()[0])
    return y


@compiled
def _dense_of_one(weight: Any, x: Any, bias: Any, relu: Any, y: Any) -> None:
    zero = y.dtype.type(0)
    for o in range(y.size):
        row, total = weight[o], zero
        for i in range(x.size):
            total += row[i] * x[i]
        y[o] = max(total + bias[o], zero) if relu else total + bias[o]


@compiled
def _noisy_dense_of_one(
    mu: Any, sigma: Any, inputs: Any, outputs: Any, x: Any, bias: Any, relu: Any, y: Any
) -> None:
    scaled, zero = inputs * x, y.dtype.type(0)
    for o in range(y.size):
        means, deviations, mean, noise = mu[o], sigma[o], zero, zero
        for i in range(x.size):
            mean += means[i] * x[i]
            noise += deviations[i] * scaled[i]
        total = mean + outputs[o] * noise + bias[o]  # Eqs. 9, 10
        y[o] = max(total, zero) if relu else total


def dense_by_tiles(x: Tensor, layer: Any, relu: bool, keep: bool) -> tuple[Tensor, Tensor | None]:
    """Wx + b [B, q] for x [B, p], and perhaps its ReLU; and the weights in force.

    Args:
        x: what goes in.
        layer: plain or noisy, with biases.
        relu: whether a ReLU follows.
        keep: a gradient is to follow; else weights that were made on the way are not given.
    """
    y, packed = x.new_empty(len(x), layer.out_features), _pack_rows(x.numpy())
    bias = layer.bias.detach().numpy()
    if not isinstance(layer, NoisyLinear) or layer._noise_off or not is_for_one_pass(layer):
        weight = layer.weight.detach().contiguous()
        _dense(weight.numpy(), packed, bias, relu, y.numpy())
        return y, weight
    rows = layer.out_features if keep else ROWS
    weight = x.new_empty(rows, layer.in_features)
    mu, sigma, inputs, outputs = arrays_of(layer.weight_mu, layer.weight_sigma, *noise_of(layer))
    noise = mu, sigma, inputs, outputs, weight.numpy()
    _noisy_dense(*noise, packed, bias, relu, y.numpy())
    return y, weight if keep else None


@compiled
def _pack_rows(x: Any) -> Any:
    """[B, p] as [B / 16, p, 16], sixteen rows side by side; what is missing is 0."""
    batch, inputs = x.shape
    packed = np.zeros((-(-batch // COLUMNS), inputs, COLUMNS), x.dtype)
    for block in range(len(packed)):
        rows = x[block * COLUMNS : (block + 1) * COLUMNS]
        for i in range(inputs):
            for c in range(len(rows)):
                packed[block, i, c] = rows[c, i]
    return packed


@compiled
def _dense(weight: Any, packed: Any, bias: Any, relu: Any, y: Any) -> None:
    for o in range(0, len(weight), ROWS):
        _rows(weight[o : o + ROWS], o, packed, bias, relu, y)


@compiled
def _noisy_dense(
    mu: Any,
    sigma: Any,
    inputs: Any,
    outputs: Any,
    weight: Any,
    packed: Any,
    bias: Any,
    relu: Any,
    y: Any,
) -> None:
    for first in range(0, len(mu), ROWS):
        count = min(ROWS, len(mu) - first)
        place = first if len(weight) == len(mu) else 0
        for o in range(count):
            for i in range(mu.shape[1]):
                noise = sigma[first + o, i] * (outputs[first + o] * inputs[i])  # Eq. 10
                weight[place + o, i] = mu[first + o, i] + noise  # Eq. 9
        _rows(weight[place : place + count], first, packed, bias, relu, y)


@compiled
def _rows(weight: Any, first: Any, packed: Any, bias: Any, relu: Any, y: Any) -> None:
    """Up to 6 of the outputs, from `first` on, of the whole batch."""
    count, inputs = weight.shape
    begins = six_of(np.arange(count) * inputs, 0, 0)
    tile, whole = np.empty((ROWS, COLUMNS), y.dtype), np.zeros(1, np.int64)
    zero = y.dtype.type(0)
    for block in range(len(packed)):
        tile[:] = 0
        at = block * inputs * COLUMNS
        add_tile(tile, six_from(0, COLUMNS), weight, begins, whole, inputs, packed, at, COLUMNS)
        for c in range(min(COLUMNS, len(y) - block * COLUMNS)):
            for o in range(count):
                total = tile[o, c] + bias[first + o]
                y[block * COLUMNS + c, first + o] = max(total, zero) if relu else total
