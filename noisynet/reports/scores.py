"""Statistics of scores: the paper's equations, aggregates over tasks, bootstrap intervals.

Normalised scores are in per cent, as in the paper. A *task* is an environment, with one score for
each run. `Strata` holds the scores of several tasks with any number of runs each. Its leading axes
may hold many resamples at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats  # type: ignore[import-untyped]

Floats = NDArray[np.float64]

RESAMPLES: Final = 2_000
LEVEL: Final = 0.95
HUMAN: Final = 100.0
"""The optimality gap is the distance to this score."""


@dataclass(frozen=True)
class Reference:
    """The scores by which a task is normalised.

    Attributes:
        low: the score that becomes 0; a random agent's, on Atari.
        high: the score that becomes 100; a human's, on Atari.
    """

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


def improvement(noisy: float, baseline: float) -> float:
    """The last column of Table 1: the gain of a median in per cent of the baseline's."""
    return 100 * (noisy - baseline) / baseline


def run_score(curve: ArrayLike) -> float:
    """The score of a run: the maximum of its curve (section 4.1); NaN for an empty curve."""
    scores = np.asarray(curve, float)
    scores = scores[~np.isnan(scores)]
    return float(scores.max()) if scores.size else float("nan")


def standard_deviation(scores: ArrayLike) -> float:
    """The population standard deviation over seeds.

    The paper divides by n, not n − 1: its 300 ± 424 (Table 3, enduro) is the mean and deviation of
    0, 0 and 900, for which n − 1 would give 520.
    """
    return float(np.std(np.asarray(scores, float), ddof=0))


@dataclass(frozen=True)
class Tally:
    """The number of tasks on which an agent scores higher than, equal to and below another."""

    wins: int
    ties: int
    losses: int

    def __str__(self) -> str:
        return f"{self.wins}/{self.ties}/{self.losses}"


def tally(noisy: ArrayLike, baseline: ArrayLike) -> Tally:
    """Wins, ties and losses over tasks; both in the same order."""
    difference = np.asarray(noisy, float) - np.asarray(baseline, float)
    signs = [int((difference > 0).sum()), int((difference == 0).sum()), int((difference < 0).sum())]
    return Tally(*signs)


def mean_over_seeds(curves: ArrayLike) -> Floats:
    """Mean of curves [S, K] over the seeds that have a point, NaN if none has: [K]."""
    values = np.asarray(curves, float)
    present = ~np.isnan(values)
    total = np.where(present, values, 0.0).sum(axis=0)
    count = present.sum(axis=0)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


# --- aggregates over runs and tasks --------------------------------------------------------------


@dataclass(frozen=True)
class Strata:
    """The scores of all runs, task after task.

    Attributes:
        values: [..., P] scores, P = the number of runs of all tasks.
        counts: how many runs each task has; they sum to P.
    """

    values: Floats
    counts: tuple[int, ...]

    @classmethod
    def of(cls, tasks: Sequence[ArrayLike]) -> Strata:
        """From the scores of each task.

        Raises:
            ValueError: There is no task, or one has no scores.
        """
        arrays = [np.asarray(task, float).ravel() for task in tasks]
        if not arrays or not all(array.size for array in arrays):
            sizes = [array.size for array in arrays]
            raise ValueError(
                f"expected at least one task with at least one score each, got {sizes} scores"
            )
        return cls(np.concatenate(arrays), tuple(array.size for array in arrays))

    @property
    def starts(self) -> NDArray[np.int64]:
        """The offset of each task's scores."""
        return np.concatenate(([0], np.cumsum(self.counts)[:-1])).astype(np.int64)

    @property
    def repeated(self) -> bool:
        """Whether every task has at least two runs, as intervals require."""
        return min(self.counts) > 1

    def task_means(self) -> Floats:
        """The mean over runs of each task: [..., T]."""
        sums = np.add.reduceat(self.values, self.starts, axis=-1)
        return np.asarray(sums / np.asarray(self.counts, float))

    def task(self, index: int) -> Floats:
        """The scores of one task: [..., n]."""
        start = int(self.starts[index])
        return np.asarray(self.values[..., start : start + self.counts[index]])


