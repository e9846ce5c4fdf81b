"""Environments in stable-baselines3's own wrappers."""

from __future__ import annotations

import gymnasium
from environments import ENVIRONMENTS, every_frame
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack


def frame() -> gymnasium.Env:
    """Pong as Nature DQN plays it: a step is 4 frames, an observation one of 84 × 84 bytes."""
    return AtariWrapper(every_frame(), terminal_on_life_loss=False)


def make(name: str, count: int = 1) -> VecEnv:
    """So many environments by our name; Atari's last 4 observations are stacked.

    All are in this process: with two of them one process for each was slower, and Gymnasium's
    preprocessing was no faster.
    """
    if name == "atari/pong":
        return VecFrameStack(DummyVecEnv([frame] * count), 4)
    return DummyVecEnv([ENVIRONMENTS[name]] * count)
