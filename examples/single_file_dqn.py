"""NoisyNet-DQN and ε-greedy DQN on Deep Sea in one file, using only the layers of noisynet.

Deep Sea (Osband et al.) is a grid of n × n cells. The agent starts in the top left corner and
descends one row per step, to the left or to the right. Moving right costs 0.01/n; the only reward,
1, is in the bottom right corner. Which action moves right is random for each cell. Only one of 2ⁿ
action sequences is rewarded, and every step towards it has a cost.

    python examples/single_file_dqn.py            # both agents, 5 seeds, about two minutes
    python examples/single_file_dqn.py --size 8   # a smaller grid
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet import NoisyLinear, noise_off, resample_noise

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """The settings of one run."""

    agent: str = "noisynet-dqn"  # or "dqn", which explores by ε-greedy
    size: int = 10
    seed: int = 0
    episodes: int = 800
    hidden: int = 64
    learning_rate: float = 1e-3
    batch: int = 32
    discount: float = 0.99
    replay_steps: int = 10_000
    sync_target_steps: int = 100
    epsilon_final: float = 0.05
    epsilon_episodes: int = 200  # of the linear schedule from 1 to epsilon_final


@dataclass(frozen=True)
class Result:
    """The result of one run."""

    agent: str
    seed: int
    training_return: float  # mean of the last 100 episodes, with exploration
    greedy_return: float  # one episode without exploration
    found_at: int | None  # the first episode that reached the reward


class DeepSea:
    """The environment. Observations are one-hot over the cells, float32 [n·n]."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.right = np.random.default_rng(seed).integers(2, size=(size, size))
        self.row = self.column = 0

    def reset(self) -> Array:
        self.row = self.column = 0
        return self.observation()

    def step(self, action: int) -> tuple[Array, float, bool]:
        goes_right = action == self.right[self.row, self.column]
        reward = -0.01 / self.size if goes_right else 0.0
        if goes_right and self.row == self.column == self.size - 1:
            reward += 1.0
        self.column = min(max(self.column + (1 if goes_right else -1), 0), self.size - 1)
        self.row += 1
        return self.observation(), reward, self.row == self.size

    def observation(self) -> Array:
        x = np.zeros(self.size * self.size, np.float32)
        if self.row < self.size:
            x[self.row * self.size + self.column] = 1
        return x


class Replay:
    """A uniform replay buffer."""

    def __init__(self, capacity: int, observation: int, seed: int) -> None:
        self.x = np.zeros((capacity, observation), np.float32)
        self.y = np.zeros((capacity, observation), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)
        self.added = 0
        self.rng = np.random.default_rng(seed)

    def add(self, x: Array, action: int, reward: float, discount: float, y: Array) -> None:
        i = self.added % len(self.action)
        self.x[i], self.y[i] = x, y
        self.action[i], self.reward[i], self.discount[i] = action, reward, discount
        self.added += 1

    def sample(self, count: int) -> list[Tensor]:
        i = self.rng.integers(min(self.added, len(self.action)), size=count)
        columns = (self.x, self.action, self.reward, self.discount, self.y)
        return [torch.from_numpy(column[i]) for column in columns]


