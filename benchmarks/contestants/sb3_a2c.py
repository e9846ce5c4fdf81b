"""stable-baselines3's A2C on atari/pong: sb3_a2c.py ENVIRONMENTS COUNT; COUNT is a file."""

from __future__ import annotations

import os
import sys

import gymnasium
import numpy as np
import torch
from sb3_environments import make
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn


class Torso(BaseFeaturesExtractor):
    """A3C's network, as the others have it; the default is Nature DQN's, which is larger."""

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        super().__init__(space, 256)
        self.layers = nn.Sequential(
            *(nn.Conv2d(4, 16, 8, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(2592, 256), nn.ReLU()),
        )

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The features of both heads."""
        return self.layers(observation)


class CountSteps(BaseCallback):
    """Writes the steps of all environments to the file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.count = np.memmap(path, np.int64, "r+", shape=(1,))

    def _on_step(self) -> bool:
        self.count[0] = self.num_timesteps
        return True


environments, count_path = int(sys.argv[1]), sys.argv[2]
# A second thread makes 5 steps of 16 environments a fifth faster, those of 2 no faster.
torch.set_num_threads(1 if environments == 2 else os.cpu_count() or 1)
model = A2C(
    "CnnPolicy",
    make("atari/pong", environments),
    n_steps=5,
    ent_coef=0.01,
    policy_kwargs={"features_extractor_class": Torso, "net_arch": []},
    device="cpu",
    seed=0,
)
model.learn(10**9, callback=CountSteps(count_path))
