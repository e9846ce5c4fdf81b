"""stable-baselines3's DQN: sb3_dqn.py ENVIRONMENT UPDATE_PERIOD WARM_UP."""

from __future__ import annotations

import sys

import gymnasium
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from turn import Turns

environment, update_period, warm_up = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class TakeTurns(BaseCallback):
    """Counts the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(warm_up + 200)

    def _on_step(self) -> bool:
        return self.turns.step()


def breakout() -> gymnasium.Env:
    """MinAtar's, with channels first."""
    import minatar.gym
    import numpy as np
    from gymnasium.wrappers import TransformObservation

    minatar.gym.register_envs()
    game = gymnasium.make("MinAtar/Breakout-v0")
    height, width, channels = game.observation_space.shape
    space = gymnasium.spaces.Box(0, 1, (channels, height, width), np.float32)
    return TransformObservation(
        game, lambda seen: seen.transpose(2, 0, 1).astype(np.float32), space
    )


def minatar_policy() -> dict:
    """One convolution of 16 and a hidden layer of 128, as Young & Tian have it."""
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from torch import nn

    class Torso(BaseFeaturesExtractor):
        def __init__(self, space: gymnasium.spaces.Box) -> None:
            super().__init__(space, 1024)
            self.layers = nn.Sequential(nn.Conv2d(space.shape[0], 16, 3), nn.ReLU(), nn.Flatten())

        def forward(self, seen: torch.Tensor) -> torch.Tensor:
            return self.layers(seen)

    return {"features_extractor_class": Torso, "net_arch": [128], "normalize_images": False}


arguments = {
    "buffer_size": 20_000,
    "learning_starts": warm_up,
    "batch_size": 32,
    "train_freq": update_period,
    "gradient_steps": 1,
    "learning_rate": 1e-4,
    "exploration_fraction": 1e-6,  # of all steps: 1,000 of them, as the others
    "exploration_final_eps": 0.1,
    "device": "cpu",
    "seed": 0,
}
if environment == "atari/pong":
    from sb3_pong import games

    model = DQN(
        "CnnPolicy",
        games(1),
        target_update_interval=10_000,
        **arguments,
    )
else:
    model = DQN(
        "MlpPolicy",
        DummyVecEnv([breakout]),
        target_update_interval=1_000,
        policy_kwargs=minatar_policy(),
        **arguments,
    )
model.learn(10**9, callback=TakeTurns())
