from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from noisynet import record_noise
from noisynet.audit import NoiseLog
from noisynet.layers import held_noise, noisy_layers

pytest.importorskip("sb3_contrib", reason="pip install 'noisynet[sb3]'")

from sb3_contrib import TRPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.envs import (
    IdentityEnv,
    IdentityEnvMultiBinary,
    IdentityEnvMultiDiscrete,
)
from stable_baselines3.common.vec_env import DummyVecEnv

from .sb3_models import make, parallel

POLICY = "NoisyMlpPolicy"


def phases(log: NoiseLog) -> list[tuple[bool, set[int]]]:
    """Alternating roll-outs and updates: which samples the first layer used."""
    layer = log.events[0].layer
    found: list[tuple[bool, set[int]]] = []
    for event in log.select(layer=layer):
        if not found or found[-1][0] != event.with_gradient:
            found.append((event.with_gradient, set()))
        found[-1][1].add(event.sample_index)
    return found


@pytest.mark.parametrize("noise", ["independent", "factorised"])
@pytest.mark.parametrize(
    ("algorithm", "options"), [(A2C, {}), (PPO, {"n_steps": 16, "batch_size": 8, "n_epochs": 3})]
)
def test_one_sample_is_held_from_a_rollout_to_its_last_update(
    algorithm: Any, options: Any, noise: str
) -> None:
    model = make(algorithm, POLICY, policy_kwargs={"noise": noise}, **options)
    with record_noise(model.policy) as log:
        model.learn(5 * model.n_steps)
    found = phases(log)
    assert [learning for learning, _ in found] == [False, True] * 5
    assert [used for _, used in found] == [{1 + i // 2} for i in range(10)]


@pytest.mark.parametrize("env", [IdentityEnv, IdentityEnvMultiDiscrete, IdentityEnvMultiBinary])
@pytest.mark.parametrize("algorithm", [A2C, PPO])
def test_without_noise_training_is_the_librarys_bit_for_bit(algorithm: Any, env: Any) -> None:
    plain = make(algorithm, "MlpPolicy", env(4), gamma=0.4)
    frozen = {"ortho_init": True, "sigma0": 0.0}
    noisy = make(algorithm, POLICY, env(4), gamma=0.4, policy_kwargs=frozen)
    noisy.policy.begin_rollout = lambda _: None  # noise would advance torch's stream
    means = {name.replace("_mu", ""): p for name, p in noisy.policy.named_parameters()}
    initial = {name: value.clone() for name, value in plain.policy.state_dict().items()}
    for name, parameter in means.items():
        parameter.requires_grad_("sigma" not in name)
        if "sigma" not in name:
            parameter.data.copy_(initial[name])
    for model in (plain, noisy):
        model.set_random_seed(7)
        for space in (model.get_env().envs[0].observation_space, model.action_space):
            space.seed(7)
        model.learn(128)
    for name, expected in plain.policy.state_dict().items():
        assert torch.equal(means[name], expected), name
        assert not torch.equal(expected, initial[name]), name


@pytest.mark.parametrize("noise", ["independent", "factorised"])
@pytest.mark.parametrize(
    ("algorithm", "options"), [(A2C, {}), (PPO, {"n_steps": 8, "batch_size": 8, "n_epochs": 2})]
)
def test_each_row_is_learnt_with_the_noise_of_its_environment(
    algorithm: Any, options: Any, noise: str
) -> None:
    arguments = {"policy_kwargs": {"noise": noise}, **options}
    model = make(algorithm, POLICY, parallel(3), **arguments)
    ratios: list[Tensor] = []
    buffer, evaluate = model.rollout_buffer, model.policy.evaluate_actions

    def evaluate_and_compare(obs: Any, actions: Any) -> Any:
        values, log_prob, entropy = evaluate(obs, actions)
        if not ratios or algorithm is A2C:  # before the first update the ratio π/π_old is 1
            rows = [int(np.argmin(np.abs(buffer.observations - o).sum(1))) for o in obs.numpy()]
            old = torch.from_numpy(buffer.log_probs[rows].flatten())
            ratios.append((log_prob - old).exp())
        return values, log_prob, entropy

    model.policy.evaluate_actions = evaluate_and_compare
    model.learn(3 * model.n_steps)
    assert ratios
    assert torch.allclose(torch.cat(ratios), torch.ones(1), atol=1e-4)
    samples = held_noise(model.policy)
    assert all(len(sample) == 3 for sample in samples.values())


@pytest.mark.parametrize("noise", ["independent", "factorised"])
@pytest.mark.parametrize("count", [1, 3])
def test_trpo_holds_one_sample_from_a_rollout_to_its_last_critic_update(
    noise: str, count: int
) -> None:
    model = make(TRPO, POLICY, parallel(count), n_steps=16, policy_kwargs={"noise": noise})
    collect, train = model.collect_rollouts, model.train
    samples: list[dict[str, Tensor]] = []

    def collect_and_note(*arguments: Any, **keywords: Any) -> Any:
        log.label = "roll-out"
        return collect(*arguments, **keywords)

    def train_and_note() -> None:
        samples.append(held_noise(model.policy))
        log.label = "update"
        train()
        assert all(torch.equal(x, held_noise(model.policy)[k]) for k, x in samples[-1].items())

    model.collect_rollouts, model.train = collect_and_note, train_and_note
    with record_noise(model.policy) as log:
        model.learn(3 * 16 * count)
    assert all(event.noisy for event in log.events)
    assert not torch.equal(*(next(iter(held.values())) for held in samples[:2]))
    if count == 1:
        counted = phases_by_label(log)
        assert counted == [(label, {number}) for number in (1, 2, 3) for label in LABELS]


LABELS = ("roll-out", "update")


def phases_by_label(log: NoiseLog) -> list[tuple[str, set[int]]]:
    """Alternating roll-outs and updates: which samples each layer used."""
    found: list[tuple[str, set[int]]] = []
    for event in log.events:
        if not found or found[-1][0] != event.label:
            found.append((event.label, set()))
        found[-1][1].add(event.sample_index)
    return found


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("noise", ["independent", "factorised"])
@pytest.mark.parametrize("factor", [1, 3])
def test_trpo_learns_each_row_with_the_noise_of_its_environment(
    env: str, noise: str, factor: int
) -> None:
    options = {"n_steps": 8, "batch_size": 6, "sub_sampling_factor": factor}
    model = make(TRPO, POLICY, parallel(3, env), policy_kwargs={"noise": noise}, **options)
    policy, buffer = model.policy, model.rollout_buffer
    distribution_of, values_of = policy.get_distribution, policy.predict_values
    compared = {"distribution": 0, "values": 0}

    def rows_of(obs: Tensor) -> list[int]:
        flat = buffer.observations.reshape(-1, obs.shape[1])
        return [int(np.argmin(np.abs(flat - row).sum(1))) for row in obs.numpy()]

    def get_distribution(obs: Any) -> Any:
        distribution = distribution_of(obs)
        if policy.training and not torch.is_grad_enabled() and not compared["distribution"]:
            compared["distribution"] = len(obs)  # before the step, the ratio π/π_old is 1
            rows = rows_of(obs)
            actions = torch.from_numpy(buffer.actions.reshape(24, -1)[rows]).float()
            actions = actions.flatten() if env == "CartPole-v1" else actions
            old = torch.from_numpy(buffer.log_probs.reshape(-1)[rows])
            assert torch.allclose(distribution.log_prob(actions), old, atol=1e-4)
        return distribution

    def predict_values(obs: Any) -> Any:
        values = values_of(obs)
        if torch.is_grad_enabled() and not compared["values"]:  # before the critic's first update
            compared["values"] = len(obs)
            old = torch.from_numpy(buffer.values.reshape(-1)[rows_of(obs)])
            assert torch.allclose(values.flatten(), old, atol=1e-4)
        return values

    policy.get_distribution, policy.predict_values = get_distribution, predict_values
    model.learn(24)
    assert compared == {"distribution": 24 // factor, "values": 6}
    assert policy._batch_environments is None


@pytest.mark.parametrize("ortho_init", [True, False])
def test_means_are_initialised_as_asked(ortho_init: bool) -> None:
    policy = make(A2C, POLICY, policy_kwargs={"ortho_init": ortho_init}).policy
    last, hidden = policy.action_net.weight_mu, policy.mlp_extractor.policy_net[2].weight_mu
    gram = hidden @ hidden.T
    orthogonal = torch.allclose(gram, gram[0, 0] * torch.eye(64), atol=1e-4)
    assert orthogonal is ortho_init
    assert (last.norm(dim=1) < 0.011).all() == ortho_init  # the library's gain is 0.01
    assert {layer.sigma0 for layer in noisy_layers(policy).values()} == {0.017}
    assert policy._get_constructor_parameters()["ortho_init"] is ortho_init


def test_actions_of_unknown_environments_cannot_be_evaluated() -> None:
    model = make(A2C, POLICY, parallel(3))
    model.learn(15)
    obs, actions = torch.zeros(6, 4), torch.zeros(6, dtype=torch.long)
    with pytest.raises(RuntimeError, match="environments of 6 rows, got none: call set_batch_env"):
        model.policy.evaluate_actions(obs, actions)
    model.policy.set_batch_environments(torch.zeros(5, dtype=torch.long))
    with pytest.raises(RuntimeError, match="environments of 6 rows, got 5"):
        model.policy.evaluate_actions(obs, actions)


def test_a_prediction_during_a_rollout_does_not_change_its_noise() -> None:
    model = make(A2C, POLICY)
    model.learn(5)
    before = held_noise(model.policy)
    with record_noise(model.policy) as log:
        model.predict(model.observation_space.sample(), deterministic=True)
        assert not any(event.noisy for event in log.events)
        model.predict(np.stack([model.observation_space.sample()] * 2), deterministic=False)
    assert all(event.noisy for event in log.events[-2:])
    after = held_noise(model.policy)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_truncated_episodes_of_parallel_environments_are_bootstrapped() -> None:
    def short() -> Any:
        return gymnasium.make("CartPole-v1", max_episode_steps=3)

    model = make(A2C, POLICY, DummyVecEnv([short] * 2))
    model.learn(40)
    assert model.num_timesteps == 40


def test_a_single_observation_uses_the_mean_weights_after_parallel_environments() -> None:
    model = make(A2C, POLICY, parallel(3))
    model.learn(15)
    with record_noise(model.policy) as log:
        distribution = model.policy.get_distribution(torch.zeros(1, 4))
    assert distribution.distribution.probs.shape == (1, 2)
    assert not any(event.noisy for event in log.events)


def test_each_row_of_a_stochastic_prediction_has_its_own_sample() -> None:
    model = make(A2C, POLICY)
    with record_noise(model.policy) as log:
        model.predict(np.zeros((5, 4), np.float32), deterministic=False)
    layer = log.events[0].layer
    assert len({event.sample_index for event in log.select(layer=layer)}) == 5


def test_state_dependent_exploration_raises() -> None:
    with pytest.raises(ValueError, match="expected use_sde=False"):
        make(A2C, POLICY, "Pendulum-v1", use_sde=True)
