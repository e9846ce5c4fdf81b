"""Statistics of scores: the paper's equations, aggregates over tasks, bootstrap intervals.

Normalised scores are in per cent, as in the paper. A *task* is an environment, with one score for
each run. Statistics of several tasks take `TaskScores`, with any number of runs for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats  # type: ignore[import-untyped]

Floats = NDArray[np.float64]
TaskScores = Sequence[Floats]
"""The scores of each task: [..., n] for n runs. Leading axes hold resamples."""

RESAMPLES: Final = 2_000
LEVEL: Final = 0.95
HUMAN: Final = 100.0
"""The optimality gap is the distance to this score."""


@dataclass(frozen=True)
class Reference:
    """The scores of a task that become 0 and 100; on Atari a random agent's and a human's."""

    low: float
    high: float


# --- the paper's equations -----------------------------------------------------------------------


def human_normalised(score: ArrayLike, reference: Reference) -> Floats:
    """Eq. 18: 0 for a random agent, 100 for a human."""
    span = reference.high - reference.low
    return np.asarray(100 * (np.asarray(score, float) - reference.low) / span)  # Eq. 18


def relative_score(noisy: float, baseline: float, reference: Reference) -> float:
    """Eq. 19: the gain over the baseline, relative to the better of human and baseline."""
    best = max(reference.high, baseline)
    return 100 * (noisy - baseline) / (best - reference.low)  # Eq. 19


def improvement(noisy: ArrayLike, baseline: ArrayLike) -> Floats:
    """The last column of Table 1: the gain of a median in per cent of the baseline's."""
    return np.asarray(100 * np.subtract(noisy, baseline) / np.asarray(baseline))


def run_scores(curves: ArrayLike) -> Floats:
    """The maximum of each curve [..., K] (section 4.1); NaN for curves without a point: [...]."""
    return np.asarray(np.fmax.reduce(np.asarray(curves, float), axis=-1, initial=np.nan))


def standard_deviation(scores: ArrayLike) -> float:
    """The population standard deviation over seeds.

    The paper divides by n, not n − 1: its 300 ± 424 (Table 3, enduro) is the mean and deviation of
    0, 0 and 900, for which n − 1 would give 520.
    """
    return float(np.std(np.asarray(scores, float), ddof=0))


def tally(noisy: ArrayLike, baseline: ArrayLike) -> str:
    """Wins/ties/losses over tasks, as in "2/1/1"; both in the same order."""
    signs = np.sign(np.asarray(noisy, float) - np.asarray(baseline, float))
    return "/".join(str(int((signs == sign).sum())) for sign in (1, 0, -1))


def mean_over_seeds(curves: ArrayLike) -> Floats:
    """Mean of curves [S, K] over the seeds that have a point, NaN if none has: [K]."""
    return np.asarray(np.ma.masked_invalid(curves).mean(axis=0).filled(np.nan))


# --- aggregates over runs and tasks --------------------------------------------------------------


def mean_score(tasks: TaskScores) -> Floats:
    """Mean over tasks of the mean over runs, as in Table 1."""
    return np.asarray(_task_means(tasks).mean(axis=-1))


def median_score(tasks: TaskScores) -> Floats:
    """Median over tasks of the mean over runs, as in Table 1."""
    return np.asarray(np.median(_task_means(tasks), axis=-1))


def interquartile_mean(tasks: TaskScores) -> Floats:
    """Mean of the middle half of all runs of all tasks (Agarwal et al. 2021)."""
    return np.asarray(stats.trim_mean(np.concatenate(tasks, axis=-1), 0.25, axis=-1))


def optimality_gap(tasks: TaskScores) -> Floats:
    """Mean shortfall of runs from 100; scores above 100 count as 100."""
    return np.asarray(HUMAN - np.minimum(np.concatenate(tasks, axis=-1), HUMAN).mean(axis=-1))


AGGREGATES: Final = {
    "mean": mean_score,
    "median": median_score,
    "interquartile mean": interquartile_mean,
    "optimality gap": optimality_gap,
}
"""The statistics of one agent's scores, by name."""


def probability_of_improvement(noisy: TaskScores, baseline: TaskScores) -> Floats:
    """P(a run of `noisy` scores higher than one of `baseline`), mean over tasks; a tie is ½."""
    chances = []
    for of_noisy, of_baseline in zip(noisy, baseline, strict=True):
        x, y = of_noisy[..., :, None], of_baseline[..., None, :]  # [..., n, 1] and [..., 1, m]
        chances.append(((x > y) + 0.5 * (x == y)).mean(axis=(-1, -2)))
    return np.asarray(sum(chances) / len(chances))


def performance_profile(tasks: TaskScores, thresholds: ArrayLike) -> Floats:
    """The fraction of runs that score more than each threshold: [..., K]."""
    runs = np.concatenate(tasks, axis=-1)
    return np.stack([(runs > level).mean(axis=-1) for level in np.asarray(thresholds)], axis=-1)


def _task_means(tasks: TaskScores) -> Floats:
    return np.stack([runs.mean(axis=-1) for runs in tasks], axis=-1)


# --- bootstrap -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A statistic [...] with its confidence interval [2, ...], None if there are too few runs."""

    value: Floats
    interval: Floats | None


def estimate(
    statistic: Callable[..., Floats], *agents: TaskScores, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """A statistic of one or more agents' scores and its bootstrap interval, reproducible by `seed`.

    The runs of every agent are resampled with replacement within each task.

    Raises:
        ValueError: An agent has no task, or a task has no scores.
    """
    sizes = [[len(runs) for runs in tasks] for tasks in agents]
    if not all(counts and all(counts) for counts in sizes):
        raise ValueError(f"expected tasks with at least one score each, got {sizes} scores")
    interval = None
    if min(map(min, sizes)) > 1:
        generator = np.random.default_rng(seed)
        resampled = [_resample(tasks, generator, resamples) for tasks in agents]
        tail = 50 * (1 - LEVEL)
        interval = np.percentile(statistic(*resampled), [tail, 100 - tail], axis=0)
    return Estimate(statistic(*agents), interval)


def _resample(tasks: TaskScores, generator: np.random.Generator, resamples: int) -> list[Floats]:
    """Draw runs with replacement within each task: [resamples, n] of each."""
    counts = [len(runs) for runs in tasks]
    uniform = np.split(generator.random((resamples, sum(counts))), np.cumsum(counts)[:-1], axis=1)
    return [
        runs[(drawn * len(runs)).astype(np.int64)]
        for runs, drawn in zip(tasks, uniform, strict=True)
    ]
