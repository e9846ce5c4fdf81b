"""AgileRL's NoisyLinear in its RainbowDQN with the default network."""

from __future__ import annotations

from importlib import metadata

import gymnasium
import numpy as np
import torch
from agilerl.algorithms import RainbowDQN
from agilerl.modules import NoisyLinear
from audit_entry import audit_layer, hand_over
from tensordict import TensorDict

from noisynet.audit import audit_network

BATCH = 64
games = gymnasium.make_vec("CartPole-v1", num_envs=1)
agent = RainbowDQN(games.single_observation_space, games.single_action_space, batch_size=BATCH)


data = np.random.default_rng(0)


def observations(count: int) -> np.ndarray:
    """Random observations."""
    return data.standard_normal((count, 4), dtype=np.float32)


def act() -> None:
    """Take one action."""
    agent.get_action(observations(1))


def learn() -> None:
    """Make one update."""
    batch = {
        "obs": torch.from_numpy(observations(BATCH)),
        "action": torch.randint(2, (BATCH, 1)),
        "reward": torch.randn(BATCH, 1),
        "next_obs": torch.from_numpy(observations(BATCH)),
        "done": torch.zeros(BATCH, 1),
    }
    agent.learn(TensorDict(batch, [BATCH]))


report = audit_network(
    agent.actor,
    target=agent.actor_target,
    act=act,
    learn=learn,
    evaluate=lambda: agent.test(games, max_steps=5, loop=1),
    sync=agent.soft_update,
    contract="update",
    noise="factorised",
)
hand_over(
    metadata.version("agilerl"),
    layer=(
        "`NoisyLinear`",
        "resampled by `reset_noise`",
        audit_layer(NoisyLinear, noise="factorised"),
    ),
    agent=(
        "`RainbowDQN`",
        "acts by `get_action`, learns by `learn`, is evaluated by `test`; noise is due after every "
        "update",
        report,
    ),
)
