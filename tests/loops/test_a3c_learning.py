"""A3C learns: several seeds in real environments; minutes each."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from noisynet.runs import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(14400)]

AGENTS: Final = ("a3c", "noisynet-a3c", "noisynet-a3c-factorised")
SEEDS: Final = range(3)
WORKERS: Final = 2  # one per core of the smallest machine


@dataclass(frozen=True)
class Problem:
    """An environment and the scores to reach.

    Attributes:
        environment: name of the environment.
        frames: budget.
        by_chance: score of random actions.
        expected: least mean, over seeds, of the best evaluation.
    """

    environment: str
    frames: int
    by_chance: float
    expected: float


CARTPOLE: Final = Problem("gym/CartPole-v1", 200_000, 22, 475)
BREAKOUT: Final = Problem("minatar/breakout", 300_000, 0.7, 3.5)


def train(agent: str, problem: Problem, seed: int, out: Path) -> list[dict[str, Any]]:
    """Train, and return the rows of metrics."""
    command = [sys.executable, "-m", "noisynet", "train", agent, problem.environment]
    command += ["--frames", str(problem.frames), "--seed", str(seed), "--out", str(out)]
    command += ["--workers", str(WORKERS), "--no-tensorboard"]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return read_metrics(out / problem.environment / agent / f"seed-{seed}" / "metrics.jsonl")


def scores(rows: list[dict[str, Any]], noise: str) -> list[float]:
    return [row["score"] for row in rows if row["kind"] == "evaluation" and row["noise"] == noise]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("problem", [CARTPOLE, BREAKOUT], ids=lambda problem: problem.environment)
def test_a3c_learns_with_noise_on_and_off(problem: Problem, agent: str, tmp_path: Path) -> None:
    modes = ("off",) if agent == "a3c" else ("on", "off")
    best: dict[str, list[float]] = {noise: [] for noise in modes}
    for seed in SEEDS:
        rows = train(agent, problem, seed, tmp_path)
        for noise in modes:
            best[noise].append(max(scores(rows, noise)))
        last = [row for row in rows if row["kind"] == "train"][-1]
        assert last["dropped_updates"] == last["worker_deaths"] == 0
    for noise in modes:
        assert np.mean(best[noise]) >= problem.expected, best
        assert min(best[noise]) > problem.by_chance, best
