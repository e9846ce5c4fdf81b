"""The actor-critic network: its layers, and which of them are noisy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from noisynet.layers import NoisyLSTMCell, noisy_layers, resample_noise
from noisynet.networks import CONVOLUTIONS, ActorCriticNetwork, ActorCriticNetworkShape

A3C = ActorCriticNetworkShape(
    convolutions=CONVOLUTIONS["a3c"],
    hidden=(256,),
    cells=None,
    noise=None,
    noisy="all",
    noisy_lstm=False,
    sigma0=None,
    learn_sigma=True,
    scale=1 / 255,
)
SMALL = dataclasses.replace(A3C, convolutions=(), hidden=(8, 7), scale=1.0)


def make(shape: ActorCriticNetworkShape, observation: tuple[int, ...] = (1, 6)) -> Any:
    return ActorCriticNetwork(shape, observation, 3, torch.Generator().manual_seed(0))


def test_the_network_of_a3cs_speed_studies() -> None:
    """16 filters of 8×8/4, 32 of 4×4/2, 256 units, then one output for each action, one for V."""
    network = make(A3C, (4, 84, 84))
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    assert shapes == {
        "torso.layers.0.weight": (16, 4, 8, 8),
        "torso.layers.0.bias": (16,),
        "torso.layers.2.weight": (32, 16, 4, 4),
        "torso.layers.2.bias": (32,),
        "hidden.0.weight": (256, 32 * 9 * 9),
        "hidden.0.bias": (256,),
        "policy.weight": (3, 256),
        "policy.bias": (3,),
        "value.weight": (1, 256),
        "value.bias": (1,),
    }


def test_policy_and_value_share_every_layer_but_their_heads() -> None:
    network = make(SMALL)
    logits, value, state = network(torch.randn(5, 1, 6))
    assert (logits.shape, value.shape, state) == ((5, 3), (5,), None)
    for output, other in ((logits, "value"), (value, "policy")):
        names = [name for name, _ in network.named_parameters()]
        found = torch.autograd.grad(
            output.sum(), list(network.parameters()), retain_graph=True, allow_unused=True
        )
        reached = {
            name for name, gradient in zip(names, found, strict=True) if gradient is not None
        }
        assert reached == {name for name in names if not name.startswith(other)}


def test_hidden_features_pass_through_a_relu() -> None:
    network = make(SMALL)
    with torch.no_grad():
        features = network.features(torch.randn(50, 1, 6))
    assert features.shape == (50, 7)
    assert float(features.min()) == 0.0
    assert float(features.max()) > 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"hidden.0", "hidden.2", "policy", "value"}),
        ({"noisy": "heads"}, {"policy", "value"}),
        ({"cells": 5}, {"hidden.0", "hidden.2", "policy", "value"}),
        (
            {"cells": 5, "noisy_lstm": True},
            {"hidden.0", "hidden.2", "cell.input_gates", "cell.hidden_gates", "policy", "value"},
        ),
        (
            {"cells": 5, "noisy_lstm": True, "noisy": "heads"},
            {"cell.input_gates", "cell.hidden_gates", "policy", "value"},
        ),
        ({"noise": None, "cells": 5}, set()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",  # sets have no order
)
def test_exactly_the_requested_layers_are_noisy(change: dict[str, Any], expected: set[str]) -> None:
    shape = dataclasses.replace(SMALL, **({"noise": "independent"} | change))
    network = make(shape)
    assert set(noisy_layers(network)) == expected
    kind = NoisyLSTMCell if shape.noisy_lstm else nn.LSTMCell
    assert isinstance(network.cell, kind) == (shape.cells is not None)


@pytest.mark.parametrize("noise", ["independent", "factorised"])
def test_noise_and_sigma0_reach_the_layers(noise: Any) -> None:
    network = make(dataclasses.replace(SMALL, noise=noise, sigma0=0.25))
    for layer in noisy_layers(network).values():
        assert layer.noise == noise
        assert layer.sigma0 == 0.25


def test_steps_and_environments_are_separate_dimensions() -> None:
    network = make(dataclasses.replace(SMALL, noise="factorised"))
    resample_noise(network, torch.Generator().manual_seed(1), rows=4)
    observation = torch.randn(5, 4, 1, 6)
    with torch.no_grad():
        together = network.heads(network.features(observation))
        alone = [network(of_step)[:2] for of_step in observation]
    assert together[0].shape == (5, 4, 3)
    assert together[1].shape == (5, 4)
    for output in (0, 1):  # logits and V
        expected = torch.stack([step[output] for step in alone])
        torch.testing.assert_close(together[output], expected)


def test_an_lstm_carries_its_state() -> None:
    network = make(dataclasses.replace(SMALL, cells=5))
    x = torch.randn(2, 1, 6)
    first, _, state = network(x)
    second, _, after = network(x, state)
    assert state[0].shape == state[1].shape == (2, 5)
    assert not torch.allclose(first, second)
    assert not torch.allclose(state[0], after[0])


def test_frozen_sigmas_need_no_gradient() -> None:
    network = make(dataclasses.replace(SMALL, noise="independent", learn_sigma=False))
    frozen = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert frozen == {name for name, _ in network.named_parameters() if "sigma" in name}


def test_every_noisy_layer_has_the_distribution_and_the_function_of_the_shape() -> None:
    shape = dataclasses.replace(
        SMALL, noise="factorised", cells=5, noisy_lstm=True, distribution="rademacher", f="identity"
    )
    layers = noisy_layers(make(shape)).values()
    assert len(layers) == 6
    assert {(x.distribution, x.f) for x in layers} == {("rademacher", "identity")}


def test_orthogonal_weights_of_plain_layers() -> None:
    """Rows are orthogonal with the layer's gain, and biases are 0."""
    network = make(dataclasses.replace(A3C, initial_weights="orthogonal"), (4, 84, 84))
    gains = {"torso.layers.0": 2, "torso.layers.2": 2, "hidden.0": 2, "policy": 1e-4, "value": 1}
    for name, squared_gain in gains.items():
        layer = network.get_submodule(name)
        rows = layer.weight.flatten(1)
        expected = squared_gain * torch.eye(len(rows))
        torch.testing.assert_close(rows @ rows.T, expected, rtol=1e-4, atol=1e-5)
        assert not layer.bias.any()


def test_noisy_layers_keep_the_papers_weights_beside_orthogonal_ones() -> None:
    shape = dataclasses.replace(A3C, noise="independent")
    uniform = make(shape, (4, 84, 84)).state_dict()
    orthogonal = make(
        dataclasses.replace(shape, initial_weights="orthogonal"), (4, 84, 84)
    ).state_dict()
    same = {name for name in uniform if torch.equal(uniform[name], orthogonal[name])}
    assert {name for name in uniform if name.startswith("torso")} == uniform.keys() - same


def test_orthogonal_convolutions_stay_channels_last() -> None:
    network = make(dataclasses.replace(A3C, initial_weights="orthogonal"), (4, 84, 84))
    weight = network.torso.layers[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
