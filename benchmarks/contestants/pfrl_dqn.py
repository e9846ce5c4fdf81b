"""pfrl's DQN on atari/pong: pfrl_dqn.py plain|noisy UPDATE_PERIOD WARM_UP."""

from __future__ import annotations

import sys

import numpy as np
import pfrl
from environments import pong
from torch import nn
from turn import Turns

noisy, update_period, warm_up = sys.argv[1] == "noisy", int(sys.argv[2]), int(sys.argv[3])
# Gymnasium's preprocessing: pfrl's own wrappers need the older Gym, and are slower.
environment = pong()
actions = environment.action_space.n
network = nn.Sequential(
    pfrl.nn.LargeAtariCNN(),
    nn.Linear(512, actions),
    pfrl.q_functions.DiscreteActionValueHead(),
)
if noisy:
    pfrl.nn.to_factorized_noisy(network, sigma_scale=0.5)
    explorer = pfrl.explorers.Greedy()
else:
    explorer = pfrl.explorers.LinearDecayEpsilonGreedy(
        1.0, 0.1, 1_000, lambda: np.random.randint(actions)
    )
agent = pfrl.agents.DQN(
    network,
    pfrl.optimizers.RMSpropEpsInsideSqrt(
        network.parameters(), lr=2.5e-4, alpha=0.95, eps=1e-2, centered=True
    ),
    pfrl.replay_buffers.ReplayBuffer(20_000),
    gamma=0.99,
    explorer=explorer,
    gpu=-1,
    replay_start_size=warm_up,
    minibatch_size=32,
    update_interval=update_period,
    target_update_interval=10_000,
    batch_accumulator="sum",
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
