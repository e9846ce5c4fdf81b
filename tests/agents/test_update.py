"""The seam of value agents: noise streams, networks, and messages about non-finite losses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from noisynet.agents import Learnt, PlainUpdate
from noisynet.agents.update import NoiseStreams, ValueNetworks, describe_non_finite
from noisynet.agents.value import NOISE_ROLES
from noisynet.config import VALUE_AGENTS
from noisynet.layers import held_noise, noise_off, noisy_layers

from .synthetic import assert_same, make_batch, make_value_agent, observations


def networks(name: str = "noisynet-dueling") -> ValueNetworks:
    return make_value_agent(name).networks


def streams() -> dict[str, torch.Generator]:
    return {role: torch.Generator().manual_seed(seed) for seed, role in enumerate(NOISE_ROLES)}


def noise(of: ValueNetworks) -> dict[str, dict[str, Tensor]]:
    return {role: held_noise(network) for role, network in of.items().items()}


# --- networks and noise --------------------------------------------------------------------------


def test_networks_are_listed_by_the_role_of_their_noise() -> None:
    of = networks()
    assert set(of.items()) == set(NOISE_ROLES)
    assert of.items()["act"] is of.acting
    assert of.items()["select"] is of.selector


@pytest.mark.parametrize("role", NOISE_ROLES)
def test_resampling_a_role_changes_its_network_and_stream_only(role: str) -> None:
    of, generators = networks(), streams()
    drawn = NoiseStreams(of, generators, set(NOISE_ROLES))
    before, states = noise(of), {name: g.get_state() for name, g in generators.items()}
    drawn.resample(role)
    for name in NOISE_ROLES:
        same = [torch.equal(v, before[name][k]) for k, v in noise(of)[name].items()]
        assert same == [name != role] * 8
        assert torch.equal(generators[name].get_state(), states[name]) == (name != role)


def test_rows_are_samples_of_their_own() -> None:
    of = networks()
    drawn = NoiseStreams(of, streams(), set(NOISE_ROLES))
    drawn.resample("act", rows=3)
    assert {layer.rows for layer in noisy_layers(of.acting).values()} == {3}
    drawn.resample("act")
    assert {layer.rows for layer in noisy_layers(of.acting).values()} == {None}


def test_a_role_that_is_switched_off_holds_zero_noise_and_draws_nothing() -> None:
    of, generators = networks(), streams()
    x = torch.from_numpy(observations(9))
    with noise_off(of.acting):
        mean = of.acting(x)
    drawn = NoiseStreams(of, generators, {"online", "target", "select"})
    state = generators["act"].get_state()
    drawn.resample("act", rows=3)
    assert torch.equal(generators["act"].get_state(), state)
    assert not any(bool(value.any()) for value in held_noise(of.acting).values())
    torch.testing.assert_close(of.acting(x), mean)
    assert all(bool(value.any()) for value in held_noise(of.target).values())


def test_zero_noise_gives_sigma_a_zero_gradient() -> None:
    of = networks()
    NoiseStreams(of, streams(), {"act"})
    of.online(torch.from_numpy(observations(9))).square().sum().backward()
    for layer in noisy_layers(of.online).values():
        assert layer.weight_mu.grad is not None
        assert layer.weight_sigma.grad is not None
        assert bool(layer.weight_mu.grad.any())
        assert not bool(layer.weight_sigma.grad.any())


def test_plain_agents_draw_nothing() -> None:
    generators = streams()
    states = {role: generator.get_state() for role, generator in generators.items()}
    drawn = NoiseStreams(networks("dueling"), generators, set())
    for role in NOISE_ROLES:
        drawn.resample(role)
    assert_same({role: generator.get_state() for role, generator in generators.items()}, states)


# --- the plain update ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUE_AGENTS)
def test_plain_q_values_are_those_of_the_acting_network_and_draw_nothing(name: str) -> None:
    agent, seen = make_value_agent(name), observations(3)
    assert isinstance(agent.update, PlainUpdate)
    agent.update.resample(3)
    states = {role: stream.get_state() for role, stream in agent.streams.items()}
    q = agent.update.q_values(seen)
    assert q.dtype == np.float32
    np.testing.assert_array_equal(q, agent.acting(torch.from_numpy(seen)).detach().numpy())
    assert_same({role: stream.get_state() for role, stream in agent.streams.items()}, states)


@pytest.mark.parametrize("name", VALUE_AGENTS)
def test_an_update_leaves_target_weights_and_acting_noise_unchanged(name: str) -> None:
    agent = make_value_agent(name)
    agent.act(observations(2), 100)
    target = {name: value.clone() for name, value in agent.target.state_dict().items()}
    acting = {name: value.clone() for name, value in held_noise(agent.acting).items()}
    agent.learn(make_batch())
    assert_same(dict(agent.target.state_dict()), target)
    assert_same(held_noise(agent.acting), acting)


# --- non-finite losses ---------------------------------------------------------------------------


def describe(
    of: ValueNetworks, *, td_error: float = np.nan, loss: float = np.nan, **columns: Any
) -> str:
    learnt = Learnt(loss, np.full(32, td_error, np.float32), 0.0)
    return describe_non_finite(learnt, make_batch(**columns), of, 7)


@pytest.mark.parametrize(
    ("column", "name"),
    [("reward", "reward"), ("x", "the observations"), ("y", "the next observations")],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_column_of_the_batch_that_is_not_finite_is_named(
    column: str, name: str, value: float
) -> None:
    bad = getattr(make_batch(), column).copy()
    bad.flat[3] = value
    found = describe(networks(), loss=value, **{column: bad})
    assert found == f"expected a finite loss at update 7, got {value}: first in {name!r}"


@pytest.mark.parametrize("name", ["head.value.0.weight_mu", "head.advantage.2.bias_sigma"])
@pytest.mark.parametrize("network", ["online", "target"])
def test_the_parameter_that_is_not_finite_is_named(network: str, name: str) -> None:
    of = networks()
    with torch.no_grad():
        getattr(of, network).get_parameter(name).view(-1)[0] = np.nan
    prefix = "target " if network == "target" else ""
    assert describe(of).endswith(f"got nan: first in {prefix + name!r}")


def test_errors_that_overflow_the_loss_are_named() -> None:
    found = describe(networks(), td_error=1e30, loss=np.inf)
    assert found.endswith("got inf: TD errors of up to 1e+30 overflow it; are the rewards right?")


def test_otherwise_the_outputs_of_the_network_are_named() -> None:
    assert re.fullmatch(r".*got nan: in the network's outputs", describe(networks()))
