"""pfrl's A3C on atari/pong: pfrl_a3c.py plain|noisy WORKERS COUNT; COUNT is a file."""

from __future__ import annotations

import sys

import numpy as np
import pfrl
import torch
from environments import WithFourResults, pong
from torch import nn

noisy, workers, count_path = sys.argv[1] == "noisy", int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
count = np.memmap(count_path, np.int64, "r+", shape=(1,))


def count_steps(_env: WithFourResults, _agent: pfrl.agent.Agent, step: int) -> None:
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
    make_env=lambda index, **_: WithFourResults(pong(), index),
    steps=10**9,
    eval_interval=None,
    global_step_hooks=[count_steps],
    random_seeds=list(range(workers)),
)
