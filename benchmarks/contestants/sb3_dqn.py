"""stable-baselines3's DQN: sb3_dqn.py ENVIRONMENT UPDATE_PERIOD WARM_UP [THREADS]."""

from __future__ import annotations

import sys

import gymnasium
import torch
from sb3_environments import make
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn
from turn import Turns

environment, update_period, warm_up = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if len(sys.argv) > 4:
    torch.set_num_threads(int(sys.argv[4]))


class TakeTurns(BaseCallback):
    """Counts the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(warm_up + 200)

    def _on_step(self) -> bool:
        return self.turns.step()


class MinAtarTorso(BaseFeaturesExtractor):
    """One convolution of 16 filters, as in Young & Tian 2019."""

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        super().__init__(space, 1024)
        self.layers = nn.Sequential(nn.Conv2d(space.shape[0], 16, 3), nn.ReLU(), nn.Flatten())

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The inputs of the hidden layer."""
        return self.layers(observation)


# The networks and settings of our presets, with its own optimiser, Adam.
SETTINGS = {
    "atari/pong": {
        "policy": "CnnPolicy",
        "learning_rate": 1e-4,
        "target_update_interval": 10_000,
    },
    "minatar/breakout": {
        "policy": "MlpPolicy",
        "learning_rate": 2.5e-4,
        "target_update_interval": 1_000,
        "policy_kwargs": {
            "features_extractor_class": MinAtarTorso,
            "net_arch": [128],
            "normalize_images": False,
        },
    },
    "gym/CartPole-v1": {
        "policy": "MlpPolicy",
        "learning_rate": 1e-3,
        "target_update_interval": 100,
        "policy_kwargs": {"net_arch": [64, 64]},
    },
}
model = DQN(
    env=make(environment),
    buffer_size=20_000,
    learning_starts=warm_up,
    batch_size=32,
    train_freq=update_period,
    gradient_steps=1,
    exploration_fraction=1e-6,  # of all steps: 1,000 of them
    exploration_final_eps=0.1,
    device="cpu",
    seed=0,
    **SETTINGS[environment],
)
model.learn(10**9, callback=TakeTurns())
