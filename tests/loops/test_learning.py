"""The agents learn: several seeds, real environments, minutes each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisynet.runs import RunFolder, read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


def train(out: Path, agent: str, environment: str, frames: int, seed: int, *settings: str) -> Path:
    """One run by the real command, on one core."""
    command = [sys.executable, "-m", "noisynet", "train", agent, environment, "--no-tensorboard"]
    command += ["--frames", str(frames), "--seed", str(seed), "--out", str(out)]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return out / environment / agent / f"seed-{seed}"


def train_all(jobs: Sequence[tuple[Any, ...]]) -> list[Path]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda job: train(*job), jobs))


def final_score(folder: Path) -> float:
    status = RunFolder(folder).read_status()
    assert status is not None
    return float(status["score"])


@pytest.mark.parametrize("agent", ["dqn", "dueling", "noisynet-dqn", "noisynet-dueling"])
def test_cartpole_is_solved(agent: str, tmp_path: Path) -> None:
    """At some evaluation the pole stays up for at least 475 of 500 steps, in 2 of 3 seeds."""
    jobs = [(tmp_path, agent, "gym/CartPole-v1", 40_000, seed) for seed in range(3)]
    best = []
    for folder in train_all(jobs):
        rows = read_metrics(folder / "metrics.jsonl")
        best.append(max(row["score"] for row in rows if row["kind"] == "evaluation"))
    assert sum(score >= 475 for score in best) >= 2, best


def test_noise_solves_deep_sea_more_often_than_epsilon_greedy(tmp_path: Path) -> None:
    solved = {}
    for agent in ("dqn", "noisynet-dqn"):
        settings = ["evaluation.period_frames=10000", "evaluation.frames=100"]
        jobs = [(tmp_path, agent, "deep_sea/10", 10_000, seed, *settings) for seed in range(10)]
        folders = train_all(jobs)
        solved[agent] = sum(final_score(folder) > 0.5 for folder in folders)
    assert solved["noisynet-dqn"] >= solved["dqn"] + 3, solved


def test_minatar_breakout_follows_the_published_curve(tmp_path: Path) -> None:
    """Young & Tian 2019: training return 8.3 at 0.5M frames (30 seeds), with DQN."""
    settings = ["evaluation.period_frames=500000", "evaluation.frames=5000"]
    jobs = [(tmp_path, "dqn", "minatar/breakout", 500_000, seed, *settings) for seed in range(2)]
    returns = []
    for folder in train_all(jobs):
        rows = read_metrics(folder / "metrics.jsonl")
        returns.append([r["score"] for r in rows if r["kind"] == "episode"][-200:])
    mean = float(np.mean([np.mean(scores) for scores in returns]))
    assert 6.0 <= mean <= 11.0, mean
