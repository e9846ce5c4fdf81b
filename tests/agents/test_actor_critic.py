"""The actor-critic agent: which noise acts and learns, and that it continues bit for bit."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet.agents import ActorCriticAgent, Rollout, ValueAgent, make_agent
from noisynet.config import ACTOR_CRITIC_AGENTS, ActorCriticConfig, build_config
from noisynet.envs import EnvironmentSpec
from noisynet.layers import held_noise, noise_off, noisy_layers
from noisynet.losses import log_policy
from noisynet.networks import ActorCriticNetwork

FLAT = EnvironmentSpec("deep_sea/4", 3, (6,), "float32", 1, 1, 1.0)
SCREEN = EnvironmentSpec("atari/pong", 6, (84, 84), "uint8", 4, 4, 1 / 255)
NOISY = ("noisynet-a3c", "noisynet-a3c-factorised")
STEPS = 5
KINDS = [
    (agent, settings)
    for agent in ACTOR_CRITIC_AGENTS
    for settings in [(), ("envs_per_worker=3",), ("recurrent=true", "envs_per_worker=2")]
]
KINDS += [(agent, ("recurrent=true", "noisy_lstm=true")) for agent in NOISY]


def make(
    name: str = "noisynet-a3c", *settings: str, seed: int = 0, **keywords: Any
) -> ActorCriticAgent:
    fixed = ["network.hidden=[8]", "network.cells=4", "envs_per_worker=1"]
    config = build_config(name, FLAT.name, seed=seed, settings=[*fixed, *settings])
    assert isinstance(config, ActorCriticConfig)
    return ActorCriticAgent(config, FLAT, **keywords)


def observations(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((*shape, 1, 6), dtype=np.float32)


def played(agent: ActorCriticAgent, seed: int = 0, *, begin: bool = True) -> Rollout:
    """A roll-out that the agent acted, with an episode that begins on the way."""
    count, rng = agent.num_envs, np.random.default_rng(seed)
    observation = observations(STEPS + 1, count, seed=seed)
    begins = np.zeros((STEPS + 1, count), bool)
    begins[2, 0] = True
    if begin:
        agent.begin_rollout()
    action = np.stack([agent.act(observation[t], begins[t]) for t in range(STEPS)])
    discount = np.full((STEPS, count), 0.99, np.float32)
    discount[1, 0] = 0
    reward = rng.standard_normal((STEPS, count), dtype=np.float32)
    return Rollout(observation, action, reward, discount, begins, np.zeros((STEPS, count), bool))


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
def test_every_worker_and_every_incarnation_has_streams_of_its_own(other: dict[str, Any]) -> None:
    first, second = make(), make(**other)
    first.begin_rollout()
    second.begin_rollout()
    assert not same(noise(first), noise(second))
    assert first.explore.random() != second.explore.random()
    again = make(**other)
    again.begin_rollout()
    assert same(noise(again), noise(second))


def test_a_configuration_makes_its_own_kind_of_agent() -> None:
    assert isinstance(make_agent(build_config("a3c", FLAT.name), FLAT), ActorCriticAgent)
    assert isinstance(make_agent(build_config("dqn", FLAT.name), FLAT), ValueAgent)


@pytest.mark.parametrize("name", ACTOR_CRITIC_AGENTS)
def test_what_is_copied_into_the_vector_is_what_acts(name: str) -> None:
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


def test_frozen_deviations_are_no_part_of_what_is_learnt() -> None:
    free, frozen = make(), make("noisynet-a3c", "exploration.learn_sigma=false")
    assert len(frozen.parameters) < len(free.parameters)
    assert same(free.weights(), frozen.weights())
    rollout = played(frozen)
    assert frozen.learn(rollout).finite


# --- act -----------------------------------------------------------------------------------------


def test_actions_are_drawn_from_the_policy() -> None:
    agent = make("a3c", "envs_per_worker=1000")
    observation = np.repeat(observations(1), 1_000, axis=0)
    with torch.no_grad():
        pi = log_policy(agent.online(torch.from_numpy(observation))[0])[0].exp().double().numpy()
    counts = np.bincount(agent.act(observation), minlength=3)
    deviation = np.sqrt(1_000 * pi * (1 - pi))
    assert (np.abs(counts - 1_000 * pi) < 4 * deviation).all()
    assert pi.min() > 0.05  # so that it says something


@pytest.mark.parametrize("name", NOISY)
def test_a_sample_is_held_over_the_roll_out_and_redrawn_by_the_next(name: str) -> None:
    agent = make(name)
    rollout = played(agent)
    held = noise(agent)
    agent.learn(rollout)
    assert same(noise(agent), held)
    seen = [held]
    for _ in range(3):
        agent.begin_rollout()
        assert not any(same(noise(agent), before) for before in seen)
        seen.append(noise(agent))


@pytest.mark.parametrize("name", NOISY)
def test_each_environment_has_noise_of_its_own(name: str) -> None:
    agent = make(name, "envs_per_worker=3")
    agent.begin_rollout()
    for sample in noise(agent).values():
        assert sample.shape[0] == 3
        assert len(torch.unique(sample.flatten(1), dim=0)) == 3
    x = torch.from_numpy(np.repeat(observations(1), 3, axis=0))
    preference = agent.online(x)[0]
    assert len(torch.unique(preference, dim=0)) == 3


@pytest.mark.parametrize(("name", "settings"), KINDS, ids=str)
def test_learning_uses_the_noise_that_acted(
    name: str, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-probabilities, values and memories of acting come again in the learning pass."""
    agent = make(name, *settings)
    played(agent)  # something to remember
    acted: list[tuple[Tensor, Tensor]] = []
    learnt: list[tuple[Tensor, Tensor]] = []
    heads = ActorCriticNetwork.heads

    def watched(self: ActorCriticNetwork, features: Tensor) -> tuple[Tensor, Tensor]:
        found = heads(self, features)
        (learnt if torch.is_grad_enabled() else acted).append(found)
        return found

    monkeypatch.setattr(ActorCriticNetwork, "heads", watched)
    rollout = played(agent, seed=1)
    agent.learn(rollout)
    assert len(learnt) == 1
    for part in (0, 1):
        expected = torch.stack([step[part] for step in acted[:STEPS]])
        found = learnt[0][part][:STEPS].detach()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    # One environment's bootstrap is a row of the same pass, that of several a pass of its own.
    bootstrap = learnt[0][1][STEPS] if agent.num_envs == 1 else acted[STEPS][1]
    _, value, _ = agent.online(
        torch.from_numpy(rollout.observation[STEPS]),
        agent._memory,  # what acting would go on with
    )
    torch.testing.assert_close(bootstrap.detach(), value.detach(), rtol=1e-4, atol=1e-5)


