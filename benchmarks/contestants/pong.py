"""The game of the contestants that play atari/pong through Gymnasium."""

from __future__ import annotations

import ale_py
import gymnasium
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation

gymnasium.register_envs(ale_py)


def every_frame() -> gymnasium.Env:
    """The emulator's frames and actions, each action taken once, for a peer's own wrappers."""
    return gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)


def pong() -> gymnasium.Env:
    """The game as Nature DQN plays it: a step is 4 frames, an observation [4, 84, 84] bytes."""
    game = ClipReward(AtariPreprocessing(every_frame(), noop_max=30), -1.0, 1.0)
    return FrameStackObservation(game, 4)
