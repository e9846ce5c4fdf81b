"""Values under noise samples: Q of value agents, π and V of actor-critic agents."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from noisynet.agents import ActorCriticAgent, ValueAgent
from noisynet.config import Config, build_config
from noisynet.envs import make_environment
from noisynet.layers import noise_off, resample_noise
from noisynet.networks import CategoricalNetwork, view_with_own_noise
from noisynet.runs import Trace
from noisynet.watch.value_sampling import (
    CategoricalSampler,
    PolicySampler,
    QSampler,
    SampledValues,
    make_sampler,
)

from .conftest import NOISY_ACTOR_CRITICS, SMALL, make_actor_critic

TRACE = Trace("deep_sea/4", 0, np.zeros(4, np.uint8), 0.0, 0, 0, "on")


def states(count: int) -> NDArray[np.float32]:
    return np.eye(16, dtype=np.float32)[:count, None]  # [T, 1, 16]


def sample_policy(
    agent: ActorCriticAgent, count: int, samples: int, batch_size: int = 1
) -> SampledValues:
    sampler = PolicySampler(agent, TRACE, samples)
    for first in range(0, count, batch_size):
        sampler.add(states(count)[first : first + batch_size])
    return sampler.values()


def make_value_agent(name: str, *settings: str) -> ValueAgent:
    """A small value agent on deep_sea/4."""
    config = build_config(name, "deep_sea/4", settings=[*SMALL, *settings])
    assert isinstance(config, Config)
    with make_environment("deep_sea/4") as environment:
        return ValueAgent(config, environment.spec)


@pytest.mark.parametrize("noise", ["factorised", "independent"])
@pytest.mark.parametrize(
    "agent_name", ["noisynet-dqn", "noisynet-dueling", "noisynet-c51", "rainbow"]
)
def test_the_spread_of_q_is_that_of_separate_noise_samples(agent_name: str, noise: str) -> None:
    """Against resampling the noise of one network again and again."""
    settings = f"exploration.noise={noise}", "exploration.sigma0=0.5"
    agent = make_value_agent(agent_name, *settings)
    states = np.eye(16, dtype=np.float32)[:3, None]  # [3, 1, 16]
    sampler = make_sampler(agent, TRACE, 400)
    for state in states:
        sampler.add(state[None])
    values = sampler.values()

    network, stream = view_with_own_noise(agent.online), torch.Generator().manual_seed(1)
    drawn = []
    with torch.no_grad():
        for _ in range(800):
            resample_noise(network, stream)
            drawn.append(network(torch.from_numpy(states)).numpy())
        with noise_off(network):
            mean = network(torch.from_numpy(states)).numpy()
    q = np.stack(drawn)  # [800, 3, 2]
    np.testing.assert_allclose(values.mean_weights, mean, rtol=1e-5, atol=1e-5)
    spread = q.std(axis=0).max()
    quartiles = np.quantile(q, (0.25, 0.75), axis=0)
    assert np.abs(values.spread[..., 2] - q.mean(axis=0)).max() < 0.25 * spread
    assert np.abs(values.spread[..., 1] - quartiles[0]).max() < 0.25 * spread
    assert np.abs(values.spread[..., 3] - quartiles[1]).max() < 0.25 * spread
    assert (np.diff(values.spread[..., [0, 1, 3, 4]], axis=2) > 0).all()
    share = (q.argmax(axis=2) == 0).mean(axis=0)
    assert np.abs(values.greedy_share[:, 0] - share).max() < 0.12
    np.testing.assert_allclose(values.greedy_share.sum(axis=1), 1)
    disagree = (q.argmax(axis=2) != mean.argmax(axis=1)).mean(axis=0)
    assert np.abs(values.disagreement - disagree).max() < 0.12


def test_distributions_are_those_of_the_mean_weights_and_of_separate_noise_samples() -> None:
    agent = make_value_agent("rainbow", "network.atoms=5", "exploration.sigma0=2")
    sampler = make_sampler(agent, TRACE, 400)
    for state in states(3):
        sampler.add(state[None])
    values = sampler.values()
    assert values.distribution is not None
    assert values.mixture is not None

    network, stream = view_with_own_noise(agent.online), torch.Generator().manual_seed(1)
    assert isinstance(network, CategoricalNetwork)
    observed, drawn = torch.from_numpy(states(3)), []
    with torch.no_grad():
        for _ in range(800):
            resample_noise(network, stream)
            drawn.append(network.logits(observed).softmax(dim=-1).numpy())
        with noise_off(network):
            mean = network.logits(observed).softmax(dim=-1).numpy()
    p = np.stack(drawn)  # [800, 3, 2, 5]
    np.testing.assert_allclose(values.distribution, mean, rtol=1e-5)
    np.testing.assert_allclose(values.mixture, p.mean(axis=0), atol=0.25 * float(p.std()))
    assert np.abs(values.mixture - values.distribution).max() > 0.01
    for found in (values.distribution, values.mixture):
        np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-5)
    atoms = network.atoms.double().numpy()
    np.testing.assert_allclose(values.distribution @ atoms, values.mean_weights, atol=1e-5)
    np.testing.assert_allclose(values.mixture @ atoms, values.spread[..., 2], atol=1e-5)


def test_without_noise_the_mixture_is_the_distribution() -> None:
    agent = make_value_agent("c51")
    sampler = make_sampler(agent, TRACE, 32)
    sampler.add(states(3))
    values = sampler.values()
    assert values.distribution is not None
    assert values.mixture is not None
    np.testing.assert_array_equal(values.mixture, values.distribution)
    assert (values.spread == values.mean_weights[..., None]).all()


@pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])
@pytest.mark.parametrize("name", NOISY_ACTOR_CRITICS)
def test_the_spread_of_a_policy_is_that_of_separate_noise_samples(
    name: str, recurrent: bool
) -> None:
    """Against resampling the noise of one network and unrolling it through the episode."""
    settings = ("recurrent=true", "noisy_lstm=true") if recurrent else ()
    agent = make_actor_critic(name, *settings)
    values = sample_policy(agent, 3, 400)
    network, stream = view_with_own_noise(agent.online), torch.Generator().manual_seed(1)

    def unroll() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        found, memory = [], None
        for state in torch.from_numpy(states(3)):
            logits, value, memory = network(state[None], memory)
            found.append((logits.softmax(1)[0].numpy(), value[0].numpy()))
        return np.stack([pi for pi, _ in found]), np.stack([v for _, v in found])

    drawn = []
    with torch.no_grad():
        for _ in range(800):
            resample_noise(network, stream)
            drawn.append(unroll())
        with noise_off(network):
            mean_pi, mean_v = unroll()
    pi, v = (np.stack(column) for column in zip(*drawn, strict=True))  # [800, 3, 2] and [800, 3]
    assert values.state_value is not None
    assert values.mean_state_value is not None
    np.testing.assert_allclose(values.mean_weights, mean_pi, rtol=1e-4)
    np.testing.assert_allclose(values.mean_state_value, mean_v, rtol=1e-4, atol=1e-6)
    for found, one in ((values.spread, pi), (values.state_value, v)):
        spread = one.std(axis=0).max()
        lower, upper = np.quantile(one, (0.25, 0.75), axis=0)
        for column, expected in ((1, lower), (2, one.mean(axis=0)), (3, upper)):
            assert np.abs(found[..., column] - expected).max() < 0.25 * spread
        assert (np.diff(found[..., [0, 1, 3, 4]], axis=-1) > 0).all()
    np.testing.assert_allclose(values.spread[..., 2].sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("settings", [(), ("recurrent=true",)], ids=str)
@pytest.mark.parametrize("name", ["a3c", *NOISY_ACTOR_CRITICS])
def test_batches_of_states_do_not_change_their_values(name: str, settings: tuple[str, ...]) -> None:
    agent = make_actor_critic(name, *settings)
    one, together = (sample_policy(agent, 6, 5, batch_size) for batch_size in (1, 4))
    np.testing.assert_allclose(one.spread, together.spread, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(one.state_value, together.state_value, rtol=1e-4, atol=1e-6)  # type: ignore[arg-type]


def test_without_noise_all_samples_are_equal() -> None:
    values = sample_policy(make_actor_critic("a3c"), 3, 32)
    assert (values.spread == values.mean_weights[..., None]).all()
    assert values.state_value is not None
    assert values.mean_state_value is not None
    assert (values.state_value == values.mean_state_value[:, None]).all()


def test_sampling_does_not_change_the_agent() -> None:
    agent = make_actor_critic("noisynet-a3c")
    agent.begin_rollout()
    before = {name: value.clone() for name, value in agent.online.named_buffers()}
    state = agent.streams["rollout"].get_state()
    sample_policy(agent, 3, 8)
    assert torch.equal(agent.streams["rollout"].get_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in agent.online.named_buffers())


def test_the_sampler_fits_the_agent() -> None:
    assert type(make_sampler(make_value_agent("dqn"), TRACE, 2)) is QSampler
    assert type(make_sampler(make_value_agent("c51"), TRACE, 2)) is CategoricalSampler
    plain = make_value_agent("rainbow", "network.atoms=null")
    assert type(make_sampler(plain, TRACE, 2)) is QSampler
    assert type(make_sampler(make_actor_critic("a3c"), TRACE, 2)) is PolicySampler
