"""Tianshou algorithms with our noisy layers and with the library's own."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

pytest.importorskip("tianshou", reason="pip install 'noisynet[tianshou]'")

from tianshou.algorithm import C51, DQN, QRDQN, RainbowDQN
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import NoisyLinear as TianshouNoisyLinear
from tianshou.utils.torch_utils import policy_within_training_step

from noisynet.audit import NoiseLog, record_noise
from noisynet.integrations.tianshou import (
    NoisyC51Policy,
    NoisyPolicy,
    NoisyQNetwork,
    NoisyQRDQNPolicy,
)

ENVIRONMENTS = 3
ACTIONS = gym.spaces.Discrete(2)


def plain(**options: Any) -> Net:
    return Net(state_shape=4, action_shape=2, hidden_sizes=(32,), **options)


def tianshou_network(**options: Any) -> Net:
    return plain(linear_layer=TianshouNoisyLinear, **options)


def dqn(policy: Any, **options: Any) -> DQN[Any]:
    return DQN(policy=policy, optim=AdamOptimizerFactory(), target_update_freq=10, **options)


def noisy_dqn(**options: Any) -> DQN[Any]:
    return dqn(NoisyPolicy(model=NoisyQNetwork(plain(), **options), action_space=ACTIONS))


def tianshou_dqn() -> DQN[Any]:
    return dqn(DiscreteQLearningPolicy(model=tianshou_network(), action_space=ACTIONS))


def noisy_c51(kind: type[C51] = C51) -> C51:
    network = NoisyQNetwork(plain(num_atoms=11, softmax=True))
    policy = NoisyC51Policy(model=network, action_space=ACTIONS, num_atoms=11, v_min=0, v_max=50)
    return kind(policy=policy, optim=AdamOptimizerFactory(), target_update_freq=10)


def noisy_rainbow() -> C51:
    return noisy_c51(RainbowDQN)


def tianshou_rainbow() -> C51:
    network = tianshou_network(num_atoms=11, softmax=True)
    policy = C51Policy(model=network, action_space=ACTIONS, num_atoms=11, v_min=0, v_max=50)
    return RainbowDQN(policy=policy, optim=AdamOptimizerFactory(), target_update_freq=10)


def noisy_qrdqn() -> QRDQN[Any]:
    policy = NoisyQRDQNPolicy(model=NoisyQNetwork(plain(num_atoms=8)), action_space=ACTIONS)
    return QRDQN(
        policy=policy, optim=AdamOptimizerFactory(), num_quantiles=8, target_update_freq=10
    )


def collector(agent: Any, count: int = ENVIRONMENTS, seed: int = 0) -> Collector[Any]:
    environments = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(count)])
    environments.seed(seed)
    made: Collector[Any] = Collector(
        agent, environments, VectorReplayBuffer(2_000 * count, count), exploration_noise=True
    )
    made.reset()
    return made


def networks(algorithm: Any) -> dict[str, nn.Module]:
    target = algorithm.model_old
    return {"online": algorithm.policy.model, "target": getattr(target, "module", target)}


def train_recorded(algorithm: Any, steps: int = 40) -> NoiseLog:
    """Collect, update and test as the library's trainer does, each with its label."""
    np.random.seed(0)
    training, testing = collector(algorithm), collector(algorithm, 2, seed=10)
    with record_noise(networks(algorithm)) as log:
        for _ in range(steps):
            with policy_within_training_step(algorithm.policy):
                log.label = "act"
                training.collect(n_step=ENVIRONMENTS)
                log.label = "learn"
                algorithm.update(training.buffer, 32)
        log.label = "test"
        testing.collect(n_step=20)
    return log


def online_counts(log: NoiseLog) -> tuple[int, int, int]:
    """Passes, noisy passes and distinct samples of the online network, without the selector."""
    events = log.select("learn", "online", with_gradient=True)
    samples = {(event.layer, event.sample_index) for event in events if event.noisy}
    return len(events), sum(event.noisy for event in events), len(samples)
