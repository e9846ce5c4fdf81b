"""Behaviours that Stable-Baselines3 tests for its own policies, here with the noisy ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("sb3_contrib", reason="pip install 'noisynet[sb3]'")

from sb3_contrib import QRDQN, TRPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, TD3
from stable_baselines3.common.envs import IdentityEnv, IdentityEnvBox
from stable_baselines3.common.evaluation import evaluate_policy

from .sb3_models import POLICIES, make, parallel

pytestmark = pytest.mark.slow  # all together; the other files test the integration itself

POLICY = "NoisyMlpPolicy"
OFF_POLICY = [DQN, QRDQN, DDPG, TD3]


def env_of(algorithm: Any) -> str:
    return "Pendulum-v1" if issubclass(algorithm, TD3) else "CartPole-v1"


# Running: tests/test_run.py of the library


@pytest.mark.parametrize("algorithm", [PPO, TRPO])
def test_a_truncated_mini_batch_is_warned_of(algorithm: Any) -> None:
    with pytest.warns(UserWarning, match="there will be a truncated mini-batch of size 1"):
        model = make(algorithm, POLICY, "Pendulum-v1", n_steps=64, batch_size=63)
    model.learn(64)
    value_loss = model.logger.name_to_value["train/value_loss"]
    assert value_loss > 0
    assert np.isfinite(value_loss)


@pytest.mark.parametrize("algorithm", [PPO, TRPO])
def test_a_rollout_of_one_step_raises_if_advantages_are_normalised(algorithm: Any) -> None:
    with pytest.raises(AssertionError, match="must be greater than 1"):
        make(algorithm, POLICY, n_steps=1)
    if algorithm is PPO:
        make(PPO, POLICY, n_steps=1, batch_size=1, normalize_advantage=False).learn(4)


@pytest.mark.parametrize("algorithm", [A2C, PPO, TRPO])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_models_run_with_and_without_normalised_advantages(
    algorithm: Any, normalised: bool, env: str
) -> None:
    model = make(algorithm, POLICY, env, n_steps=32, normalize_advantage=normalised)
    model.learn(64)
    assert model.num_timesteps == 64
    assert all(torch.isfinite(parameter).all() for parameter in model.policy.parameters())


def test_a_negative_clip_range_of_the_values_raises() -> None:
    with pytest.raises(AssertionError, match="`clip_range_vf` must be positive"):
        make(PPO, POLICY, clip_range_vf=-0.2)
    make(PPO, POLICY, clip_range_vf=0.2).learn(64)


@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_as_many_updates_as_transitions_are_done_if_asked(algorithm: Any) -> None:
    env = parallel(2, env_of(algorithm))
    model = make(algorithm, POLICY, env, learning_starts=0, train_freq=3, gradient_steps=-1)
    model.learn(3)
    assert model.logger.name_to_value["train/n_updates"] == 3 * 2


@pytest.mark.parametrize("train_freq", [4, (4, "step"), (1, "episode")])
def test_updates_follow_steps_or_episodes(train_freq: Any, tmp_path: Path) -> None:
    model = make(TD3, POLICY, train_freq=train_freq)
    model.learn(60)
    model.save(tmp_path / "model")
    again = TD3.load(tmp_path / "model", env=model.get_env())
    again.learn(60)
    assert again.train_freq == model.train_freq


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_critics_is_as_asked(count: int) -> None:
    arguments = {"n_critics": count, "noisy_critics": True}
    model = make(TD3, POLICY, policy_kwargs=arguments)
    model.learn(40)
    obs, actions = torch.zeros(5, 3), torch.zeros(5, 1)
    assert len(model.critic(obs, actions)) == count


# Learning: tests/test_identity.py


@pytest.mark.slow
def test_discrete_observations_are_repeated_as_actions() -> None:
    options = {"gamma": 0.4, "learning_rate": 0.002, "policy_kwargs": {"ortho_init": True}}
    model = make(A2C, POLICY, IdentityEnv(4), **options).learn(1_200)
    mean_return, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=20)
    assert mean_return > 90  # 100 with each of eight seeds


@pytest.mark.parametrize("algorithm", [DDPG, TD3])
def test_continuous_observations_are_repeated_as_actions(algorithm: Any) -> None:
    options = {"learning_starts": 100, "batch_size": 64, "policy_kwargs": {"net_arch": [64, 64]}}
    model = make(algorithm, POLICY, IdentityEnvBox(eps=0.5), gamma=0.95, **options).learn(400)
    mean_return, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=20)
    assert mean_return > 90


# Predicting: tests/test_predict.py


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("algorithm", "policy"), POLICIES)
def test_predictions_have_the_shape_of_the_action_space(
    algorithm: Any, policy: str, deterministic: bool
) -> None:
    model = make(algorithm, policy)
    env = gymnasium.make(env_of(algorithm))
    action, _ = model.predict(env.reset(seed=0)[0], deterministic=deterministic)
    assert isinstance(action, np.ndarray)
    assert env.action_space.contains(action.item() if action.ndim == 0 else action)
    several = parallel(2, env_of(algorithm)).reset()
    assert isinstance(several, np.ndarray)
    actions, _ = model.predict(several, deterministic=deterministic)
    assert actions.shape == (2, *action.shape)


def test_the_result_of_a_reset_is_no_observation() -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match="mixing Gym API"):
        make(PPO, POLICY, env).predict(env.reset())


# Determinism: tests/test_deterministic.py


@pytest.mark.parametrize(("algorithm", "policy"), POLICIES)
def test_training_and_predictions_are_reproducible(algorithm: Any, policy: str) -> None:
    results = []
    for _ in range(2):
        model = make(algorithm, policy)
        model.learn(96)
        env = model.get_env()
        observation, taken, rewards = env.reset(), [], []
        for _ in range(20):
            action, _ = model.predict(observation, deterministic=False)
            observation, reward, _, _ = env.step(action)
            taken.append(action)
            rewards.append(reward)
        results.append((np.array(taken), np.array(rewards), model.get_parameters()["policy"]))
    first, second = results
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])
    assert all(torch.equal(value, second[2][name]) for name, value in first[2].items())


# Saving and loading: tests/test_save_load.py


@pytest.mark.parametrize(("algorithm", "policy"), POLICIES)
def test_parameters_are_set_exactly_or_in_part(algorithm: Any, policy: str) -> None:
    model = make(algorithm, policy)
    parameters = model.get_parameters()
    with pytest.raises(ValueError, match="unknown"):
        model.set_parameters(parameters | {"unknown": {}})
    weights = {name: value.clone() for name, value in parameters["policy"].items()}
    last = list(weights)[-1]
    partial = {name: torch.rand_like(value) for name, value in weights.items() if name != last}
    with pytest.raises(RuntimeError, match=f'Missing key.*"{last}"'):
        model.set_parameters(parameters | {"policy": partial}, exact_match=True)
    model.set_parameters(parameters | {"policy": partial}, exact_match=False)
    now = model.get_parameters()["policy"]
    changed = {name for name, value in now.items() if not torch.equal(value, weights[name])}
    assert changed == set(partial)


@pytest.mark.parametrize(("algorithm", "policy"), POLICIES)
def test_a_model_is_loaded_with_another_number_of_environments(
    algorithm: Any, policy: str, tmp_path: Path
) -> None:
    make(algorithm, policy).learn(40).save(tmp_path / "model")
    again = algorithm.load(tmp_path / "model", env=parallel(2, env_of(algorithm)))
    again.learn(128)
    assert again.n_envs == 2
    assert again.num_timesteps >= 128


@pytest.mark.parametrize("algorithm", [A2C, TRPO, TD3])
def test_the_environment_is_replaced_by_one_of_the_same_number(algorithm: Any) -> None:
    model = make(algorithm, POLICY)
    model.learn(32)
    model.set_env(parallel(1, env_of(algorithm)), force_reset=True)
    assert model._last_obs is None
    model.learn(32)
    with pytest.raises(AssertionError, match="number of environments"):
        model.set_env(parallel(2, env_of(algorithm)))


@pytest.mark.parametrize(("algorithm", "policy"), POLICIES)
def test_settings_are_left_out_and_replaced(algorithm: Any, policy: str, tmp_path: Path) -> None:
    make(algorithm, policy, verbose=2).save(tmp_path / "model", exclude=["verbose"])
    changed = {"learning_rate": 2e-5, "unknown": 1.0}
    again = algorithm.load(tmp_path / "model", custom_objects=changed)
    assert again.verbose == 0
    assert again.learning_rate == 2e-5
    assert not hasattr(again, "unknown")


@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_the_replay_buffer_is_saved_and_loaded(algorithm: Any, tmp_path: Path) -> None:
    model = make(algorithm, POLICY)
    model.learn(60)
    before = model.replay_buffer
    model.save_replay_buffer(tmp_path / "replay")
    model.replay_buffer = None
    model.load_replay_buffer(tmp_path / "replay")
    assert np.array_equal(before.observations, model.replay_buffer.observations)
    assert np.array_equal(before.actions, model.replay_buffer.actions)
    model.learn(32, reset_num_timesteps=False)
    assert model.num_timesteps == 92
