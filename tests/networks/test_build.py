"""Value networks: noisy layers, the trunk's gradient, and views with their own noise."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisynet.layers import noise_off, noisy_layers, resample_noise
from noisynet.networks import (
    CONVOLUTIONS,
    CategoricalNetwork,
    Convolution,
    NetworkShape,
    ValueNetwork,
    make_value_network,
    view_with_own_noise,
)

NATURE = NetworkShape(
    convolutions=CONVOLUTIONS["nature"],
    hidden=(512,),
    dueling=False,
    noise="factorised",
    sigma0=None,
    learn_sigma=True,
    trunk_gradient_scale=1.0,
    scale=1 / 255,
)
SMALL = dataclasses.replace(NATURE, convolutions=CONVOLUTIONS["minatar"], hidden=(16,), scale=1.0)
CHANNELS = (1, 4, 10, 10)
ATOMS = (-2.0, -1.0, 0.0, 1.0, 2.0)


def build(
    shape: NetworkShape, observation: tuple[int, ...] = CHANNELS, **changes: Any
) -> ValueNetwork:
    torch.manual_seed(7)
    shape = dataclasses.replace(shape, **changes)
    return make_value_network(shape, observation, 6, torch.Generator().manual_seed(3))


def images(batch: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(2, (batch, *CHANNELS), generator=generator, dtype=torch.uint8)


def last_convolution(network: ValueNetwork) -> nn.Conv2d:
    return [layer for layer in network.torso.layers if isinstance(layer, nn.Conv2d)][-1]


def gradients(network: ValueNetwork) -> dict[str, Tensor]:
    network.zero_grad()
    network(images()).square().sum().backward()
    return {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("dueling", "expected"),
    [
        (False, {"head.q.0": (512, 3136), "head.q.2": (6, 512)}),
        (
            True,
            {
                "head.value.0": (512, 3136),
                "head.value.2": (1, 512),
                "head.advantage.0": (512, 3136),
                "head.advantage.2": (6, 512),
            },
        ),
    ],
    ids=["DQN: two", "Dueling: four"],
)
def test_every_fully_connected_layer_is_noisy(
    dueling: bool, expected: dict[str, tuple[int, int]]
) -> None:
    network = build(NATURE, (4, 84, 84), dueling=dueling)
    found = {name: tuple(of.weight_mu.shape) for name, of in noisy_layers(network).items()}
    assert found == expected
    assert not [layer for layer in network.modules() if type(layer) is nn.Linear]
    assert network(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6)


def test_a_plain_network_has_no_noise() -> None:
    network = build(SMALL, noise=None)
    assert not noisy_layers(network)
    assert sum(type(layer) is nn.Linear for layer in network.modules()) == 2
    assert torch.equal(network(images()), network(images()))


@pytest.mark.parametrize(("noise", "sigma"), [("factorised", 0.5 / 32), ("independent", 0.017)])
def test_noise_and_sigma0_reach_the_layers(noise: str, sigma: float) -> None:
    layer = noisy_layers(build(SMALL, noise=noise))["head.q.0"]  # 1024 inputs
    assert layer.noise == noise
    assert layer.weight_sigma.unique().tolist() == [pytest.approx(sigma)]
    other = noisy_layers(build(SMALL, noise=noise, sigma0=0.1))["head.q.0"]
    assert other.sigma0 == 0.1


def test_noisy_layers_initialise_from_the_generator_alone() -> None:
    first = build(SMALL)
    torch.manual_seed(1234)
    second = ValueNetwork(SMALL, CHANNELS, 6, torch.Generator().manual_seed(3))
    for name, layer in noisy_layers(first).items():
        other = noisy_layers(second)[name]
        assert torch.equal(layer.weight_mu, other.weight_mu)
        assert torch.equal(layer.weight, other.weight)
    convolution = last_convolution(first).weight
    assert not torch.equal(convolution, last_convolution(second).weight)


def test_every_layer_draws_its_own_sample() -> None:
    layers = list(noisy_layers(build(SMALL, dueling=True)).values())
    value, advantage = layers[0], layers[2]
    assert value.epsilon_in is not None
    assert advantage.epsilon_in is not None
    assert value.epsilon_in.shape == advantage.epsilon_in.shape
    assert not bool((value.epsilon_in == advantage.epsilon_in).any())


# --- distributions over returns ------------------------------------------------------------------


def build_categorical(**changes: Any) -> CategoricalNetwork:
    network = build(SMALL, atoms=ATOMS, **changes)
    assert isinstance(network, CategoricalNetwork)
    return network


def test_a_shape_with_atoms_makes_a_categorical_network() -> None:
    assert type(build(SMALL)) is ValueNetwork
    assert type(build_categorical()) is CategoricalNetwork


@pytest.mark.parametrize(
    ("dueling", "expected"),
    [
        (False, {"head.logits.0": (16, 1024), "head.logits.2": (30, 16)}),
        (
            True,
            {
                "head.value.0": (16, 1024),
                "head.value.2": (5, 16),
                "head.advantage.0": (16, 1024),
                "head.advantage.2": (30, 16),
            },
        ),
    ],
    ids=["C51: two", "Rainbow: four"],
)
def test_every_fully_connected_layer_of_a_categorical_network_is_noisy(
    dueling: bool, expected: dict[str, tuple[int, int]]
) -> None:
    network = build_categorical(dueling=dueling)
    found = {name: tuple(of.weight_mu.shape) for name, of in noisy_layers(network).items()}
    assert found == expected
    assert not [layer for layer in network.modules() if type(layer) is nn.Linear]


@pytest.mark.parametrize("dueling", [False, True])
def test_q_is_the_mean_of_the_distribution(dueling: bool) -> None:
    network = build_categorical(dueling=dueling)
    logits = network.logits(images())
    assert logits.shape == (5, 6, 5)
    q = torch.einsum("ban,n->ba", logits.softmax(dim=-1), torch.tensor(ATOMS))
    torch.testing.assert_close(network(images()), q)
    assert bool((q.abs() < 2).all())


def test_atoms_are_neither_parameters_nor_saved() -> None:
    network = build_categorical()
    assert network.atoms.tolist() == list(ATOMS)
    assert "atoms" not in network.state_dict()
    assert "atoms" not in dict(network.named_parameters())


def test_rows_of_a_categorical_network_have_their_own_noise() -> None:
    network = build_categorical(dueling=True)
    resample_noise(network, torch.Generator().manual_seed(1), rows=3)
    same = images(1).expand(3, *CHANNELS)
    q = network(same)
    assert q.shape == (3, 6)
    assert len({tuple(row) for row in q.tolist()}) == 3


# --- the gradient that enters the last convolution -----------------------------------------------


@pytest.mark.parametrize("atoms", [(), ATOMS], ids=["values", "distributions"])
@pytest.mark.parametrize("dueling", [True, False])
def test_only_the_gradient_entering_the_last_convolution_is_scaled(
    dueling: bool, atoms: tuple[float, ...]
) -> None:
    scale = 1 / math.sqrt(2)
    plain = build(SMALL, dueling=dueling, atoms=atoms)
    scaled = build(SMALL, dueling=dueling, atoms=atoms, trunk_gradient_scale=scale)
    entering: dict[str, Tensor] = {}

    def record(network: ValueNetwork, name: str) -> None:
        def hook(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            output.register_hook(lambda gradient: entering.update({name: gradient.clone()}))

        last_convolution(network).register_forward_hook(hook)

    record(plain, "plain")
    record(scaled, "scaled")
    assert torch.equal(plain(images()), scaled(images()))
    before, after = gradients(plain), gradients(scaled)
    assert bool(entering["plain"].any())
    assert torch.equal(entering["scaled"], entering["plain"] * scale)
    for name, gradient in before.items():
        if name.startswith("head."):
            assert torch.equal(after[name], gradient), name
        else:
            torch.testing.assert_close(after[name], gradient * scale)


def test_the_scale_applies_once_to_the_sum_of_both_streams() -> None:
    """Features feed V and A: their gradient is (dV + dA)/√2, not dV/√2 + dA/√2 twice over."""
    scale = 1 / math.sqrt(2)
    network = build(SMALL, dueling=True, trunk_gradient_scale=scale)
    features = network.torso(images())
    head_input = features.detach().requires_grad_()
    network.head(head_input).sum().backward()
    assert head_input.grad is not None
    (expected,) = torch.autograd.grad(
        features, last_convolution(network).weight, head_input.grad * scale
    )
    network.zero_grad()
    network(images()).sum().backward()
    found = last_convolution(network).weight.grad
    assert found is not None
    torch.testing.assert_close(found, expected)


def test_a_flat_network_has_no_convolution_to_scale() -> None:
    shape = dataclasses.replace(SMALL, convolutions=(), trunk_gradient_scale=0.5)
    network = ValueNetwork(shape, (1, 4), 2, torch.Generator())
    network(torch.randn(3, 1, 4)).sum().backward()
    other = ValueNetwork(
        dataclasses.replace(shape, trunk_gradient_scale=1.0), (1, 4), 2, torch.Generator()
    )
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert {name for name, _ in network.named_parameters()} == {
        name for name, _ in other.named_parameters()
    }


# --- frozen sigma --------------------------------------------------------------------------------


def test_frozen_sigmas_get_no_gradient_and_means_do() -> None:
    found = gradients(build(SMALL, dueling=True, learn_sigma=False))
    assert not [name for name in found if "sigma" in name]
    means = [name for name in found if name.endswith("_mu")]
    assert len(means) == 8
    assert all(bool(found[name].any()) for name in means)


def test_trained_sigmas_get_a_gradient() -> None:
    found = gradients(build(SMALL, dueling=True))
    sigmas = [name for name in found if name.endswith("_sigma")]
    assert len(sigmas) == 8
    assert all(bool(found[name].any()) for name in sigmas)


# --- any architecture ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convolutions",
    [
        ((5, 3, 1, 1),),
        ((7, 3, 2, 1), (9, 2, 1, 0)),
        ((32, 5, 3, 2), (24, 3, 1, 1), (8, 1, 1, 0)),
    ],
    ids=["padding", "odd filter counts", "three layers"],
)
@pytest.mark.parametrize("dueling", [False, True], ids=["DQN", "Dueling"])
def test_any_filters_kernels_strides_and_padding_train(
    convolutions: tuple[Convolution, ...], dueling: bool
) -> None:
    network = build(SMALL, convolutions=convolutions, dueling=dueling)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    target = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    losses = []
    for _ in range(150):
        loss = (network(images()) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        assert all(bool(p.grad.any()) for p in network.parameters() if p.grad is not None)
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    assert all(parameter.grad is not None for parameter in network.parameters())


# --- views ---------------------------------------------------------------------------------------


def test_a_view_shares_every_parameter_and_no_buffer() -> None:
    network = build(SMALL, dueling=True)
    view = view_with_own_noise(network)
    ours, theirs = dict(network.named_parameters()), dict(view.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(ours[name] is theirs[name] for name in ours)
    buffers = dict(network.named_buffers())
    assert len(buffers) == 8
    for name, buffer in view.named_buffers():
        assert buffer.data_ptr() != buffers[name].data_ptr()


def test_a_view_and_its_network_resample_independently() -> None:
    network = build(SMALL)
    view = view_with_own_noise(network)
    q = network(images())
    assert torch.equal(view(images()), q)  # the same sample until one is resampled
    resample_noise(view, torch.Generator().manual_seed(1))
    seen = view(images())
    assert torch.equal(network(images()), q)
    assert not torch.equal(seen, q)
    resample_noise(network, torch.Generator().manual_seed(2))
    assert torch.equal(view(images()), seen)


def test_a_view_follows_updates_of_the_network() -> None:
    network = build(SMALL)
    view = view_with_own_noise(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    with noise_off(network), noise_off(view):
        assert torch.equal(view(images()), network(images()))


def test_noise_off_in_a_view_leaves_the_network_noisy() -> None:
    network = build(SMALL)
    view = view_with_own_noise(network)
    q = network(images())
    with noise_off(view):
        assert torch.equal(network(images()), q)
        assert not torch.equal(view(images()), q)
    with noise_off(network):
        assert torch.equal(view_with_own_noise(network)(images()), q)


@pytest.mark.parametrize("dueling", [False, True])
def test_every_noisy_layer_has_the_distribution_and_the_function_of_the_shape(
    dueling: bool,
) -> None:
    layers = noisy_layers(build(SMALL, dueling=dueling, distribution="uniform", f="identity"))
    assert {(layer.distribution, layer.f) for layer in layers.values()} == {("uniform", "identity")}
    papers = noisy_layers(build(SMALL, dueling=dueling))
    assert {(x.distribution, x.f) for x in papers.values()} == {("gaussian", "signed_sqrt")}
