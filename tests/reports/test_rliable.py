"""Statistics agree with rliable (Agarwal et al. 2021).

rliable does not import with pandas 3, so it needs a separate environment. `RLIABLE_PYTHON`
names its Python; without it the slow test makes one:

    python -m venv rliable && rliable/bin/pip install rliable 'pandas<3'
    RLIABLE_PYTHON=rliable/bin/python pytest tests/reports/test_rliable.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisynet.reports.scores import (
    Floats,
    estimate,
    interquartile_mean,
    mean_score,
    median_score,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

ORACLE = Path(__file__).with_name("rliable_oracle.py")
STATISTICS = (mean_score, median_score, interquartile_mean, optimality_gap)
THRESHOLDS = np.linspace(0, 300, 7)


def scores(agent_seed: int) -> Floats:
    """Synthetic normalised scores [5 runs, 8 tasks], in per cent, with a few ties."""
    generator = np.random.default_rng(agent_seed)
    level = np.linspace(10, 250, 8)
    drawn = level * generator.lognormal(0.1 * agent_seed, 0.4, (5, 8))
    return np.asarray(drawn.round(-1))


def tasks(matrix: Floats) -> list[Floats]:
    return list(matrix.T)


# Results of rliable 1.2.0 for `scores(2)` and `scores(1)`, in per cent.
BY_RLIABLE = (168.0, 168.0, 150.0, 19.5)
IMPROVEMENT_BY_RLIABLE = 0.565


def test_point_estimates_are_rliables() -> None:
    noisy, baseline = tasks(scores(2)), tasks(scores(1))
    found = [float(statistic(noisy)) for statistic in STATISTICS]
    assert found == pytest.approx(BY_RLIABLE)
    better = estimate(probability_of_improvement, noisy, baseline, seed=0)
    assert better.value == pytest.approx(IMPROVEMENT_BY_RLIABLE)


@pytest.fixture(scope="module")
def rliable_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with rliable."""
    if "RLIABLE_PYTHON" in os.environ:
        return os.environ["RLIABLE_PYTHON"]
    folder = tmp_path_factory.mktemp("rliable")
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "rliable", "pandas<3"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"rliable could not be installed: {done.stderr.strip()[-200:]}")
    return str(python)


@pytest.mark.slow
def test_intervals_are_rliables_to_bootstrap_error(rliable_python: str) -> None:
    noisy, baseline = scores(2), scores(1)
    given = {
        "noisy": (noisy / 100).tolist(),
        "baseline": (baseline / 100).tolist(),
        "thresholds": (THRESHOLDS / 100).tolist(),
    }
    done = subprocess.run(
        [rliable_python, str(ORACLE)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs: dict[str, Any] = json.loads(done.stdout)
    for column, statistic in enumerate(STATISTICS):
        ours = estimate(statistic, tasks(noisy), seed=0, resamples=4_000)
        assert ours.value == pytest.approx(100 * theirs["aggregates"][column])
        bounds = [100 * row[column] for row in theirs["aggregates_interval"]]
        assert ours.interval is not None
        width = bounds[1] - bounds[0]
        assert ours.interval == pytest.approx(bounds, abs=0.08 * width)
    better = estimate(
        probability_of_improvement, tasks(noisy), tasks(baseline), seed=0, resamples=4_000
    )
    assert [better.value] == pytest.approx(theirs["improvement"])
    assert better.interval == pytest.approx(
        [row[0] for row in theirs["improvement_interval"]], abs=0.02
    )
    profile = partial(performance_profile, thresholds=THRESHOLDS)
    found = estimate(profile, tasks(noisy), seed=0, resamples=4_000)
    assert found.value == pytest.approx(theirs["profile"])
    assert found.interval is not None
    assert found.interval == pytest.approx(np.array(theirs["profile_interval"]), abs=0.03)
