"""DQN as one plain loop in the manner of CleanRL: ENVIRONMENT UPDATE_PERIOD WARM_UP [THREADS].

Gymnasium's wrappers, stable-baselines3's replay, which CleanRL uses, and PyTorch.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import torch
import torch.nn.functional as F
from environments import ENVIRONMENTS
from stable_baselines3.common.buffers import ReplayBuffer
from torch import nn
from turn import Turns

name, update_period, warm_up = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if len(sys.argv) > 4:
    torch.set_num_threads(int(sys.argv[4]))
environment = ENVIRONMENTS[name]()
actions = int(environment.action_space.n)


def network() -> nn.Sequential:
    """The network of our preset for the environment."""
    if name == "atari/pong":
        return nn.Sequential(
            *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions)),
        )
    if name == "minatar/breakout":
        return nn.Sequential(
            *(nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, actions)),
        )
    return nn.Sequential(
        *(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, actions)),
    )


def scaled(observation: torch.Tensor) -> torch.Tensor:
    """Bytes to [0, 1]; floats as they are."""
    return observation / 255.0 if name == "atari/pong" else observation


online, target = network(), network()
target.load_state_dict(online.state_dict())
if name == "minatar/breakout":
    optimiser = torch.optim.RMSprop(
        online.parameters(), lr=2.5e-4, alpha=0.95, eps=0.01, centered=True
    )
else:
    rate = 1e-4 if name == "atari/pong" else 1e-3
    optimiser = torch.optim.Adam(online.parameters(), lr=rate)
sync_period = {"atari/pong": 10_000, "minatar/breakout": 1_000, "gym/CartPole-v1": 100}[name]
replay = ReplayBuffer(
    20_000,
    environment.observation_space,
    environment.action_space,
    "cpu",
    optimize_memory_usage=name == "atari/pong",
    handle_timeout_termination=False,
)
turns, (observation, _) = Turns(warm_up + 200), environment.reset(seed=0)
step = 0
while True:
    if random.random() < max(0.1, 1 - step / 1_000):
        action = int(environment.action_space.sample())
    else:
        with torch.no_grad():
            action = int(online(scaled(torch.as_tensor(observation)[None])).argmax())
    next_observation, reward, terminated, truncated, info = environment.step(action)
    replay.add(
        observation, next_observation, np.array([action]), reward, np.array([terminated]), [info]
    )
    observation = environment.reset()[0] if terminated or truncated else next_observation
    step += 1
    if step > warm_up and step % update_period == 0:
        batch = replay.sample(32)
        with torch.no_grad():
            best = target(scaled(batch.next_observations)).max(dim=1).values
            td_target = batch.rewards.flatten() + 0.99 * best * (1 - batch.dones.flatten())
        value = online(scaled(batch.observations)).gather(1, batch.actions).squeeze(1)
        loss = F.smooth_l1_loss(value, td_target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if step % sync_period == 0:
        target.load_state_dict(online.state_dict())
    if not turns.step():
        break
