"""The actor-critic agents: the noise of acting and learning, and that they resume bit for bit."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from noisynet.agents import ActorCriticAgent, Rollout
from noisynet.config import ACTOR_CRITIC_AGENTS
from noisynet.layers import held_noise, noise_off
from noisynet.losses import log_policy
from noisynet.networks import ActorCriticNetwork

from .synthetic import (
    CHANNELS,
    FLAT,
    NOISY_A3C_AGENTS,
    SCREEN,
    Spec,
    act_rollout,
    observations,
)
from .synthetic import ROLLOUT_STEPS as STEPS
from .synthetic import make_actor_critic_agent as make

KINDS = [
    (agent, settings)
    for agent in ACTOR_CRITIC_AGENTS
    for settings in [(), ("envs_per_worker=3",), ("recurrent=true", "envs_per_worker=2")]
]
KINDS += [(agent, ("recurrent=true", "noisy_lstm=true")) for agent in NOISY_A3C_AGENTS]
KINDS += [("noisynet-a3c", ("exploration.distribution=uniform",))]
CONTROLS = [("noisynet-a3c", (f"exploration.used_in={use}",)) for use in ("acting", "learning")]


def noise(agent: ActorCriticAgent) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in held_noise(agent.online).items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


# --- build ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTOR_CRITIC_AGENTS)
def test_the_initial_weights_derive_from_the_seed_alone(name: str) -> None:
    first, other = make(name), make(name, worker=3, incarnation=2, num_envs=4)
    assert torch.equal(first.parameters, other.parameters)
    assert not torch.equal(first.parameters, make(name, seed=1).parameters)


@pytest.mark.parametrize(
    "other", [{"worker": 1}, {"incarnation": 1}, {"seed": 1}], ids=["worker", "incarnation", "seed"]
)
def test_every_worker_and_every_incarnation_has_its_own_streams(other: dict[str, Any]) -> None:
    first, second = make(), make(**other)
    first.begin_rollout()
    second.begin_rollout()
    assert not same(noise(first), noise(second))
    assert first.explore.random() != second.explore.random()
    again = make(**other)
    again.begin_rollout()
    assert same(noise(again), noise(second))


@pytest.mark.parametrize("name", ACTOR_CRITIC_AGENTS)
def test_weights_copied_into_the_vector_are_used(name: str) -> None:
    agent, other = make(name), make(name, seed=1)
    agent.parameters.copy_(other.parameters)
    assert same(agent.weights(), other.weights())
    x = torch.from_numpy(observations(1))
    with torch.no_grad():
        if agent.noisy:
            with noise_off(agent.online), noise_off(other.online):
                assert torch.equal(agent.online(x)[0], other.online(x)[0])
        else:
            assert torch.equal(agent.online(x)[0], other.online(x)[0])


def test_frozen_sigmas_are_not_part_of_the_vector() -> None:
    free, frozen = make(), make("noisynet-a3c", "exploration.learn_sigma=false")
    assert len(frozen.parameters) < len(free.parameters)
    assert same(free.weights(), frozen.weights())
    rollout = act_rollout(frozen)
    assert frozen.learn(rollout).finite


@pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])
def test_with_noise_in_acting_only_the_loss_is_that_of_the_mean_weights(recurrent: bool) -> None:
    """σ has no gradient then and is not part of the vector: it stays frozen."""
    settings = ["exploration.used_in=acting", "exploration.sigma0=1"]
    settings += ["recurrent=true", "noisy_lstm=true"] if recurrent else []
    agent = make("noisynet-a3c", *settings)
    plain = make("a3c", "exploration.beta=0", *(["recurrent=true"] if recurrent else []))
    assert len(agent.parameters) == len(plain.parameters)
    plain.load_weights(mean_weights(agent))
    sigma = {name: value.clone() for name, value in agent.weights().items() if "sigma" in name}
    rollout = act_rollout(agent)
    if recurrent:  # both learn from the state that acting has left
        plain._lstm_state_at_begin = agent._lstm_state_at_begin
    learnt = agent.learn(rollout)
    assert learnt.loss == pytest.approx(plain.learn(rollout).loss, rel=1e-5)
    assert float(agent.gradient.norm()) == pytest.approx(float(plain.gradient.norm()), rel=1e-4)
    assert all(torch.equal(value, agent.weights()[name]) for name, value in sigma.items())


def test_with_noise_in_acting_only_the_agent_acts_noisily() -> None:
    agent, whole = (make("noisynet-a3c", "exploration.sigma0=3", *more) for more in USED_IN[:2])
    for each in (agent, whole):
        each.begin_rollout()
    observation = observations(1)
    actions = [[int(each.act(observation)[0]) for _ in range(30)] for each in (agent, whole)]
    assert actions[0] == actions[1]


def test_with_noise_in_learning_only_the_agent_acts_on_mean_weights() -> None:
    agent = make("noisynet-a3c", "exploration.sigma0=3", *USED_IN[2])
    plain = make("a3c")
    plain.load_weights(mean_weights(agent))
    noisy = make("noisynet-a3c", "exploration.sigma0=3")
    observation = observations(1)
    actions = []
    for each in (agent, plain, noisy):
        each.begin_rollout()
        actions.append([int(each.act(observation)[0]) for _ in range(30)])
    assert actions[0] == actions[1]
    assert actions[0] != actions[2]


def test_with_noise_in_learning_only_the_loss_is_that_of_the_sample() -> None:
    agent, whole = (make("noisynet-a3c", "exploration.sigma0=1", *USED_IN[i]) for i in (2, 0))
    rollout = act_rollout(agent)
    whole.begin_rollout()
    assert same(noise(agent), noise(whole))
    assert agent.learn(rollout).loss == pytest.approx(whole.learn(rollout).loss, rel=1e-6)
    assert torch.allclose(agent.gradient, whole.gradient, atol=1e-6)
    seen = [noise(agent)]
    for _ in range(3):  # and redrawn for every roll-out
        agent.begin_rollout()
        assert not any(same(noise(agent), before) for before in seen)
        seen.append(noise(agent))


USED_IN: list[tuple[str, ...]] = [
    (),
    ("exploration.used_in=acting",),
    ("exploration.used_in=learning",),
]


def mean_weights(agent: ActorCriticAgent) -> dict[str, Tensor]:
    """The weights of a plain agent with the same means."""
    return {
        name.replace("input_gates.weight_mu", "weight_ih")
        .replace("input_gates.bias_mu", "bias_ih")
        .replace("hidden_gates.weight_mu", "weight_hh")
        .replace("hidden_gates.bias_mu", "bias_hh")
        .removesuffix("_mu"): value.clone()
        for name, value in agent.weights().items()
        if "sigma" not in name
    }


# --- act -----------------------------------------------------------------------------------------


def test_actions_are_sampled_from_the_policy() -> None:
    agent = make("a3c", "envs_per_worker=1000")
    observation = np.repeat(observations(1), 1_000, axis=0)
    with torch.no_grad():
        pi = log_policy(agent.online(torch.from_numpy(observation))[0])[0].exp().double().numpy()
    counts = np.bincount(agent.act(observation), minlength=5)
    deviation = np.sqrt(1_000 * pi * (1 - pi))
    assert (np.abs(counts - 1_000 * pi) < 4 * deviation).all()
    assert pi.min() > 0.05  # otherwise the bound above says little


@pytest.mark.parametrize("name", NOISY_A3C_AGENTS)
def test_a_sample_is_held_over_a_roll_out_and_redrawn_for_the_next(name: str) -> None:
    agent = make(name)
    rollout = act_rollout(agent)
    held = noise(agent)
    agent.learn(rollout)
    assert same(noise(agent), held)
    seen = [held]
    for _ in range(3):
        agent.begin_rollout()
        assert not any(same(noise(agent), before) for before in seen)
        seen.append(noise(agent))


@pytest.mark.parametrize("name", NOISY_A3C_AGENTS)
def test_each_environment_has_its_own_sample(name: str) -> None:
    agent = make(name, "envs_per_worker=3")
    agent.begin_rollout()
    for sample in noise(agent).values():
        assert sample.shape[0] == 3
        assert len(torch.unique(sample.flatten(1), dim=0)) == 3
    x = torch.from_numpy(np.repeat(observations(1), 3, axis=0))
    logits = agent.online(x)[0]
    assert len(torch.unique(logits, dim=0)) == 3


@pytest.mark.parametrize(("name", "settings"), KINDS, ids=str)
def test_learning_uses_the_noise_that_acted(
    name: str, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learning pass repeats the logits, values and LSTM states of acting."""
    agent = make(name, *settings)
    act_rollout(agent)  # the LSTM state is no longer zero
    acted: list[tuple[Tensor, Tensor]] = []
    learnt: list[tuple[Tensor, Tensor]] = []
    heads = ActorCriticNetwork.heads

    def recorded(self: ActorCriticNetwork, features: Tensor) -> tuple[Tensor, Tensor]:
        found = heads(self, features)
        (learnt if torch.is_grad_enabled() else acted).append(found)
        return found

    monkeypatch.setattr(ActorCriticNetwork, "heads", recorded)
    rollout = act_rollout(agent, seed=1)
    agent.learn(rollout)
    assert len(learnt) == 1
    for output in (0, 1):  # logits and V
        expected = torch.stack([step[output] for step in acted[:STEPS]])
        found = learnt[0][output][:STEPS].detach()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    # The bootstrap value of one environment is a row of the same pass, that of several a pass.
    bootstrap = learnt[0][1][STEPS] if agent.num_envs == 1 else acted[STEPS][1]
    _, value, _ = agent.online(
        torch.from_numpy(rollout.observation[STEPS]),
        agent._lstm_state,  # of the next action
    )
    torch.testing.assert_close(bootstrap.detach(), value.detach(), rtol=1e-4, atol=1e-5)