def test_an_episode_that_begins_remembers_nothing() -> None:
    agent = make("a3c", "recurrent=true", "envs_per_worker=2")
    x = observations(2)
    agent.act(observations(2, seed=5), np.zeros(2, bool))
    before = agent._memory
    assert before is not None
    agent.act(x, np.array([True, False]))
    fresh, remembering = make("a3c", "recurrent=true", "envs_per_worker=2"), agent._memory
    fresh.act(x)
    assert fresh._memory is not None
    assert remembering is not None
    torch.testing.assert_close(remembering[0][0], fresh._memory[0][0])
    assert not torch.allclose(remembering[0][1], fresh._memory[0][1])


# --- learn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings"), KINDS, ids=str)
def test_learning_changes_no_weight_and_can_be_done_again(
    name: str, settings: tuple[str, ...]
) -> None:
    agent = make(name, *settings)
    rollout = played(agent)
    weights = agent.parameters.clone()
    first = agent.learn(rollout)
    gradient = agent.gradient.clone()
    assert torch.equal(agent.parameters, weights)
    assert bool(gradient.abs().max() > 0)
    assert agent.learn(rollout) == first
    assert torch.equal(agent.gradient, gradient)


def test_several_environments_give_the_mean_of_their_gradients() -> None:
    """One update has the size of one environment's roll-out."""
    both = make("a3c", "envs_per_worker=2", "learning.max_gradient_norm=null")
    rollout = played(both)
    loss = both.learn(rollout).loss
    gradients, losses = [], []
    for env in range(2):
        one = make("a3c", "learning.max_gradient_norm=null")
        part = {
            field.name: getattr(rollout, field.name)[:, env : env + 1]
            for field in dataclasses.fields(rollout)
            if field.name != "final"
        }
        losses.append(one.learn(Rollout(**part)).loss)
        gradients.append(one.gradient.clone())
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    torch.testing.assert_close(both.gradient, (gradients[0] + gradients[1]) / 2)


def test_entropy_is_paid_for_in_plain_agents_only() -> None:
    paid, unpaid = (make("a3c", f"exploration.beta={beta}") for beta in (0.5, 0))
    learnt = [agent.learn(played(agent)) for agent in (paid, unpaid)]
    assert learnt[0].entropy == learnt[1].entropy > 0
    expected = learnt[1].loss - 0.5 * STEPS * learnt[1].entropy
    assert learnt[0].loss == pytest.approx(expected, rel=1e-5)
    noisy = make()
    found = noisy.learn(played(noisy))
    assert found.loss == pytest.approx(found.policy_loss + found.value_loss, rel=1e-6)


