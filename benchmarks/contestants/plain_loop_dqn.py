"""DQN on atari/pong as one plain loop, in the manner of CleanRL: UPDATE_PERIOD WARM_UP.

Gymnasium's wrappers, stable-baselines3's replay, which CleanRL uses, a network, and Adam.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import torch
import torch.nn.functional as F
from pong import pong
from stable_baselines3.common.buffers import ReplayBuffer
from torch import nn
from turn import Turns

update_period, warm_up = int(sys.argv[1]), int(sys.argv[2])
game = pong()


def network() -> nn.Sequential:
    """Nature DQN's."""
    return nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, int(game.action_space.n))),
    )


online, target = network(), network()
target.load_state_dict(online.state_dict())
optimiser = torch.optim.Adam(online.parameters(), lr=1e-4)
replay = ReplayBuffer(
    20_000,
    game.observation_space,
    game.action_space,
    "cpu",
    optimize_memory_usage=True,
    handle_timeout_termination=False,
)
turns, (seen, _) = Turns(warm_up + 200), game.reset(seed=0)
step = 0
while True:
    if random.random() < max(0.1, 1 - step / 1_000):
        action = int(game.action_space.sample())
    else:
        with torch.no_grad():
            action = int(online(torch.as_tensor(seen)[None] / 255.0).argmax())
    following, reward, terminated, truncated, info = game.step(action)
    replay.add(seen, following, np.array([action]), reward, np.array([terminated]), [info])
    seen = game.reset()[0] if terminated or truncated else following
    step += 1
    if step > warm_up and step % update_period == 0:
        batch = replay.sample(32)
        with torch.no_grad():
            best = target(batch.next_observations / 255.0).max(dim=1).values
            wanted = batch.rewards.flatten() + 0.99 * best * (1 - batch.dones.flatten())
        value = online(batch.observations / 255.0).gather(1, batch.actions).squeeze(1)
        loss = F.mse_loss(wanted, value)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if step % 10_000 == 0:
        target.load_state_dict(online.state_dict())
    if not turns.step():
        break