class Agent:
    """DQN, or NoisyNet-DQN (Algorithm 1), depending on the settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.noisy = settings.agent == "noisynet-dqn"
        streams = [torch.Generator().manual_seed(1000 * (settings.seed + 1) + i) for i in range(3)]
        self.act_noise, self.online_noise, self.target_noise = streams
        torch.manual_seed(settings.seed)
        linear = NoisyLinear if self.noisy else nn.Linear
        sizes = (settings.size**2, settings.hidden, settings.hidden, 2)
        layers = [layer for p, q in pairwise(sizes) for layer in (linear(p, q), nn.ReLU())]
        self.online = nn.Sequential(*layers[:-1])
        self.target = copy.deepcopy(self.online)
        self.optimiser = torch.optim.Adam(
            self.online.parameters(), lr=settings.learning_rate, fused=True
        )
        self.rng = np.random.default_rng(settings.seed)

    def act(self, x: Array, episode: int) -> int:
        """Act greedily with fresh noise, or ε-greedily."""
        if self.noisy:
            resample_noise(self.online, self.act_noise)
        elif self.rng.random() < self.epsilon(episode):
            return int(self.rng.integers(2))
        return self.greedy(x)

    @torch.no_grad()
    def greedy(self, x: Array) -> int:
        return int(self.online(torch.from_numpy(x)[None]).argmax())

    def epsilon(self, episode: int) -> float:
        fraction = min(1.0, episode / self.settings.epsilon_episodes)
        return 1 + fraction * (self.settings.epsilon_final - 1)

    def learn(self, batch: list[Tensor]) -> None:
        """Perform one update with independent noise in the online and target network (Eq. 14)."""
        x, action, reward, discount, y = batch
        if self.noisy:
            resample_noise(self.online, self.online_noise)
            resample_noise(self.target, self.target_noise)
        with torch.no_grad():
            target = reward + discount * self.target(y).amax(dim=1)
        value = self.online(x).gather(1, action[:, None])[:, 0]
        self.optimiser.zero_grad()
        F.mse_loss(value, target).backward()
        self.optimiser.step()

    def sync_target(self) -> None:
        self.target.load_state_dict(self.online.state_dict())  # does not copy noise

    def mean_policy(self, env: DeepSea) -> float:
        """The return of one episode without exploration."""
        with noise_off(self.online) if self.noisy else nullcontext():
            return episode_return(env, self.greedy)


def episode_return(env: DeepSea, policy: Callable[[Array], int]) -> float:
    x, total, over = env.reset(), 0.0, False
    while not over:
        x, reward, over = env.step(policy(x))
        total += reward
    return total


def train(settings: Settings) -> Result:
    """Train one agent."""
    torch.set_num_threads(1)
    env = DeepSea(settings.size, settings.seed)
    agent = Agent(settings)
    replay = Replay(settings.replay_steps, settings.size**2, settings.seed)
    returns: list[float] = []
    steps = 0
    for episode in range(settings.episodes):
        x, total, over = env.reset(), 0.0, False
        while not over:
            action = agent.act(x, episode)
            y, reward, over = env.step(action)
            replay.add(x, action, reward, 0.0 if over else settings.discount, y)
            x, total, steps = y, total + reward, steps + 1
            if replay.added >= settings.batch:
                agent.learn(replay.sample(settings.batch))
            if steps % settings.sync_target_steps == 0:
                agent.sync_target()
        returns.append(total)
    found = [episode for episode, total in enumerate(returns) if total > 0.5]
    return Result(
        settings.agent,
        settings.seed,
        float(np.mean(returns[-100:])),
        agent.mean_policy(env),
        found[0] if found else None,
    )


def compare(results: list[Result], size: int) -> str:
    """Format the results as a table."""
    lines = [f"Deep Sea {size}: return without exploration (about 1 = solved)", ""]
    lines.append(f"{'agent':<14}{'seed':>4}{'greedy':>9}{'training':>10}   reward first found")
    for result in results:
        when = "never" if result.found_at is None else f"episode {result.found_at}"
        lines.append(
            f"{result.agent:<14}{result.seed:>4}{result.greedy_return:>9.2f}"
            f"{result.training_return:>10.2f}   {when}"
        )
    lines.append("")
    for agent in dict.fromkeys(result.agent for result in results):
        runs = [result for result in results if result.agent == agent]
        solved = sum(result.greedy_return > 0.5 for result in runs)
        lines.append(f"{agent}: solved in {solved} of {len(runs)} seeds")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Train both agents with several seeds, in parallel on all cores."""
    parser = argparse.ArgumentParser(description="NoisyNet-DQN against ε-greedy DQN on Deep Sea")
    parser.add_argument("--size", type=int, default=10, help="size of the grid (default 10)")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default 5)")
    parser.add_argument("--episodes", type=int, default=800, help="episodes per run (default 800)")
    options = parser.parse_args(arguments)
    runs = [
        Settings(agent=agent, size=options.size, seed=seed, episodes=options.episodes)
        for agent in ("dqn", "noisynet-dqn")
        for seed in range(options.seeds)
    ]
    print(f"{len(runs)} runs of {options.episodes} episodes …", flush=True)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        print(compare(list(pool.map(train, runs)), options.size))


if __name__ == "__main__":
    main(sys.argv[1:])