@pytest.mark.parametrize("wrong", ["reward", "weight"])
def test_a_gradient_that_is_not_finite_says_so(wrong: str) -> None:
    agent = make()
    rollout = played(agent)
    if wrong == "reward":
        rollout.reward[2, 0] = np.nan
    else:
        agent.parameters[0] = np.inf
        agent.begin_rollout()
    assert not agent.learn(rollout).finite
    assert not bool(agent.gradient.isfinite().all())
    agent = make()
    assert agent.learn(played(agent)).finite


def test_one_bad_observation_is_not_remembered_beyond_its_roll_out() -> None:
    agent = make("a3c", "recurrent=true", "envs_per_worker=2")
    x = observations(2)
    x[1] = np.nan
    agent.act(x)
    rollout = played(agent, seed=1)
    rollout.observation[0, 1] = np.nan
    assert not agent.learn(rollout).finite
    after = agent._memory
    assert after is not None
    assert bool(torch.cat([*after]).isfinite().all())
    assert not bool(after[0][1].any())
    assert bool(after[0][0].any())  # the other environment's is kept


def test_acting_on_weights_that_are_not_numbers_still_acts() -> None:
    agent = make("a3c")
    agent.parameters.fill_(np.nan)
    assert agent.act(observations(1)) in range(3)


# --- state ---------------------------------------------------------------------------------------


def restored(agent: ActorCriticAgent, name: str, *settings: str) -> ActorCriticAgent:
    """Another agent with the first one's weights and state, which went through a file."""
    tensors = {key: value.clone() for key, value in agent.tensors().items()}
    state = json.loads(json.dumps(agent.state()))
    other = make(name, *settings)
    other.load_weights({f"agent.{k}": v.clone() for k, v in agent.weights().items()}, "agent.")
    other.restore(tensors, state)
    return other


@pytest.mark.parametrize(("name", "settings"), KINDS, ids=str)
@pytest.mark.parametrize("drawn", [False, True], ids=["before", "within"])
def test_a_restored_agent_goes_on_bit_for_bit(
    name: str, settings: tuple[str, ...], drawn: bool
) -> None:
    agent = make(name, *settings)
    agent.learn(played(agent))
    agent.parameters.sub_(0.01 * agent.gradient)
    if drawn:
        agent.begin_rollout()
        agent.act(observations(agent.num_envs, seed=7))
    other = restored(agent, name, *settings)
    for seed in range(2):
        rollouts = [played(one, seed, begin=not (drawn and seed == 0)) for one in (agent, other)]
        assert np.array_equal(rollouts[0].action, rollouts[1].action)
        learnt = [one.learn(rollout) for one, rollout in zip((agent, other), rollouts, strict=True)]
        assert learnt[0] == learnt[1]
        assert torch.equal(agent.gradient, other.gradient)
        for one in (agent, other):
            one.parameters.sub_(0.01 * one.gradient)
    assert json.dumps(agent.state()) == json.dumps(other.state())
    assert same(agent.tensors(), other.tensors())


def test_a_roll_out_is_learnt_after_a_restoration_as_before_it() -> None:
    agent = make("noisynet-a3c", "recurrent=true", "envs_per_worker=2")
    agent.learn(played(agent))
    rollout = played(agent, seed=1)
    other = restored(agent, "noisynet-a3c", "recurrent=true", "envs_per_worker=2")
    agent.learn(rollout)
    other.learn(rollout)
    assert torch.equal(agent.gradient, other.gradient)


def test_noise_is_kept_as_what_it_is_drawn_from() -> None:
    """16 workers with 8 environments each would otherwise write 340 MB of noise."""
    agent = make("noisynet-a3c", "envs_per_worker=8")
    played(agent)
    assert sum(value.nbytes for value in agent.tensors().values()) < 10_000


def test_noise_is_neither_a_weight_nor_in_the_vector() -> None:
    agent = make()
    assert not [name for name in agent.weights() if "epsilon" in name]
    weights = sum(value.numel() for value in agent.weights().values())
    assert weights <= len(agent.parameters) < weights + 16 * len(agent.weights())


