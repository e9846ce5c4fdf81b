"""Stable-Baselines3 models and environments for the tests."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from torch import Tensor, nn

from noisynet.audit import NoiseLog
from noisynet.layers import NoisyLinear

pytest.importorskip("stable_baselines3", reason="pip install 'noisynet[sb3]'")
pytest.importorskip("sb3_contrib", reason="pip install 'noisynet[sb3]'")

from sb3_contrib import QRDQN, TRPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, TD3
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.td3.policies import TD3Policy

import noisynet.integrations.sb3  # noqa: F401  # extends the algorithms

POLICIES: list[Any] = [
    (DQN, "NoisyMlpPolicy"),
    (DQN, "NoisyDuelingMlpPolicy"),
    (QRDQN, "NoisyMlpPolicy"),
    (A2C, "NoisyMlpPolicy"),
    (PPO, "NoisyMlpPolicy"),
    (TRPO, "NoisyMlpPolicy"),
    (DDPG, "NoisyMlpPolicy"),
    (TD3, "NoisyMlpPolicy"),
]

_OPTIONS: dict[Any, dict[str, Any]] = {
    A2C: {},
    PPO: {"n_steps": 32, "batch_size": 16, "n_epochs": 2},
    TRPO: {"n_steps": 32, "batch_size": 16, "n_critic_updates": 2},
    DDPG: {"learning_starts": 20, "buffer_size": 1_000, "batch_size": 32},
    TD3: {"learning_starts": 20, "buffer_size": 1_000, "batch_size": 32},
}
_VALUE_OPTIONS = {"learning_starts": 20, "target_update_interval": 50, "buffer_size": 1_000}


def make(algorithm: Any, policy: Any, env: Any = None, **options: Any) -> Any:
    continuous = issubclass(algorithm, TD3)
    env = ("Pendulum-v1" if continuous else "CartPole-v1") if env is None else env
    if continuous:
        options["policy_kwargs"] = {"net_arch": [32], **options.get("policy_kwargs", {})}
    defaults = _OPTIONS.get(algorithm, _VALUE_OPTIONS)
    return algorithm(policy, env, seed=0, device="cpu", **(defaults | options))


def parallel(count: int, env: str = "CartPole-v1") -> DummyVecEnv:
    return DummyVecEnv([lambda: gymnasium.make(env)] * count)


def networks(model: Any) -> dict[str, nn.Module]:
    policy = model.policy
    if isinstance(model, DQN):
        return {"online": policy.q_net, "target": policy.q_net_target}
    return {"online": policy.quantile_net, "target": policy.quantile_net_target}


def passes(log: NoiseLog, **selected: Any) -> tuple[int, int, int]:
    """Passes, noisy passes and distinct noise samples per layer."""
    events = log.select(**selected)
    layers = {event.layer for event in events}
    samples = {(event.layer, event.sample_index) for event in events if event.noisy}
    noisy = sum(event.noisy for event in events)
    assert all(len(found) % len(layers) == 0 for found in (events, samples))
    return len(events) // len(layers), noisy // len(layers), len(samples) // len(layers)


class Signs(gymnasium.Env[Any, Any]):
    """Episodes of 8 steps: one of four signs is shown; the matching action has reward 1."""

    observation_space = spaces.Box(0, 1, (4,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(int(action) == self.sign)
        self.steps += 1
        return self.show(), reward, self.steps == 8, False, {}

    def show(self) -> Any:
        self.sign = int(self.np_random.integers(4))
        return np.eye(4, dtype=np.float32)[self.sign]


class Images(gymnasium.Env[Any, Any]):
    """Random images of 36 × 36 pixels."""

    observation_space: spaces.Space[Any] = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


class SteeredImages(Images):
    """`Images` with a continuous action."""

    action_space: Any = spaces.Box(-1, 1, (2,))


class SmallImages(Images):
    observation_space = spaces.Box(0, 255, (7, 7, 3), np.uint8)


class Dictionaries(Images):
    observation_space = spaces.Dict(
        {"position": spaces.Box(-1, 1, (3,)), "velocity": spaces.Box(-1, 1, (2,))}
    )


class GatedLinear(NoisyLinear):
    """The common mistake: noise in train mode only."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.resample_noise()
            return super().forward(x)
        return nn.functional.linear(x, self.weight_mu, self.bias_mu)


def gate_layers(network: Any) -> None:
    for index, layer in enumerate(network):
        if isinstance(layer, nn.Linear):
            network[index] = GatedLinear(layer.in_features, layer.out_features)


class GatedPolicy(DQNPolicy):
    def make_q_net(self) -> Any:
        network = super().make_q_net()
        gate_layers(network.q_net)
        return network


class GatedTD3Policy(TD3Policy):
    def make_actor(self, features_extractor: Any = None) -> Any:
        actor = super().make_actor(features_extractor)
        gate_layers(actor.mu)
        return actor
