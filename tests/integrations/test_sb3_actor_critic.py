from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from noisynet import record_noise
from noisynet.audit import NoiseLog
from noisynet.layers import held_noise

pytest.importorskip("sb3_contrib", reason="pip install 'noisynet[sb3]'")

from stable_baselines3 import A2C, PPO
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
