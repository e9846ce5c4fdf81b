from __future__ import annotations

import pytest
import torch
from torch import nn

from noisynet.layers import NoisyLinear, noise_off, record_noise, resample_noise


def network() -> nn.Sequential:
    return nn.Sequential(NoisyLinear(6, 5), nn.ReLU(), NoisyLinear(5, 3))


def test_says_which_draw_was_in_force_at_each_pass() -> None:
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
    by_layer = [event.draw for event in log.select(layer="0")]
    assert by_layer == [1, 1, 2, 0]
    assert [event.label for event in log.select(layer="2")] == ["", "", "second", "off"]
    assert [event.with_gradient for event in log.select(layer="0")] == [True, True, False, True]
    assert log.counts() == {"passes": 8, "noisy": 6, "distinct": 4}
    assert log.counts("off") == {"passes": 2, "noisy": 0, "distinct": 0}


def test_a_draw_that_comes_back_is_recognised_even_after_learning() -> None:
    net, x = network(), torch.randn(8, 6)
    with record_noise(net) as log:
        for seed in (1, 2, 1):
            resample_noise(net, torch.Generator().manual_seed(seed))
            net(x)
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.mul_(1.3)
    assert [event.draw for event in log.select(layer="2")] == [1, 2, 1]


@pytest.mark.parametrize("rows", [None, 8])
def test_our_layers_compute_exactly_what_they_would_unrecorded(rows: int | None) -> None:
    net, x = network(), torch.randn(8, 6)
    resample_noise(net, rows=rows)
    expected, stream = net(x), torch.get_rng_state()
    with record_noise(net) as log:
        assert torch.equal(net(x), expected)
    assert torch.equal(stream, torch.get_rng_state())
    assert [event.rows for event in log.events] == [rows, rows]
    assert torch.equal(net(x), expected)


def test_the_recorded_noise_is_the_noise_of_the_layer() -> None:
    layer = NoisyLinear(6, 5)
    with record_noise(layer) as log:
        layer(torch.zeros(1, 6))
    sample = log.events[0].sample
    assert layer.epsilon_out is not None
    assert layer.epsilon_in is not None
    assert sample.bias is not None
    torch.testing.assert_close(sample.bias, layer.epsilon_out[:8], atol=1e-4, rtol=1e-4)
    columns = torch.outer(layer.epsilon_out, layer.epsilon_in[[0, 2, 3, 5]])
    torch.testing.assert_close(sample.weight, columns, atol=1e-4, rtol=1e-4)


class DrawsInForward(nn.Module):
    """Like several public layers: noise drawn inside every forward, weights as [in, out]."""

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


@pytest.mark.parametrize("shape", [(4, 6), (6,), (2, 4, 6)])
def test_a_foreign_layer_is_read_in_the_very_pass_it_makes(shape: tuple[int, ...]) -> None:
    layer = DrawsInForward(6, 5)
    with record_noise(layer) as log:
        for expected_draw in (1, 2, 3):
            assert layer(torch.randn(shape)).shape == (*shape[:-1], 5)
            event = log.events[-1]
            assert event.draw == expected_draw
            assert event.sample.bias is not None
            torch.testing.assert_close(event.sample.bias, layer.last, atol=1e-4, rtol=1e-4)


class MeansAndDeviationsAsLayers(nn.Module):
    """The other common shape: children `mu` and `sigma` that are linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.mu, self.sigma = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(5)
        bias = self.mu.bias + self.sigma.bias * noise
        weight = self.mu.weight + self.sigma.weight * noise[:, None]
        return nn.functional.linear(x, weight, bias)


def test_layers_built_of_two_linear_layers_are_recognised() -> None:
    net = nn.Sequential(nn.Linear(6, 6), MeansAndDeviationsAsLayers())
    with record_noise(net) as log:
        net(torch.zeros(3, 6))
    assert [(event.layer, event.draw) for event in log.events] == [("1", 1)]


def test_a_module_without_noisy_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="got a Linear without any"), record_noise(nn.Linear(2, 2)):
        pass


def test_hooks_are_gone_afterwards() -> None:
    net = network()
    with record_noise(net) as log:
        pass
    net(torch.zeros(1, 6))
    assert log.events == []


def test_a_compiled_network_is_refused_rather_than_missed() -> None:
    compiled = torch.compile(network(), backend="eager")
    assert isinstance(compiled, nn.Module)
    with pytest.raises(ValueError, match="not compiled"), record_noise(compiled):
        pass


class Renamed(NoisyLinear):
    """A subclass that changes nothing about the noise."""


def test_a_subclass_of_ours_may_hold_noise_for_rows() -> None:
    layer = Renamed(6, 5)
    layer.resample_noise(rows=3)
    with record_noise(layer) as log:
        layer(torch.zeros(3, 6))
    assert log.events[0].rows == 3