def test_the_lstm_state_is_reset_where_an_episode_begins() -> None:
    agent = make("a3c", "recurrent=true", "envs_per_worker=2")
    x = observations(2)
    agent.act(observations(2, seed=5), np.zeros(2, bool))
    before = agent._lstm_state
    assert before is not None
    agent.act(x, np.array([True, False]))
    fresh, state = make("a3c", "recurrent=true", "envs_per_worker=2"), agent._lstm_state
    fresh.act(x)
    assert fresh._lstm_state is not None
    assert state is not None
    torch.testing.assert_close(state[0][0], fresh._lstm_state[0][0])
    assert not torch.allclose(state[0][1], fresh._lstm_state[0][1])


# --- learn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings"), [*KINDS, *CONTROLS], ids=str)
def test_learning_changes_no_weight_and_can_be_repeated(
    name: str, settings: tuple[str, ...]
) -> None:
    agent = make(name, *settings)
    rollout = act_rollout(agent)
    weights = agent.parameters.clone()
    first = agent.learn(rollout)
    gradient = agent.gradient.clone()
    assert torch.equal(agent.parameters, weights)
    assert bool(gradient.abs().max() > 0)
    assert agent.learn(rollout) == first
    assert torch.equal(agent.gradient, gradient)


def test_the_gradient_of_several_environments_is_their_sum_over_the_root_of_their_number() -> None:
    both = make("a3c", "envs_per_worker=2", "learning.max_gradient_norm=null")
    rollout = act_rollout(both)
    loss = both.learn(rollout).loss
    gradients, losses = [], []
    for env in range(2):
        one = make("a3c", "learning.max_gradient_norm=null")
        columns = {
            field.name: getattr(rollout, field.name)[:, env : env + 1]
            for field in dataclasses.fields(rollout)
            if field.name != "final"
        }
        losses.append(one.learn(Rollout(**columns)).loss)
        gradients.append(one.gradient.clone())
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    torch.testing.assert_close(both.gradient, (gradients[0] + gradients[1]) / 2**0.5)


