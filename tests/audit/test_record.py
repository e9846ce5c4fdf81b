"""Recording of `NoisyLinear` and of third-party layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noisynet.audit import record_noise
from noisynet.layers import NoisyLinear, noise_off, resample_noise


def network() -> nn.Sequential:
    return nn.Sequential(NoisyLinear(6, 5), nn.ReLU(), NoisyLinear(5, 3))


def test_the_log_says_which_sample_each_pass_used() -> None:
    net, x = network(), torch.randn(8, 6)
    with record_noise(net) as log:
        net(x)
        net(x)
        resample_noise(net)
        log.label = "second"
        with torch.no_grad():
            net(x)
        with noise_off(net):
            log.label = "off"
            net(x)
    by_layer = [event.sample_index for event in log.select(layer="0")]
    assert by_layer == [1, 1, 2, 0]
    assert [event.label for event in log.select(layer="2")] == ["", "", "second", "off"]
    assert [event.with_gradient for event in log.select(layer="0")] == [True, True, False, True]
    assert log.counts() == {"passes": 8, "noisy": 6, "distinct": 4}
    assert log.counts("off") == {"passes": 2, "noisy": 0, "distinct": 0}


def test_a_repeated_sample_is_recognised_although_the_weights_have_changed() -> None:
    net, x = network(), torch.randn(8, 6)
    with record_noise(net) as log:
        for seed in (1, 2, 1):
            resample_noise(net, torch.Generator().manual_seed(seed))
            net(x)
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.mul_(1.3)
    assert [event.sample_index for event in log.select(layer="2")] == [1, 2, 1]


@pytest.mark.parametrize("rows", [None, 8])
def test_recording_changes_neither_outputs_nor_random_streams(rows: int | None) -> None:
    net, x = network(), torch.randn(8, 6)
    resample_noise(net, rows=rows)
    expected, stream = net(x), torch.get_rng_state()
    with record_noise(net) as log:
        assert torch.equal(net(x), expected)
    assert torch.equal(stream, torch.get_rng_state())
    assert [event.rows for event in log.events] == [rows, rows]
    assert torch.equal(net(x), expected)


class DrawsInForward(nn.Module):
    """Like several public layers: noise drawn in forward, weights stored as [in, out]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mu_w = nn.Parameter(torch.randn(inputs, outputs))
        self.sigma_w = nn.Parameter(torch.full((inputs, outputs), 0.1))
        self.mu_bias = nn.Parameter(torch.randn(outputs))
        self.sigma_bias = nn.Parameter(torch.full((outputs,), 0.1))
        self.last = torch.empty(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = torch.randn_like(self.mu_bias)
        weight = self.mu_w + self.sigma_w * torch.randn_like(self.mu_w)
        return x @ weight + self.mu_bias + self.sigma_bias * self.last


class SumOfMeanAndNoise(nn.Module):
    """A third-party layer that holds one sample for ever."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.randn(outputs, inputs))
        self.sigma = nn.Parameter(torch.full((outputs, inputs), 0.1))
        self.epsilon = torch.randn(outputs, inputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.mu + self.sigma * self.epsilon)


@pytest.mark.parametrize("shape", [(4, 6), (6,), (2, 4, 6)])
def test_a_third_party_layer_is_measured_within_the_recorded_pass(shape: tuple[int, ...]) -> None:
    layer = DrawsInForward(6, 5)
    with record_noise(layer) as log:
        for expected in (1, 2, 3):
            assert layer(torch.randn(shape)).shape == (*shape[:-1], 5)
            event = log.events[-1]
            assert event.sample_index == expected
            assert event.sample.bias is not None
            torch.testing.assert_close(event.sample.bias, layer.last, atol=1e-4, rtol=1e-4)


def test_a_module_without_noisy_layers_raises() -> None:
    with pytest.raises(ValueError, match="got a Linear without any"), record_noise(nn.Linear(2, 2)):
        pass


def test_hooks_are_removed_afterwards() -> None:
    net = network()
    with record_noise(net) as log:
        pass
    net(torch.zeros(1, 6))
    assert log.events == []


def test_a_compiled_network_raises() -> None:
    compiled = torch.compile(network(), backend="eager")
    assert isinstance(compiled, nn.Module)
    with pytest.raises(ValueError, match="not compiled"), record_noise(compiled):
        pass


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("layer", [NoisyLinear, SumOfMeanAndNoise])
def test_compiled_passes_are_unaffected_and_unrecorded(
    layer: type[nn.Module], fullgraph: bool
) -> None:
    net, x = nn.Sequential(layer(6, 5), nn.ReLU(), layer(5, 3)), torch.randn(8, 6)
    with record_noise(net) as log:
        compiled = torch.compile(net, backend="eager", fullgraph=fullgraph)
        outputs = compiled(x)
        assert log.events == []
        eager = net(x)
        assert [event.layer for event in log.events] == ["0", "2"]
    torch.testing.assert_close(outputs, eager)


class Renamed(NoisyLinear):
    """A subclass that does not override forward."""


def test_a_subclass_of_noisy_linear_may_have_per_row_noise() -> None:
    layer = Renamed(6, 5)
    layer.resample_noise(rows=3)
    with record_noise(layer) as log:
        layer(torch.zeros(3, 6))
    assert log.events[0].rows == 3
