"""The network of policy and value: its layers, which of them are noisy, and its one vector."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from noisynet.layers import NoisyLSTMCell, noisy_layers, resample_noise
from noisynet.networks import (
    ActorCriticNetwork,
    ActorCriticNetworkShape,
    fitting_torso,
    flatten_parameters,
    views_of,
)

A3C = ActorCriticNetworkShape(
    torso="a3c",
    hidden=(256,),
    cells=None,
    noise=None,
    noisy="all",
    noisy_lstm=False,
    sigma0=None,
    learn_sigma=True,
    scale=1 / 255,
)
SMALL = dataclasses.replace(A3C, torso="flat", hidden=(8, 7), scale=1.0)


def make(shape: ActorCriticNetworkShape, observation: tuple[int, ...] = (1, 6)) -> Any:
    return ActorCriticNetwork(shape, observation, 3, torch.Generator().manual_seed(0))


def test_the_network_of_the_paper() -> None:
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


def test_policy_and_value_share_every_layer_but_their_own() -> None:
    network = make(SMALL)
    preference, value, state = network(torch.randn(5, 1, 6))
    assert (preference.shape, value.shape, state) == ((5, 3), (5,), None)
    for output, other in ((preference, "value"), (value, "policy")):
        names = [name for name, _ in network.named_parameters()]
        found = torch.autograd.grad(
            output.sum(), list(network.parameters()), retain_graph=True, allow_unused=True
        )
        reached = {
            name for name, gradient in zip(names, found, strict=True) if gradient is not None
        }
        assert reached == {name for name in names if not name.startswith(other)}


def test_a_relu_stands_behind_every_hidden_layer() -> None:
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
def test_the_layers_that_are_asked_for_are_noisy_and_no_others(
    change: dict[str, Any], expected: set[str]
) -> None:
    shape = dataclasses.replace(SMALL, **({"noise": "independent"} | change))
    network = make(shape)
    assert set(noisy_layers(network)) == expected
    kind = NoisyLSTMCell if shape.noisy_lstm else nn.LSTMCell
    assert isinstance(network.cell, kind) == (shape.cells is not None)


@pytest.mark.parametrize("noise", ["independent", "factorised"])
def test_noise_is_of_the_kind_and_size_asked_for(noise: Any) -> None:
    network = make(dataclasses.replace(SMALL, noise=noise, sigma0=0.25))
    for layer in noisy_layers(network).values():
        assert layer.noise == noise
        assert layer.sigma0 == 0.25


def test_steps_and_environments_are_dimensions_of_their_own() -> None:
    network = make(dataclasses.replace(SMALL, noise="factorised"))
    resample_noise(network, torch.Generator().manual_seed(1), rows=4)
    observation = torch.randn(5, 4, 1, 6)
    with torch.no_grad():
        together = network.heads(network.features(observation))
        alone = [network(of_step)[:2] for of_step in observation]
    assert together[0].shape == (5, 4, 3)
    assert together[1].shape == (5, 4)
    for part in (0, 1):
        torch.testing.assert_close(together[part], torch.stack([step[part] for step in alone]))


def test_an_lstm_remembers() -> None:
    network = make(dataclasses.replace(SMALL, cells=5))
    x = torch.randn(2, 1, 6)
    first, _, state = network(x)
    second, _, after = network(x, state)
    assert state[0].shape == state[1].shape == (2, 5)
    assert not torch.allclose(first, second)
    assert not torch.allclose(state[0], after[0])


def test_frozen_deviations_need_no_gradient() -> None:
    network = make(dataclasses.replace(SMALL, noise="independent", learn_sigma=False))
    frozen = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert frozen == {name for name, _ in network.named_parameters() if "sigma" in name}


@pytest.mark.parametrize(
    ("frame", "expected"),
    [((84, 84), "a3c"), ((3, 96, 96), "a3c"), ((4, 10, 10), "minatar"), ((6,), "flat")],
    ids=str,
)
def test_frames_choose_their_convolutions(frame: tuple[int, ...], expected: str) -> None:
    assert fitting_torso(frame, "a3c") == expected


# --- one vector ----------------------------------------------------------------------------------


def test_parameters_are_views_of_one_vector_in_their_own_layout() -> None:
    network = make(dataclasses.replace(A3C, noise="factorised"), (4, 84, 84))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    flat = flatten_parameters(network)
    after = network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    for name, parameter in network.named_parameters():
        assert parameter.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()
        assert (parameter.data_ptr() - flat.data_ptr()) % 64 == 0, name
    for index in (0, 2):
        weight = network.torso.layers[index].weight
        assert weight.is_contiguous(memory_format=torch.channels_last)
    flat.zero_()
    assert all(not value.any() for value in network.state_dict().values())


def test_no_two_parameters_overlap() -> None:
    network = make(dataclasses.replace(SMALL, noise="independent", cells=3))
    flat = flatten_parameters(network)
    flat.zero_()
    for view in views_of(flat, network):
        view += 1
    assert float(flat.max()) == 1.0
    assert int(flat.sum()) == sum(p.numel() for p in network.parameters())


def test_a_vector_of_gradients_has_the_places_of_the_parameters() -> None:
    network = make(A3C, (4, 84, 84))
    flat = flatten_parameters(network)
    other = torch.zeros_like(flat)
    for view, parameter in zip(views_of(other, network), network.parameters(), strict=True):
        view.copy_(parameter.detach())
    assert torch.equal(other, flat)


def test_what_is_not_trained_stays_where_it_is() -> None:
    network = make(dataclasses.replace(SMALL, noise="independent", learn_sigma=False))
    flat = flatten_parameters(network)
    flat.zero_()
    assert all(bool((p > 0).all()) for n, p in network.named_parameters() if "sigma" in n)
