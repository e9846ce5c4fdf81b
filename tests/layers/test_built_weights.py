"""Weights that are built once for a whole roll-out."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from noisynet.layers import (
    Noise,
    NoisyLinear,
    build_weights,
    forget_weights,
    held_noise,
    hold_noise,
    noise_off,
    resample_noise,
)

KINDS: list[tuple[Noise, int | None]] = [
    ("independent", None),
    ("independent", 3),
    ("factorised", None),
    ("factorised", 3),
]


def make(noise: Noise, rows: int | None, inputs: int = 5) -> NoisyLinear:
    torch.manual_seed(0)
    layer = NoisyLinear(inputs, 4, noise=noise, sigma0=0.5)
    layer.resample_noise(rows=rows)
    return layer


def gradients(layer: NoisyLinear, *inputs: Tensor) -> list[Tensor]:
    loss = sum((layer(x).sin().sum() for x in inputs), torch.zeros(()))
    return list(torch.autograd.grad(loss, list(layer.parameters())))


@pytest.mark.parametrize("inputs", [5, 40_000], ids=["small", "large"])
@pytest.mark.parametrize(("noise", "rows"), KINDS)
def test_built_weights_give_the_same_outputs_and_gradients(
    noise: Noise, rows: int | None, inputs: int
) -> None:
    layer = make(noise, rows, inputs)
    first, second = torch.randn(6, 3, inputs), torch.randn(3, inputs)
    expected = [layer(first).detach(), layer(second).detach(), *gradients(layer, first, second)]
    layer.build_weights()
    with torch.no_grad():  # acting, before learning from the same weights
        found = [layer(first), layer(second)]
    found += gradients(layer, first, second)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [None, 3])
def test_weights_are_built_once_and_not_again(rows: int | None) -> None:
    layer = make("independent", rows)
    layer.build_weights()
    assert layer.weight is layer.weight
    assert layer.bias is layer.bias


def test_weights_may_be_built_where_no_gradient_is_taken() -> None:
    for context in (torch.no_grad(), torch.inference_mode()):
        layer = make("independent", None)
        with context:
            layer.build_weights()
            layer(torch.zeros(1, 5))
        assert all(bool(g.abs().max() > 0) for g in gradients(layer, torch.ones(2, 5)))


def redraw(layer: NoisyLinear) -> None:
    layer.resample_noise()


def hold(layer: NoisyLinear) -> None:
    hold_noise(layer, {name: value + 1 for name, value in held_noise(layer).items()})


def load(layer: NoisyLinear) -> None:
    layer.load_state_dict({name: value + 1 for name, value in layer.state_dict().items()})


def convert(layer: NoisyLinear) -> None:
    layer.double().float()
    layer.weight_mu.data.add_(1)


def forget(layer: NoisyLinear) -> None:
    layer.weight_mu.data.add_(1)
    forget_weights(layer)


@pytest.mark.parametrize("change", [redraw, hold, load, convert, forget])
@pytest.mark.parametrize("noise", ["independent", "factorised"])
def test_what_changes_the_weights_ends_those_that_were_built(
    noise: Noise, change: Callable[[NoisyLinear], None]
) -> None:
    layer = make(noise, None)
    x = torch.ones(9, 5)
    layer.build_weights()
    before = layer(x)
    change(layer)
    assert not torch.allclose(layer(x), before)
    twin = copy.deepcopy(layer)
    torch.testing.assert_close(layer(x), twin(x))


def test_built_weights_do_not_follow_the_parameters() -> None:
    """They are those of the roll-out: whoever changes weights on the way keeps its beginning's."""
    layer = make("independent", None)
    layer.build_weights()
    before = layer(torch.ones(1, 5)).detach()
    layer.weight_mu.data.add_(1)
    assert torch.equal(layer(torch.ones(1, 5)), before)


def test_mean_weights_are_the_parameters_own() -> None:
    layer = make("independent", None)
    layer.build_weights()
    with noise_off(layer):
        assert layer.weight is layer.weight_mu
        expected = nn.functional.linear(torch.ones(1, 5), layer.weight_mu, layer.bias_mu)
        assert torch.equal(layer(torch.ones(1, 5)), expected)


def test_weights_built_inside_noise_off_are_noisy_after_it() -> None:
    layer = make("independent", None)
    expected = layer(torch.ones(1, 5))
    with noise_off(layer):
        layer.build_weights()
    assert torch.equal(layer(torch.ones(1, 5)), expected)


def test_a_copy_is_not_of_the_originals_graph() -> None:
    layer = make("independent", None)
    layer.build_weights()
    twin = copy.deepcopy(layer)
    assert torch.equal(layer(torch.ones(2, 5)), twin(torch.ones(2, 5)))
    gradients(layer, torch.ones(2, 5))
    gradients(twin, torch.ones(2, 5))  # the graph of the first is gone, this one's is not


def test_what_was_built_can_be_learnt_from_again_and_again() -> None:
    layer = make("independent", None)
    layer.build_weights()
    first, second = (gradients(layer, torch.ones(2, 5)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("noise", "rows"), KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_inputs_get_their_gradient_and_frozen_parameters_none(
    noise: Noise, rows: int | None, bias: bool
) -> None:
    torch.manual_seed(0)
    layer = NoisyLinear(5, 4, bias, noise=noise, sigma0=0.5)
    layer.resample_noise(rows=rows)
    layer.weight_sigma.requires_grad_(False)
    x = torch.randn(2, 3, 5, requires_grad=True)
    found: list[tuple[Tensor, Tensor]] = []
    for build in (False, True):
        if build:
            layer.build_weights()
        x.grad = layer.weight_mu.grad = None
        layer(x).sin().sum().backward()
        assert x.grad is not None
        assert layer.weight_mu.grad is not None
        assert layer.weight_sigma.grad is None
        found.append((x.grad, layer.weight_mu.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_all_layers_of_a_network_at_once() -> None:
    network = nn.Sequential(make("independent", None), nn.ReLU(), NoisyLinear(4, 2))
    x = torch.ones(2, 5)
    expected = network(x)
    build_weights(network)
    torch.testing.assert_close(network(x), expected)
    resample_noise(network)
    assert not torch.allclose(network(x), expected)
    for function in (build_weights, forget_weights):
        with pytest.raises(ValueError, match="expected a module with noisy layers"):
            function(nn.Linear(2, 2))
