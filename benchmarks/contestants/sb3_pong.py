"""The game in stable-baselines3's own wrappers, for those that learn with it."""

from __future__ import annotations

import gymnasium
from pong import every_frame
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack


def game() -> gymnasium.Env:
    """The game as Nature DQN plays it: a step is 4 frames, an observation one of 84 × 84 bytes."""
    return AtariWrapper(every_frame(), terminal_on_life_loss=False)


def games(count: int) -> VecEnv:
    """Several, whose last 4 observations are stacked.

    All are in this process: with two of them one process for each was slower, and Gymnasium's
    preprocessing was no faster.
    """
    return VecFrameStack(DummyVecEnv([game] * count), 4)
