"""The environments of the contestants that play through Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import (
    AtariPreprocessing,
    ClipReward,
    FrameStackObservation,
    TransformObservation,
)


def every_frame() -> gymnasium.Env[Any, Any]:
    """Pong as the emulator shows it, without frame skip, for a peer's own wrappers."""
    import ale_py

    gymnasium.register_envs(ale_py)
    return gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)


def pong() -> gymnasium.Env[Any, Any]:
    """Pong as Nature DQN plays it: a step is 4 frames, an observation [4, 84, 84] bytes."""
    environment = ClipReward(AtariPreprocessing(every_frame(), noop_max=30), -1.0, 1.0)
    return FrameStackObservation(environment, 4)


def breakout() -> gymnasium.Env[Any, Any]:
    """MinAtar's Breakout with channels first: an observation is [4, 10, 10] floats."""
    import minatar.gym  # type: ignore[import-untyped]

    minatar.gym.register_envs()
    environment = gymnasium.make("MinAtar/Breakout-v0")
    assert environment.observation_space.shape is not None
    height, width, channels = environment.observation_space.shape
    return TransformObservation(
        environment,
        lambda observation: observation.transpose(2, 0, 1).astype(np.float32),
        gymnasium.spaces.Box(0, 1, (channels, height, width), np.float32),
    )


class WithFourResults:
    """An environment whose steps have the four results that pfrl's asynchronous training expects.

    Args:
        environment: the environment.
        seed: of its first episode.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], seed: int) -> None:
        self.environment = environment
        self.seed: int | None = seed
        self.episode_return = 0.0

    def reset(self) -> Any:
        """Start an episode; return the first observation."""
        seed, self.seed, self.episode_return = self.seed, None, 0.0
        return self.environment.reset(seed=seed)[0]

    def step(self, action: int) -> tuple[Any, float, bool, dict[str, Any]]:
        """The next observation, the reward, whether it is terminal, and whether truncated."""
        observation, reward, terminated, truncated, info = self.environment.step(action)
        self.episode_return += float(reward)
        return observation, float(reward), terminated, {**info, "needs_reset": truncated}

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


def cartpole() -> gymnasium.Env[Any, Any]:
    """CartPole: an observation is [4] floats."""
    return gymnasium.make("CartPole-v1")


ENVIRONMENTS = {"atari/pong": pong, "minatar/breakout": breakout, "gym/CartPole-v1": cartpole}
"""By our names."""
