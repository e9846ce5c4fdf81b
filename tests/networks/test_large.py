"""Large fully connected layers by tiles: torch's own, but for rounding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from noisynet import NoisyLinear, noise_off
from noisynet.layers import Noise
from noisynet.networks.large import dense_by_tiles, dense_of_one

SIZES = [(32, 48, 12), (5, 33, 7), (17, 16, 1), (1, 9, 20)]  # rows, inputs, outputs
KINDS: list[Noise | None] = [None, "factorised", "independent"]


def layer_of(noise: Noise | None, inputs: int, outputs: int) -> nn.Linear | NoisyLinear:
    torch.manual_seed(0)
    if noise is None:
        return nn.Linear(inputs, outputs)
    return NoisyLinear(inputs, outputs, noise=noise)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_a_layer_by_tiles_gives_what_the_layer_gives(
    rows: int, inputs: int, outputs: int, noise: Noise | None, keep: bool, relu: bool
) -> None:
    layer = layer_of(noise, inputs, outputs)
    x = torch.randn(rows, inputs)
    with torch.no_grad():
        expected = F.relu(layer(x)) if relu else layer(x)
        y, weight = dense_by_tiles(x, layer, relu, keep)
        assert torch.allclose(y, expected, rtol=1e-5, atol=1e-5)
        if keep:
            assert weight is not None
            assert torch.allclose(weight, layer.weight, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("noise", KINDS)
def test_so_does_one_row(noise: Noise | None, relu: bool) -> None:
    layer, x = layer_of(noise, 70, 13), torch.randn(1, 70)
    with torch.no_grad():
        expected = F.relu(layer(x)) if relu else layer(x)
        assert torch.allclose(dense_of_one(x, layer, relu), expected, rtol=1e-5, atol=1e-5)


def test_where_the_noise_is_off_it_is_the_means() -> None:
    layer, x = NoisyLinear(40, 8), torch.randn(3, 40)
    with torch.no_grad(), noise_off(layer):
        y, weight = dense_by_tiles(x, layer, relu=False, keep=True)
        one = dense_of_one(x[:1], layer, relu=False)
    expected = F.linear(x, layer.weight_mu, layer.bias_mu)
    assert torch.allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert torch.allclose(one, expected[:1], rtol=1e-5, atol=1e-5)
    assert weight is not None
    assert torch.equal(weight, layer.weight_mu)
