"""Plays MinAtar without an agent, for comparison: at random, and on Freeway always up.

python results/simple_policies.py    # half a minute; writes simple-policies.json
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from studies import RESULTS

from noisynet.envs import make_environment
from noisynet.envs.names import MINATAR_GAMES

FILE: Final = "simple-policies.json"
EPISODES: Final = 64
"""With the seeds 0, 1, …"""

Policy = Callable[[], int]


def returns_of(policy: Policy, environment: str, episodes: int) -> list[float]:
    """The return of each episode."""
    found = [0.0] * episodes
    with make_environment(environment) as game:
        for seed in range(episodes):
            game.start([seed])
            ended = False
            while not ended:
                step = game.step(np.array([policy()]))
                found[seed] += float(step.reward[0])
                ended = bool(step.terminated[0] or step.truncated[0])
    return found


def random_policy(actions: int, seed: int = 0) -> Policy:
    """Every action with the same probability."""
    generator = np.random.default_rng(seed)
    return lambda: int(generator.integers(actions))


def play(episodes: int = EPISODES) -> list[dict[str, Any]]:
    """The returns of every policy, a row for each."""
    rows = []
    for game in MINATAR_GAMES:
        environment = f"minatar/{game}"
        with make_environment(environment) as one:
            names = one.spec.action_names
        policies = {"random": random_policy(len(names))}
        if game == "freeway":
            policies["always up"] = partial(names.index, "up")
        for policy, choose in policies.items():
            found = returns_of(choose, environment, episodes)
            rows.append({"environment": environment, "policy": policy, "returns": found})
    return rows


def main() -> None:
    """Play and write the file."""
    lines = ",\n".join(map(json.dumps, play()))
    (RESULTS / FILE).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