def test_only_plain_agents_have_an_entropy_bonus() -> None:
    agents = [make("a3c", f"exploration.beta={beta}") for beta in (0.5, 0)]
    learnt = [agent.learn(act_rollout(agent)) for agent in agents]
    assert learnt[0].entropy == learnt[1].entropy > 0
    expected = learnt[1].loss - 0.5 * STEPS * learnt[1].entropy
    assert learnt[0].loss == pytest.approx(expected, rel=1e-5)
    noisy = make()
    found = noisy.learn(act_rollout(noisy))
    assert found.loss == pytest.approx(found.policy_loss + found.value_loss, rel=1e-6)


@pytest.mark.parametrize("wrong", ["reward", "weight"])
def test_a_non_finite_gradient_is_reported(wrong: str) -> None:
    agent = make()
    rollout = act_rollout(agent)
    if wrong == "reward":
        rollout.reward[2, 0] = np.nan
    else:
        agent.parameters[0] = np.inf
        agent.begin_rollout()
    assert not agent.learn(rollout).finite
    assert not bool(agent.gradient.isfinite().all())
    agent = make()
    assert agent.learn(act_rollout(agent)).finite


def test_a_non_finite_lstm_state_is_reset_after_the_roll_out() -> None:
    agent = make("a3c", "recurrent=true", "envs_per_worker=2")
    x = observations(2)
    x[1] = np.nan
    agent.act(x)
    rollout = act_rollout(agent, seed=1)
    rollout.observation[0, 1] = np.nan
    assert not agent.learn(rollout).finite
    after = agent._lstm_state
    assert after is not None
    assert bool(torch.cat([*after]).isfinite().all())
    assert not bool(after[0][1].any())
    assert bool(after[0][0].any())  # that of the other environment stays


