"""pfrl's A3C on atari/pong: pfrl_a3c.py plain|noisy WORKERS COUNT, where steps are counted."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pfrl
import torch
from pong import pong
from torch import nn

noisy, workers, count_path = sys.argv[1] == "noisy", int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
count = np.memmap(count_path, np.int64, "r+", shape=(1,))


class Game:
    """A game with the four results of a step that pfrl expects."""

    def __init__(self, index: int) -> None:
        self.game, self.index = pong(), index

    def reset(self) -> np.ndarray:
        """The first observation."""
        return self.game.reset(seed=self.index)[0]

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        """The next one, the reward, whether it was the last, and whether it was cut off."""
        seen, reward, terminated, truncated, info = self.game.step(action)
        return seen, reward, terminated, {**info, "needs_reset": truncated}

    def close(self) -> None:
        """No more of it."""
        self.game.close()


def note(_env: Game, _agent: pfrl.agent.Agent, step: int) -> None:
    """Say how many steps there were."""
    count[0] = step


model = nn.Sequential(
    *(nn.Conv2d(4, 16, 8, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2), nn.ReLU()),
    *(nn.Flatten(), nn.Linear(2592, 256), nn.ReLU()),
    pfrl.nn.Branched(
        nn.Sequential(nn.Linear(256, 6), pfrl.policies.SoftmaxCategoricalHead()),
        nn.Linear(256, 1),
    ),
)
if noisy:
    pfrl.nn.to_factorized_noisy(model, sigma_scale=0.5)
agent = pfrl.agents.A3C(
    model,
    pfrl.optimizers.SharedRMSpropEpsInsideSqrt(model.parameters(), lr=7e-4, eps=0.1, alpha=0.99),
    t_max=5,
    gamma=0.99,
    beta=0.0 if noisy else 0.01,
    max_grad_norm=40.0,
    phi=lambda seen: np.asarray(seen, dtype=np.float32) / 255,
)
pfrl.experiments.train_agent_async(
    agent=agent,
    outdir=".",
    processes=workers,
    make_env=lambda index, **_: Game(index),
    steps=10**9,
    eval_interval=None,
    global_step_hooks=[note],
    random_seeds=list(range(workers)),
)
