"""Does `ortho_init` matter to noisy policies of Stable-Baselines3's A2C and PPO? Nothing is timed.

The library's identity tasks: the reward is 1 where the action is the observation, 100 steps an
episode. Each policy learns each task with every seed and then plays 10 episodes, with mean weights.

    python benchmarks/sb3_initialisation.py    # about ten minutes of one core; needs noisynet[sb3]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.envs import (
    IdentityEnv,
    IdentityEnvBox,
    IdentityEnvMultiBinary,
    IdentityEnvMultiDiscrete,
)
from stable_baselines3.common.evaluation import evaluate_policy
from turns import machine, write_results

import noisynet.integrations.sb3  # noqa: F401 — registers the policies by their names

RESULTS = Path(__file__).parent / "results" / "sb3_initialisation.json"
GOAL: Final = 90.0  # of 100; the threshold of the library's own tests
POLICIES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "the library's policy": ("MlpPolicy", {}),
    "noisy": ("NoisyMlpPolicy", {}),
    "noisy, `ortho_init=True`": ("NoisyMlpPolicy", {"ortho_init": True}),
}
_SETTINGS: Final[dict[Any, dict[str, Any]]] = {
    A2C: {"learning_rate": 2e-3, "gamma": 0.4},
    PPO: {"learning_rate": 2e-3, "gamma": 0.4, "n_steps": 128, "batch_size": 64},
}
# Algorithm, environment, steps of training.
TASKS: Final[dict[str, tuple[Any, Any, int]]] = {
    "A2C, Discrete": (A2C, IdentityEnv, 1_200),
    "A2C, MultiDiscrete": (A2C, IdentityEnvMultiDiscrete, 1_200),
    "A2C, Box": (A2C, lambda: IdentityEnvBox(eps=0.5), 2_000),
    "PPO, MultiDiscrete": (PPO, IdentityEnvMultiDiscrete, 1_200),
    "PPO, MultiBinary": (PPO, IdentityEnvMultiBinary, 1_200),
}


def learn(task: str, policy: str, seed: int) -> float:
    """The mean return of a policy after it has learnt a task."""
    algorithm, make, steps = TASKS[task]
    name, options = POLICIES[policy]
    environment = make() if task.endswith("Box") else make(4)
    settings = _SETTINGS[algorithm]
    model = algorithm(name, environment, seed=seed, policy_kwargs=dict(options), **settings)
    model.learn(steps)
    mean, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=10)
    return float(mean)


def main() -> None:
    """Learn every task, print the returns and write the results."""
    parser = argparse.ArgumentParser(description="The initial weights of A2C and PPO")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--seeds", type=int, default=10, help="how many runs of each")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {
        "machine": machine(),
        "versions": {"stable-baselines3": stable_baselines3.__version__},
        "goal": GOAL,
        "returns": {},
    }
    for task in TASKS:
        report["returns"][task] = {}
        for policy in POLICIES:
            found = [round(learn(task, policy, seed), 1) for seed in range(options.seeds)]
            report["returns"][task][policy] = found
            print(f"{task}, {policy}: {np.mean(found):.1f} {found}", flush=True)
    write_results(report, RESULTS, options.out)


if __name__ == "__main__":
    main()