def test_non_finite_weights_still_give_an_action() -> None:
    agent = make("a3c")
    agent.parameters.fill_(np.nan)
    assert agent.act(observations(1)) in range(5)


# --- state ---------------------------------------------------------------------------------------


def restored(agent: ActorCriticAgent, name: str, *settings: str) -> ActorCriticAgent:
    """Another agent with the weights and the state of the first, as from a file."""
    tensors = {key: value.clone() for key, value in agent.tensors().items()}
    state = json.loads(json.dumps(agent.state()))
    other = make(name, *settings)
    other.load_weights({f"agent.{k}": v.clone() for k, v in agent.weights().items()}, "agent.")
    other.restore(tensors, state)
    return other


@pytest.mark.parametrize(("name", "settings"), [*KINDS, *CONTROLS], ids=str)
@pytest.mark.parametrize("drawn", [False, True], ids=["before", "within"])
def test_a_restored_agent_resumes_bit_for_bit(
    name: str, settings: tuple[str, ...], drawn: bool
) -> None:
    agent = make(name, *settings)
    agent.learn(act_rollout(agent))
    agent.parameters.sub_(0.01 * agent.gradient)
    if drawn:
        agent.begin_rollout()
        agent.act(observations(agent.num_envs, seed=7))
    other = restored(agent, name, *settings)
    for seed in range(2):
        rollouts = [
            act_rollout(one, seed, begin=not (drawn and seed == 0)) for one in (agent, other)
        ]
        assert np.array_equal(rollouts[0].action, rollouts[1].action)
        learnt = [one.learn(rollout) for one, rollout in zip((agent, other), rollouts, strict=True)]
        assert learnt[0] == learnt[1]
        assert torch.equal(agent.gradient, other.gradient)
        for one in (agent, other):
            one.parameters.sub_(0.01 * one.gradient)
    assert json.dumps(agent.state()) == json.dumps(other.state())
    assert same(agent.tensors(), other.tensors())


def test_an_agent_restored_before_learning_computes_the_same_gradient() -> None:
    agent = make("noisynet-a3c", "recurrent=true", "envs_per_worker=2")
    agent.learn(act_rollout(agent))
    rollout = act_rollout(agent, seed=1)
    other = restored(agent, "noisynet-a3c", "recurrent=true", "envs_per_worker=2")
    agent.learn(rollout)
    other.learn(rollout)
    assert torch.equal(agent.gradient, other.gradient)


def test_the_generator_state_is_saved_instead_of_the_noise() -> None:
    """The noise of 16 workers with 8 environments each would take 340 MB."""
    agent = make("noisynet-a3c", "envs_per_worker=8")
    act_rollout(agent)
    assert sum(value.nbytes for value in agent.tensors().values()) < 10_000


def test_noise_is_neither_in_the_weights_nor_in_the_vector() -> None:
    agent = make()
    assert not [name for name in agent.weights() if "epsilon" in name]
    weights = sum(value.numel() for value in agent.weights().values())
    assert weights <= len(agent.parameters) < weights + 16 * len(agent.weights())


def test_a_network_can_be_copied_within_a_roll_out() -> None:
    agent = make()
    agent.begin_rollout()
    agent.act(observations(1))
    network = copy.deepcopy(agent.online)
    assert same(held_noise(network), held_noise(agent.online))


# --- observations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "torso", "features"),
    [
        (SCREEN, "auto", 64 * 7 * 7),
        (SCREEN, "a3c", 32 * 9 * 9),
        (CHANNELS, "auto", 16 * 8 * 8),
        (FLAT, "auto", 6),
    ],
    ids=["screens", "screens, small torso", "channels", "flat"],
)
@pytest.mark.parametrize("name", ACTOR_CRITIC_AGENTS)
def test_the_torso_follows_from_the_frames_and_is_trained(
    name: str, spec: Spec, torso: str, features: int
) -> None:
    agent = make(name, "envs_per_worker=2", f"network.torso={torso}", spec=spec)
    assert agent.online.torso.features == features
    assert agent.online.torso.scale == spec.pixel_scale
    assert agent.learn(act_rollout(agent)).finite
    for gradient in agent._gradients:
        assert bool(gradient.any())
