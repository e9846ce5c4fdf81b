"""pfrl's A3C on minatar/breakout, with our settings: pfrl_a3c_learning.py WORKERS FRAMES SEED.

Prints the finished episodes as JSON: the step of all workers at which each ended, and its return.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import numpy as np
import pfrl
import torch
from environments import WithFourResults, breakout
from torch import nn

LEARNING_RATE = 7e-4
workers, frames, seed = (int(argument) for argument in sys.argv[1:])
torch.set_num_threads(1)
torch.manual_seed(seed)
step_of_all = torch.zeros(1, dtype=torch.int64).share_memory_()
# A short line is appended in one piece, whoever writes it.
log = tempfile.TemporaryFile("a+b")  # noqa: SIM115  it is open until the end of the process


class Recorded(WithFourResults):
    """Writes the return of each finished episode."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, object]]:
        """One step."""
        observation, reward, terminal, info = super().step(action)
        if terminal or info["needs_reset"]:
            os.write(
                log.fileno(), json.dumps([int(step_of_all), self.episode_return]).encode() + b"\n"
            )
        return observation, reward, terminal, info


def anneal(_env: Recorded, agent: pfrl.agents.A3C, step: int) -> None:
    """The learning rate falls linearly to 0."""
    step_of_all.fill_(step)
    for group in agent.optimizer.param_groups:
        group["lr"] = LEARNING_RATE * max(0.0, 1 - step / frames)


model = nn.Sequential(
    *(nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 128), nn.ReLU()),
    pfrl.nn.Branched(
        nn.Sequential(nn.Linear(128, 6), pfrl.policies.SoftmaxCategoricalHead()),
        nn.Linear(128, 1),
    ),
)
agent = pfrl.agents.A3C(
    model,
    pfrl.optimizers.SharedRMSpropEpsInsideSqrt(
        model.parameters(), lr=LEARNING_RATE, eps=8e-5, alpha=0.99
    ),
    t_max=5,
    gamma=0.99,
    beta=0.01,
    max_grad_norm=7.0,
)
with tempfile.TemporaryDirectory() as folder:
    pfrl.experiments.train_agent_async(
        agent=agent,
        outdir=folder,
        processes=workers,
        make_env=lambda index, **_: Recorded(breakout(), 1_000 * seed + index),
        steps=frames,
        eval_interval=None,
        global_step_hooks=[anneal],
        random_seeds=[1_000 * seed + index for index in range(workers)],
    )
log.seek(0)
print(json.dumps([json.loads(line) for line in log]))
