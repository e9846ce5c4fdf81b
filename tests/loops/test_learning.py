"""Value agents learn: several seeds in real environments; minutes each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisynet.runs import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


@dataclass(frozen=True)
class Run:
    """One run of the command line, on one core."""

    agent: str
    environment: str
    frames: int
    seed: int
    settings: tuple[str, ...] = ()

    def train(self, out: Path) -> list[dict[str, Any]]:
        """Train, and return the rows of metrics."""
        command = [sys.executable, "-m", "noisynet", "train", self.agent, self.environment]
        command += ["--frames", str(self.frames), "--seed", str(self.seed), "--out", str(out)]
        command += ["--no-tensorboard"]
        for setting in self.settings:
            command += ["--set", setting]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        folder = out / self.environment / self.agent / f"seed-{self.seed}"
        return list(read_metrics(folder / "metrics.jsonl"))


def train_all(runs: Sequence[Run], out: Path) -> list[list[dict[str, Any]]]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda run: run.train(out), runs))


def scores(rows: list[dict[str, Any]], noise: str) -> list[float]:
    return [row["score"] for row in rows if row["kind"] == "evaluation" and row["noise"] == noise]


@pytest.mark.parametrize(
    "agent",
    ["dqn", "noisynet-dqn", "c51", "noisynet-c51", "rainbow", "rainbow-without-noise"],
)
def test_cartpole_is_solved(agent: str, tmp_path: Path) -> None:
    """In 2 of 3 seeds the best evaluation has a mean return of at least 475."""
    runs = [Run(agent, "gym/CartPole-v1", 50_000, seed) for seed in range(3)]
    best = [max(scores(rows, "off")) for rows in train_all(runs, tmp_path)]
    assert sum(score >= 475 for score in best) >= 2, best


def test_noise_solves_deep_sea_far_more_often_than_epsilon_greedy(tmp_path: Path) -> None:
    """Noise that is held for an episode explores deeply; ε-greedy does not."""
    common = (
        "environment_options.randomise_actions=false",
        "evaluation.period_frames=8000",
        "evaluation.frames=100",
    )
    settings = {"dqn": (), "noisynet-dqn": ("exploration.redraw=episode",)}
    solved = {}
    for agent, own in settings.items():
        runs = [Run(agent, "deep_sea/10", 8_000, seed, (*common, *own)) for seed in range(10)]
        finals = [scores(rows, "off")[-1] for rows in train_all(runs, tmp_path)]
        solved[agent] = sum(score > 0.5 for score in finals)
    assert solved["noisynet-dqn"] >= 8, solved
    assert solved["dqn"] <= 3, solved


def test_minatar_breakout_follows_the_published_curve(tmp_path: Path) -> None:
    """Young & Tian 2019: training return 8.3 ± 0.4 at 0.5M frames, over 30 seeds of DQN."""
    settings = ("evaluation.period_frames=500000", "evaluation.frames=20000")
    runs = [Run("dqn", "minatar/breakout", 500_000, seed, settings) for seed in range(2)]
    returns = [
        np.mean([row["score"] for row in rows if row["kind"] == "episode"][-500:])
        for rows in train_all(runs, tmp_path)
    ]
    assert 6.5 <= np.mean(returns) <= 11, returns
