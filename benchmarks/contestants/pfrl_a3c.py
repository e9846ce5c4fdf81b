"""pfrl's A3C on atari/pong: pfrl_a3c.py plain|noisy WORKERS COUNT; COUNT is a file."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pfrl
import torch
from environments import pong
from torch import nn

noisy, workers, count_path = sys.argv[1] == "noisy", int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
count = np.memmap(count_path, np.int64, "r+", shape=(1,))


class FourResults:
    """Pong with the four results of a step that pfrl expects."""

    def __init__(self, index: int) -> None:
        self.environment, self.index = pong(), index

    def reset(self) -> np.ndarray:
        """Start an episode; return the first observation."""
        return self.environment.reset(seed=self.index)[0]

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        """The next observation, the reward, whether it is terminal, and whether truncated."""
        observation, reward, terminated, truncated, info = self.environment.step(action)
        return observation, reward, terminated, {**info, "needs_reset": truncated}

    def close(self) -> None:
        """Close the emulator."""
        self.environment.close()


def count_steps(_env: FourResults, _agent: pfrl.agent.Agent, step: int) -> None:
    """Write the steps of all workers to the file."""
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
    phi=lambda observation: np.asarray(observation, dtype=np.float32) / 255,
)
pfrl.experiments.train_agent_async(
    agent=agent,
    outdir=".",
    processes=workers,
    make_env=lambda index, **_: FourResults(index),
    steps=10**9,
    eval_interval=None,
    global_step_hooks=[count_steps],
    random_seeds=list(range(workers)),
)