# --- evaluation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings"), KINDS, ids=str)
@pytest.mark.parametrize("mode", ["on", "off"])
def test_an_evaluation_leaves_training_bit_identical(
    name: str, settings: tuple[str, ...], mode: Any
) -> None:
    agents = [make(name, *settings) for _ in range(2)]
    for agent in agents:
        agent.begin_rollout()
        agent.act(observations(agent.num_envs))
    policy = agents[0].evaluation_policy(mode, "eval 1")
    for _ in range(2):
        policy.begin_episode()
        for t in range(3):
            policy.act(observations(1, seed=t))
    rollouts = [played(agent, 1, begin=False) for agent in agents]
    for agent, rollout in zip(agents, rollouts, strict=True):
        agent.learn(rollout)
        agent.begin_rollout()
    assert torch.equal(agents[0].gradient, agents[1].gradient)
    assert same(noise(agents[0]), noise(agents[1]))
    assert same(agents[0].tensors(), agents[1].tensors())
    assert agents[0].state() == agents[1].state()


@pytest.mark.parametrize("name", NOISY)
def test_an_evaluation_redraws_its_noise_at_every_action(name: str) -> None:
    agent = make(name)
    policy = agent.evaluation_policy("on", "eval 1")
    seen = []
    for _ in range(3):
        policy.act(observations(1))
        seen.append({k: v.clone() for k, v in held_noise(policy.network).items()})
    assert not same(seen[0], seen[1])
    assert not same(seen[1], seen[2])


@pytest.mark.parametrize("name", NOISY)
def test_without_noise_an_evaluation_plays_the_mean_weights(name: str) -> None:
    agent = make(name)
    for layer in noisy_layers(agent.online).values():
        layer.weight_sigma.data.fill_(1e6)  # any noise would show
    plain = agent.evaluation_policy("off", "eval 1")
    x = np.repeat(observations(1), 500, axis=0)
    with noise_off(agent.online), torch.no_grad():
        pi = log_policy(agent.online(torch.from_numpy(x[:1]))[0])[0].exp().double().numpy()
    counts = np.bincount(plain.act(x), minlength=3)
    assert (np.abs(counts - 500 * pi) < 4 * np.sqrt(500 * pi * (1 - pi))).all()


def test_an_evaluation_plays_the_latest_weights() -> None:
    agent = make("a3c")
    policy = agent.evaluation_policy("off", "eval 1")
    agent.parameters.zero_()
    agent.online.get_parameter("policy.bias").data[2] = 100.0
    assert policy.act(observations(4)).tolist() == [2, 2, 2, 2]


def test_an_evaluation_forgets_at_the_beginning_of_an_episode() -> None:
    agent = make("a3c", "recurrent=true")
    policy, fresh = (agent.evaluation_policy("off", "eval 1") for _ in range(2))
    policy.act(observations(1, seed=3))
    policy.begin_episode()
    policy.act(observations(1))
    fresh.act(observations(1))
    assert policy._memory is not None
    assert fresh._memory is not None
    assert torch.equal(policy._memory[0], fresh._memory[0])


def test_the_same_role_plays_the_same_and_another_differs() -> None:
    agent = make()
    x = observations(40)
    first, again, other = (
        agent.evaluation_policy("on", role).act(x) for role in ("eval 1", "eval 1", "eval 2")
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_agent_can_be_copied_in_the_midst_of_a_roll_out() -> None:
    agent = make()
    agent.begin_rollout()
    agent.act(observations(1))
    network = copy.deepcopy(agent.online)
    assert same(held_noise(network), held_noise(agent.online))


@pytest.mark.parametrize(
    ("torso", "features", "hidden"), [("auto", 64 * 7 * 7, 512), ("a3c", 32 * 9 * 9, 256)]
)
@pytest.mark.parametrize("name", ACTOR_CRITIC_AGENTS)
def test_screens_of_bytes_are_acted_on_and_learnt_from(
    name: str, torso: str, features: int, hidden: int
) -> None:
    settings = ["envs_per_worker=2", f"network.torso={torso}"]
    config = build_config(name, SCREEN.name, settings=settings)
    assert isinstance(config, ActorCriticConfig)
    agent = ActorCriticAgent(config, SCREEN)
    rng = np.random.default_rng(0)
    observation = rng.integers(256, size=(3, 2, 4, 84, 84), dtype=np.uint8)
    agent.begin_rollout()
    action = np.stack([agent.act(observation[t]) for t in range(2)])
    learnt = agent.learn(
        Rollout(
            observation,
            action,
            np.ones((2, 2), np.float32),
            np.full((2, 2), 0.99, np.float32),
            np.zeros((3, 2), bool),
            np.zeros((2, 2), bool),
        )
    )
    assert learnt.finite
    assert agent.online.torso.features == features
    assert agent.config.network.hidden == (hidden,)
