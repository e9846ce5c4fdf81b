"""pfrl's Rainbow on atari/pong: pfrl_rainbow.py UPDATE_PERIOD WARM_UP.

The parts and numbers of its own reproduction (examples/atari/reproduction/rainbow), with the replay
and the schedule of this benchmark.
"""

from __future__ import annotations

import sys

import numpy as np
import pfrl
import torch
from environments import pong
from pfrl.q_functions import DistributionalDuelingDQN
from turn import Turns

update_period, warm_up = int(sys.argv[1]), int(sys.argv[2])
# Gymnasium's preprocessing: pfrl's own wrappers need the older Gym, and are slower.
environment = pong()
network = DistributionalDuelingDQN(environment.action_space.n, 51, -10, 10)
pfrl.nn.to_factorized_noisy(network, sigma_scale=0.5)
agent = pfrl.agents.CategoricalDoubleDQN(
    network,
    torch.optim.Adam(network.parameters(), 6.25e-5, eps=1.5e-4),
    pfrl.replay_buffers.PrioritizedReplayBuffer(
        20_000, alpha=0.5, beta0=0.4, betasteps=2_000_000, num_steps=3, normalize_by_max="memory"
    ),
    gamma=0.99,
    explorer=pfrl.explorers.Greedy(),
    gpu=-1,
    replay_start_size=warm_up,
    minibatch_size=32,
    update_interval=update_period,
    target_update_interval=8_000,
    batch_accumulator="mean",
    max_grad_norm=10,
    phi=lambda observation: np.asarray(observation, dtype=np.float32) / 255,
)
turns, (observation, _) = Turns(warm_up + 200), environment.reset(seed=0)
while True:
    observation, reward, terminated, truncated, _ = environment.step(agent.act(observation))
    agent.observe(observation, reward, terminated, truncated)
    if terminated or truncated:
        observation, _ = environment.reset()
    if not turns.step():
        break