Statistic = Callable[[Strata], Floats]


def mean_score(strata: Strata) -> Floats:
    """Mean over tasks of the mean over runs, as in Table 1."""
    return np.asarray(strata.task_means().mean(axis=-1))


def median_score(strata: Strata) -> Floats:
    """Median over tasks of the mean over runs, as in Table 1."""
    return np.asarray(np.median(strata.task_means(), axis=-1))


def interquartile_mean(strata: Strata) -> Floats:
    """Mean of the middle half of all runs of all tasks (Agarwal et al. 2021)."""
    return np.asarray(stats.trim_mean(strata.values, 0.25, axis=-1))


def optimality_gap(strata: Strata) -> Floats:
    """Mean shortfall of runs from 100; scores above 100 count as 100."""
    return np.asarray(HUMAN - np.minimum(strata.values, HUMAN).mean(axis=-1))


def probability_of_improvement(noisy: Strata, baseline: Strata) -> Floats:
    """P(a run of `noisy` scores higher than one of `baseline`), mean over tasks; a tie is ½."""
    _same_tasks(noisy, baseline)
    total = np.zeros(noisy.values.shape[:-1])
    for index in range(len(noisy.counts)):
        x = noisy.task(index)[..., :, None]  # [..., n, 1]
        y = baseline.task(index)[..., None, :]  # [..., 1, m]
        total = total + ((x > y) + 0.5 * (x == y)).mean(axis=(-1, -2))
    return np.asarray(total / len(noisy.counts))


def performance_profile(strata: Strata, thresholds: ArrayLike) -> Floats:
    """The fraction of runs that score more than each threshold: [..., K]."""
    levels = np.asarray(thresholds, float)
    return np.stack([(strata.values > level).mean(axis=-1) for level in levels], axis=-1)


def _same_tasks(first: Strata, second: Strata) -> None:
    if len(first.counts) != len(second.counts):
        raise ValueError(
            f"expected the same tasks for both agents, got {len(first.counts)} and "
            f"{len(second.counts)} tasks"
        )


# --- bootstrap -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A statistic with its confidence interval, None if there are too few runs."""

    value: float
    interval: tuple[float, float] | None


def resample(strata: Strata, generator: np.random.Generator, resamples: int) -> Strata:
    """Draw runs with replacement within each task: values [resamples, P]."""
    starts = np.repeat(strata.starts, strata.counts)
    counts = np.repeat(np.asarray(strata.counts), strata.counts)
    drawn = starts + (generator.random((resamples, starts.size)) * counts).astype(np.int64)
    return Strata(strata.values[drawn], strata.counts)


def percentile_interval(samples: Floats, level: float = LEVEL) -> Floats:
    """The central interval of bootstrap samples [B, ...]: [2, ...]."""
    tail = 50 * (1 - level)
    return np.asarray(np.percentile(samples, [tail, 100 - tail], axis=0))


def estimate(
    statistic: Callable[..., Floats], *strata: Strata, seed: int, resamples: int = RESAMPLES
) -> Estimate:
    """A statistic of one or more agents' scores and its bootstrap interval, reproducible by `seed`.

    The runs of every agent are resampled.
    """
    interval = None
    if all(scores.repeated for scores in strata):
        generator = np.random.default_rng(seed)
        resampled = [resample(scores, generator, resamples) for scores in strata]
        low, high = percentile_interval(statistic(*resampled))
        interval = (float(low), float(high))
    return Estimate(float(statistic(*strata)), interval)


def estimate_profile(
    strata: Strata, thresholds: ArrayLike, *, seed: int, resamples: int = RESAMPLES
) -> tuple[Floats, Floats | None]:
    """A performance profile [K] and its pointwise interval [2, K], None with too few runs."""
    profile = performance_profile(strata, thresholds)
    if not strata.repeated:
        return profile, None
    drawn = resample(strata, np.random.default_rng(seed), resamples)
    return profile, percentile_interval(performance_profile(drawn, thresholds))
