from __future__ import annotations

import pytest
import torch
from torch import nn

from noisynet.audit.detect import find_noisy_layers, first_layer, require_noisy_layers
from noisynet.layers import NoisyLinear, NoisyLSTMCell


def test_noisy_linear_is_detected_with_and_without_bias() -> None:
    network = nn.Sequential(NoisyLinear(6, 5), nn.Linear(5, 5), NoisyLinear(5, 3, bias=False))
    first, second = find_noisy_layers(network)
    assert (first.name, second.name) == ("0", "2")
    assert first.parameters == ["weight_mu", "bias_mu", "weight_sigma", "bias_sigma"]
    assert second.parameters == ["weight_mu", "weight_sigma"]
    assert second.biases == (None, None)
    assert not first.transposed


def test_both_layers_of_an_lstm_cell_are_detected() -> None:
    assert len(find_noisy_layers(NoisyLSTMCell(4, 3))) == 2


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mu_w, self.sigma_w = (nn.Parameter(torch.randn(6, 5)) for _ in range(2))
        self.mu_bias, self.sigma_bias = (nn.Parameter(torch.randn(5)) for _ in range(2))


def test_weights_stored_as_inputs_by_outputs_are_transposed() -> None:
    module = Transposed()
    (layer,) = find_noisy_layers(module)
    assert layer.transposed
    mu, sigma = layer.weights
    assert torch.equal(mu, module.mu_w.t())
    assert torch.equal(sigma, module.sigma_w.t())


class TwoLinearLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mu, self.sigma = nn.Linear(6, 5), nn.Linear(6, 5)


def test_a_layer_with_linear_children_mu_and_sigma_is_detected() -> None:
    (layer,) = find_noisy_layers(nn.Sequential(nn.Linear(6, 6), TwoLinearLayers()))
    assert layer.name == "1"
    assert layer.sigmas == ["sigma.weight", "sigma.bias"]


def test_a_module_without_noisy_layers_raises() -> None:
    with pytest.raises(ValueError, match=r"me expected a module with .* got a Linear without any"):
        require_noisy_layers(nn.Linear(2, 2), "me")


def test_the_first_layer_is_the_first_with_weights_and_a_number_of_inputs() -> None:
    linear, convolution = nn.Linear(4, 2), nn.Conv2d(1, 2, 3)
    assert first_layer(nn.Sequential(nn.Flatten(), nn.LayerNorm(4), linear)) is linear
    assert first_layer(nn.Sequential(convolution, nn.Flatten(), linear)) is convolution
    assert first_layer(nn.ReLU()) is None
