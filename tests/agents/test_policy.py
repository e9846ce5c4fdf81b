"""Policies of evaluations: noise, memory and random streams of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from noisynet.config import ACTOR_CRITIC_AGENTS, VALUE_AGENTS
from noisynet.layers import held_noise, noise_off, noisy_layers
from noisynet.losses import log_policy

from .synthetic import (
    NOISY_A3C_AGENTS,
    NOISY_VALUE_AGENTS,
    act_rollout,
    assert_same,
    make_actor_critic_agent,
    make_batch,
    make_value_agent,
    observations,
    perturb,
    play,
    snapshot,
)

RECURRENT = ("recurrent=true", "envs_per_worker=2")
ACTOR_CRITIC_KINDS = [
    (agent, settings)
    for agent in ACTOR_CRITIC_AGENTS
    for settings in [(), ("envs_per_worker=3",), RECURRENT]
]
ACTOR_CRITIC_KINDS += [(agent, ("recurrent=true", "noisy_lstm=true")) for agent in NOISY_A3C_AGENTS]


def make(name: str, *settings: str) -> Any:
    if name in VALUE_AGENTS:
        return make_value_agent(name, *settings)
    return make_actor_critic_agent(name, *settings)


# --- noise of either kind of policy --------------------------------------------------------------


@pytest.mark.parametrize("name", [*NOISY_VALUE_AGENTS, *NOISY_A3C_AGENTS])
def test_the_role_determines_the_actions(name: str) -> None:
    agent, seen = make(name), observations(1)

    def actions(role: str) -> list[int]:
        policy = agent.evaluation_policy("on", role)
        return [int(policy.act(seen)[0]) for _ in range(40)]

    assert actions("eval 1") == actions("eval 1")
    assert actions("eval 1") != actions("eval 2")


@pytest.mark.parametrize("name", [*NOISY_VALUE_AGENTS, *NOISY_A3C_AGENTS])
@pytest.mark.parametrize("envs", [1, 3])
def test_noise_is_redrawn_at_every_action_for_every_environment(name: str, envs: int) -> None:
    """Also where training redraws less often."""
    settings = ["exploration.redraw=episode"] if name in VALUE_AGENTS else []
    policy = make(name, *settings).evaluation_policy("on", "eval")
    samples = []
    for _ in range(3):
        policy.act(observations(envs))
        samples.append(torch.cat([v.flatten(1) for v in held_noise(policy.network).values()], 1))
    rows = torch.cat(samples)
    assert len(rows) == 3 * envs
    assert len(torch.unique(rows, dim=0)) == 3 * envs


@pytest.mark.parametrize("name", [*NOISY_VALUE_AGENTS, *NOISY_A3C_AGENTS])
def test_noise_off_draws_nothing_and_ends_after_the_action(name: str) -> None:
    policy = make(name).evaluation_policy("off", "eval")
    state, noise = policy.stream.get_state(), held_noise(policy.network)
    policy.act(observations(2))
    assert torch.equal(policy.stream.get_state(), state)
    assert_same(held_noise(policy.network), noise)
    assert not any(
        layer.weight is layer.weight_mu for layer in noisy_layers(policy.network).values()
    )


# --- value agents --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOISY_VALUE_AGENTS)
def test_without_noise_a_value_policy_is_greedy_in_mean_weights(name: str) -> None:
    agent, seen = make(name), observations(64)
    with noise_off(agent.online):
        greedy = agent.online(torch.from_numpy(seen)).argmax(1).tolist()
    assert agent.evaluation_policy("off", "eval").act(seen).tolist() == greedy
    assert agent.evaluation_policy("on", "eval").act(seen).tolist() != greedy


def test_a_value_policy_uses_the_latest_weights() -> None:
    agent, seen = make("dqn", "exploration.evaluation=0"), observations(64)
    policy = agent.evaluation_policy("off", "eval")
    before = policy.act(seen).tolist()
    perturb(agent.online)
    assert policy.act(seen).tolist() == agent.online(torch.from_numpy(seen)).argmax(1).tolist()
    assert policy.act(seen).tolist() != before


def test_a_plain_agent_is_evaluated_with_its_own_epsilon() -> None:
    agent, seen = make("dqn", "exploration.evaluation=0.5"), observations(1)
    greedy = int(agent.online(torch.from_numpy(seen)).argmax(1).item())
    policy = agent.evaluation_policy("off", "eval")
    share = np.mean([int(policy.act(seen)[0]) == greedy for _ in range(2_000)])
    assert share == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize("noise", ["on", "off"])
@pytest.mark.parametrize("name", VALUE_AGENTS)
def test_an_evaluation_leaves_a_value_agent_bit_identical(name: str, noise: Any) -> None:
    agent = make(name)
    play(agent, 2)
    tensors, state = snapshot(agent)
    policy = agent.evaluation_policy(noise, "eval")
    for number in range(5):
        policy.act(observations(2, seed=number))
    assert_same(agent.tensors(), tensors)
    assert agent.state() == state
    agent.learn(make_batch())


# --- actor-critic agents -------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOISY_A3C_AGENTS)
def test_without_noise_actions_are_sampled_from_mean_weights(name: str) -> None:
    agent = make(name)
    for layer in noisy_layers(agent.online).values():
        layer.weight_sigma.data.fill_(1e6)  # any noise would show
    policy = agent.evaluation_policy("off", "eval")
    seen = np.repeat(observations(1), 500, axis=0)
    with noise_off(agent.online), torch.no_grad():
        pi = log_policy(agent.online(torch.from_numpy(seen[:1]))[0])[0].exp().double().numpy()
    counts = np.bincount(policy.act(seen), minlength=5)
    assert (np.abs(counts - 500 * pi) < 4 * np.sqrt(500 * pi * (1 - pi))).all()


def test_an_actor_critic_policy_uses_the_latest_weights() -> None:
    agent = make("a3c")
    policy = agent.evaluation_policy("off", "eval")
    agent.parameters.zero_()
    agent.online.get_parameter("policy.bias").data[2] = 100.0
    assert policy.act(observations(4)).tolist() == [2, 2, 2, 2]


def test_the_lstm_state_is_carried_and_reset_when_an_episode_begins() -> None:
    agent = make("a3c", "recurrent=true")
    policy, fresh = (agent.evaluation_policy("off", "eval") for _ in range(2))

    def state_after(policy: Any, seed: int) -> torch.Tensor:
        policy.act(observations(1, seed=seed))
        hidden: torch.Tensor = policy._lstm_state[0]
        return hidden

    first = state_after(policy, 3)
    assert not torch.allclose(state_after(policy, 3), first)
    policy.begin_episode()
    assert torch.equal(state_after(policy, 3), first)
    assert torch.equal(state_after(fresh, 3), first)


@pytest.mark.parametrize(("name", "settings"), ACTOR_CRITIC_KINDS, ids=str)
@pytest.mark.parametrize("noise", ["on", "off"])
def test_an_evaluation_leaves_the_training_of_an_actor_critic_agent_bit_identical(
    name: str, settings: tuple[str, ...], noise: Any
) -> None:
    agents = [make(name, *settings) for _ in range(2)]
    for agent in agents:
        agent.begin_rollout()
        agent.act(observations(agent.num_envs))
    policy = agents[0].evaluation_policy(noise, "eval")
    for _ in range(2):
        policy.begin_episode()
        for t in range(3):
            policy.act(observations(1, seed=t))
    rollouts = [act_rollout(agent, 1, begin=False) for agent in agents]
    for agent, rollout in zip(agents, rollouts, strict=True):
        agent.learn(rollout)
        agent.begin_rollout()
    assert torch.equal(agents[0].gradient, agents[1].gradient)
    assert_same(held_noise(agents[0].online), held_noise(agents[1].online))
    assert_same(agents[0].tensors(), agents[1].tensors())
    assert agents[0].state() == agents[1].state()
