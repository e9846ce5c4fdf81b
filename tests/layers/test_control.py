from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from noisynet.layers import (
    Noise,
    NoisyLinear,
    cache_weights,
    drop_cached_weights,
    held_noise,
    hold_noise,
    noise_off,
    noisy_layers,
    resample_noise,
    sigma_summary,
)


def network() -> nn.Sequential:
    return nn.Sequential(NoisyLinear(4, 4), nn.ReLU(), NoisyLinear(4, 4))


def test_every_layer_draws_its_own_sample() -> None:
    net = network()
    resample_noise(net, torch.Generator().manual_seed(0))
    first, second = noisy_layers(net).values()
    assert first.epsilon_in is not None
    assert second.epsilon_in is not None
    assert not torch.allclose(first.epsilon_in, second.epsilon_in)


def test_a_shared_layer_is_resampled_once() -> None:
    layer = NoisyLinear(4, 4)
    generator, expected = (torch.Generator().manual_seed(0) for _ in range(2))
    resample_noise(nn.Sequential(layer, layer), generator)
    NoisyLinear(4, 4).resample_noise(expected)
    assert torch.equal(generator.get_state(), expected.get_state())


def test_rows_reach_every_layer() -> None:
    net = network()
    resample_noise(net, rows=3)
    assert [layer.rows for layer in noisy_layers(net).values()] == [3, 3]
    assert net(torch.zeros(3, 4)).shape == (3, 4)


def test_noise_off_uses_mean_weights_and_then_the_same_sample_again() -> None:
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


def test_noise_off_accepts_any_batch_while_rows_are_held() -> None:
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


def test_overlapping_noise_off_contexts_may_end_in_any_order() -> None:
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


def test_sigma_summary_is_the_mean_absolute_sigma_of_the_weights() -> None:
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
def test_hold_noise_restores_what_held_noise_returned(
    noise: Noise, rows: int | None, bias: bool
) -> None:
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


def test_a_network_is_cached_and_dropped_at_once() -> None:
    net, x = network(), torch.randn(5, 4)
    expected = net(x)
    cache_weights(net)
    assert all(layer.weight is layer.weight for layer in noisy_layers(net).values())
    torch.testing.assert_close(net(x), expected)
    drop_cached_weights(net)
    assert not any(layer.weight is layer.weight for layer in noisy_layers(net).values())
    assert torch.equal(net(x), expected)  # the samples stay in force


def test_resampling_a_network_drops_its_cached_weights() -> None:
    net, x = network(), torch.randn(5, 4)
    cache_weights(net)
    before = net(x)
    resample_noise(net)
    assert not torch.allclose(net(x), before)


@pytest.mark.parametrize("function", [resample_noise, cache_weights, drop_cached_weights])
def test_a_module_without_noisy_layers_is_refused(function: Callable[[nn.Module], None]) -> None:
    message = f"^{function.__name__} expected a module with noisy layers, got a Linear without any"
    with pytest.raises(ValueError, match=message):
        function(nn.Linear(2, 2))


def test_noise_off_refuses_a_module_without_noisy_layers() -> None:
    message = "^noise_off expected a module with noisy layers, got a Linear without any"
    with pytest.raises(ValueError, match=message), noise_off(nn.Linear(2, 2)):
        pass
