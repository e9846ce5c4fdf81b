from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from noisynet.audit.detect import find_noisy_layers
from noisynet.audit.log import NoiseSample
from noisynet.audit.probe import Probe
from noisynet.layers import NoisyLinear, noise_off


def measure(module: nn.Module) -> NoiseSample:
    (layer,) = find_noisy_layers(module)
    probe = Probe(layer)
    with torch.no_grad():
        return probe.solve(module(probe.inputs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_measured_noise_is_the_noise_of_the_layer(dtype: torch.dtype) -> None:
    layer = NoisyLinear(6, 5, dtype=dtype)
    sample = measure(layer)
    assert layer.epsilon_out is not None
    assert layer.epsilon_in is not None
    assert sample.bias is not None
    outputs, inputs = layer.epsilon_out.float(), layer.epsilon_in.float()
    torch.testing.assert_close(sample.bias, outputs, atol=1e-4, rtol=1e-4)
    columns = torch.outer(outputs, inputs[[0, 2, 3, 5]])
    torch.testing.assert_close(sample.weight, columns, atol=1e-4, rtol=1e-4)
    assert sample.shared
    assert sample.is_noise


def test_a_layer_without_bias_is_measured() -> None:
    layer = NoisyLinear(3, 4, bias=False, noise="independent")
    sample = measure(layer)
    assert layer.epsilon_weight is not None
    assert sample.bias is None
    torch.testing.assert_close(sample.weight, layer.epsilon_weight, atol=1e-3, rtol=1e-3)


def test_no_noise_is_measured_inside_noise_off() -> None:
    layer = NoisyLinear(6, 5)
    with noise_off(layer):
        assert not measure(layer).is_noise


def test_each_row_has_its_own_sample() -> None:
    layer = NoisyLinear(6, 5)
    layer.resample_noise(rows=3)
    (detected,) = find_noisy_layers(layer)
    probe = Probe(detected)
    sample = probe.solve(layer(probe.inputs[:, None].expand(-1, 3, -1)).detach())
    assert layer.epsilon_out is not None
    rows = [sample, *sample.other_rows]
    for row, expected in zip(rows, layer.epsilon_out, strict=True):
        assert row.bias is not None
        torch.testing.assert_close(row.bias, expected, atol=1e-4, rtol=1e-4)


class NoisePerRow(NoisyLinear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.randn(*x.shape[:-1], 1)


def test_equal_rows_with_different_noise_are_not_shared() -> None:
    assert not measure(NoisePerRow(6, 5)).shared


def test_entries_with_almost_zero_sigma_are_avoided() -> None:
    layer = NoisyLinear(12, 10)
    assert layer.bias_sigma is not None
    with torch.no_grad():
        layer.weight_sigma[0] = 0
        layer.weight_sigma[:, 11] = 1e-9
        layer.bias_sigma[1] = 0
    sample = measure(layer)
    assert layer.epsilon_out is not None
    assert sample.bias is not None
    torch.testing.assert_close(sample.bias, layer.epsilon_out[2:], atol=1e-4, rtol=1e-4)
    assert sample.weight.abs().min() > 1e-3
