from __future__ import annotations

import pytest
import torch
from torch import nn

from noisynet.layers import (
    Noise,
    NoisyLinear,
    held_noise,
    hold_noise,
    noise_off,
    noisy_layers,
    resample_noise,
    sigma_summary,
)


def network() -> nn.Sequential:
    return nn.Sequential(NoisyLinear(4, 4), nn.ReLU(), NoisyLinear(4, 4))


def test_every_layer_gets_its_own_draw() -> None:
    net = network()
    resample_noise(net, torch.Generator().manual_seed(0))
    first, second = noisy_layers(net).values()
    assert first.epsilon_in is not None
    assert second.epsilon_in is not None
    assert not torch.allclose(first.epsilon_in, second.epsilon_in)


def test_a_layer_that_stands_twice_is_drawn_once() -> None:
    layer = NoisyLinear(4, 4)
    twice, once = nn.Sequential(layer, layer), torch.Generator().manual_seed(0)
    resample_noise(twice, once)
    expected = torch.Generator().manual_seed(0)
    NoisyLinear(4, 4).resample_noise(expected)
    assert torch.equal(once.get_state(), expected.get_state())


def test_rows_reach_every_layer() -> None:
    net = network()
    resample_noise(net, rows=3)
    assert [layer.rows for layer in noisy_layers(net).values()] == [3, 3]
    assert net(torch.zeros(3, 4)).shape == (3, 4)


def test_noise_off_uses_the_means_and_then_the_same_sample_again() -> None:
    net, x = network(), torch.randn(5, 4)
    before = net(x)
    with noise_off(net):
        first, second = noisy_layers(net).values()
        mean = nn.functional.linear(x, first.weight_mu, first.bias_mu).relu()
        mean = nn.functional.linear(mean, second.weight_mu, second.bias_mu)
        assert torch.equal(net(x), mean)
        assert first.weight is first.weight_mu
        assert first.bias is first.bias_mu
    assert torch.equal(net(x), before)


def test_noise_off_takes_any_batch_while_rows_are_held() -> None:
    net = network()
    resample_noise(net, rows=3)
    with noise_off(net):
        assert net(torch.zeros(7, 4)).shape == (7, 4)


def test_noise_off_nests_and_survives_an_error() -> None:
    net, x = network(), torch.randn(5, 4)
    noisy = net(x)
    with noise_off(net):
        mean = net(x)
        with pytest.raises(RuntimeError, match="on purpose"), noise_off(net):
            raise RuntimeError("on purpose")
        assert torch.equal(net(x), mean)
    assert torch.equal(net(x), noisy)


def test_overlapping_contexts_may_end_in_any_order() -> None:
    net, x = network(), torch.randn(5, 4)
    noisy = net(x)
    first, second = noise_off(net), noise_off(net)
    first.__enter__()
    second.__enter__()
    mean = net(x)
    first.__exit__(None, None, None)
    assert torch.equal(net(x), mean)
    second.__exit__(None, None, None)
    assert torch.equal(net(x), noisy)


def test_sigma_summary_is_the_mean_absolute_deviation_of_weights() -> None:
    net = network()
    first = net[0]
    assert isinstance(first, NoisyLinear)
    with torch.no_grad():
        first.weight_sigma.copy_(torch.arange(16.0).reshape(4, 4) - 8)
        assert first.bias_sigma is not None
        first.bias_sigma.fill_(1000)  # Eq. 20 is about weights only
    summary = sigma_summary(net)
    assert summary == {"0": 4.0, "2": pytest.approx(0.25)}
    assert sigma_summary(nn.Linear(2, 2)) == {}


@pytest.mark.parametrize("noise", ["factorised", "independent"])
@pytest.mark.parametrize("rows", [None, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_held_noise_can_be_put_back(noise: Noise, rows: int | None, bias: bool) -> None:
    def make() -> nn.Sequential:
        return nn.Sequential(
            NoisyLinear(4, 4, bias, noise=noise), nn.ReLU(), NoisyLinear(4, 2, bias, noise=noise)
        )

    net, other, x = make(), make(), torch.randn(5, 4)
    other.load_state_dict(net.state_dict())
    resample_noise(net, rows=rows)
    hold_noise(other, {name: value.clone() for name, value in held_noise(net).items()})
    assert torch.equal(net(x), other(x))
    assert [layer.rows for layer in noisy_layers(other).values()] == [rows, rows]


def test_a_module_without_noisy_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="noisy layers, got a Linear without any"):
        resample_noise(nn.Linear(2, 2))
    with (
        pytest.raises(ValueError, match="noisy layers, got a Linear without any"),
        noise_off(nn.Linear(2, 2)),
    ):
        pass
