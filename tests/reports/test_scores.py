"""Statistics of scores, against hand-computed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from noisynet.reports.scores import (
    Floats,
    Reference,
    estimate,
    human_normalised,
    improvement,
    interquartile_mean,
    mean_over_seeds,
    mean_score,
    median_score,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    relative_score,
    run_scores,
    standard_deviation,
    tally,
)

# Three tasks with 2, 2 and 4 runs.
TASKS = ([10.0, 30.0], [50.0, 70.0], [100.0, 120.0, 140.0, 200.0])


def arrays(tasks: Sequence[Sequence[float]]) -> list[Floats]:
    return [np.array(runs, float) for runs in tasks]


def test_equation_18_is_0_for_random_and_100_for_human() -> None:
    reference = Reference(low=-20.0, high=30.0)
    assert human_normalised([-20.0, 30.0, 5.0, 55.0], reference).tolist() == [0, 100, 50, 150]


def test_equation_19_divides_by_the_better_of_human_and_baseline() -> None:
    reference = Reference(low=10.0, high=110.0)
    assert relative_score(noisy=60.0, baseline=40.0, reference=reference) == 20.0
    assert relative_score(noisy=260.0, baseline=210.0, reference=reference) == 25.0
    assert relative_score(noisy=10.0, baseline=210.0, reference=reference) == -100.0


def test_improvement_is_relative_to_the_baselines_median() -> None:
    assert improvement(noisy=123, baseline=82) == 50.0


def test_the_score_of_a_run_is_the_maximum_of_its_curve() -> None:
    assert run_scores([1.0, 7.0, 3.0]) == 7.0
    assert run_scores([-5.0, float("nan"), -3.0]) == -3.0
    assert np.isnan(run_scores([]))


def test_the_standard_deviation_is_the_papers() -> None:
    assert (
        round(standard_deviation([0.0, 0.0, 900.0])) == 424
    )  # Table 3: enduro, NoisyNet-A3C, 300 ± 424
    assert standard_deviation([5.0]) == 0.0


def test_curves_are_averaged_at_each_point_over_the_seeds_that_have_it() -> None:
    nan = float("nan")
    curves = [[1.0, 2.0, nan, nan], [3.0, nan, 5.0, nan]]
    np.testing.assert_array_equal(mean_over_seeds(curves), [2.0, 2.0, 5.0, nan])


def test_tally_counts_wins_ties_and_losses() -> None:
    assert tally(noisy=[3.0, 1.0, 2.0, 9.0], baseline=[2.0, 1.0, 4.0, 7.0]) == "2/1/1"
    assert tally(noisy=[1.0, 2.0, 3.0], baseline=[2.0, 3.0, 4.0]) == "0/0/3"


def test_mean_and_median_are_over_tasks_of_means_over_runs() -> None:
    # The means over runs are 20, 60 and 140.
    assert mean_score(arrays(TASKS)) == pytest.approx(220 / 3)
    assert median_score(arrays(TASKS)) == 60


def test_the_interquartile_mean_is_of_the_middle_half_of_all_runs() -> None:
    assert interquartile_mean(arrays(TASKS)) == (50 + 70 + 100 + 120) / 4


def test_the_optimality_gap_ignores_scores_above_100() -> None:
    assert optimality_gap(arrays(TASKS)) == 100 - (10 + 30 + 50 + 70 + 4 * 100) / 8


def test_a_tie_is_half_an_improvement() -> None:
    noisy, baseline = arrays([[2.0, 4.0], [1.0]]), arrays([[1.0, 2.0, 5.0], [1.0]])
    # first task: 2 beats 1 and ties 2, 4 beats 1 and 2: 3.5 of 6; second: a tie
    assert probability_of_improvement(noisy, baseline) == pytest.approx((3.5 / 6 + 0.5) / 2)


def test_a_profile_is_the_fraction_of_runs_above_each_threshold() -> None:
    profile = performance_profile(arrays(TASKS), [0.0, 50.0, 100.0, 200.0])
    assert profile.tolist() == [1.0, 5 / 8, 3 / 8, 0.0]


def test_a_task_without_scores_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least one score each, got \[\[1, 0\]\] scores"):
        estimate(mean_score, arrays([[1.0], []]))
    with pytest.raises(ValueError, match=r"expected tasks .* got \[\[\]\] scores"):
        estimate(mean_score, [])


def test_agents_are_compared_on_the_same_tasks_only() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        probability_of_improvement(arrays([[1.0]]), arrays([[1.0], [2.0]]))


def test_runs_are_resampled_within_their_task() -> None:
    # Every run of a task scores the same, so no resample can differ.
    strata = arrays([[1.0, 1.0], [5.0, 5.0, 5.0], [9.0, 9.0]])
    for statistic in (mean_score, median_score, interquartile_mean, optimality_gap):
        found = estimate(statistic, strata, seed=3)
        assert found.interval is not None
        assert found.interval.tolist() == [found.value, found.value]


def test_the_interval_of_a_mean_is_its_bootstrap_distribution() -> None:
    # One task with scores 0 and 1: the mean of two samples is 0, ½ or 1 with ¼, ½ and ¼.
    strata = arrays([[0.0, 1.0]])
    few = estimate(mean_score, strata, seed=0)
    assert few.interval is not None
    assert few.interval.tolist() == [0.0, 1.0]
    # Ten tasks of that kind: normal to a good approximation, deviation √(1/8)/√10.
    found = estimate(mean_score, arrays([[0.0, 1.0]] * 10), seed=0, resamples=20_000)
    assert found.interval is not None
    assert found.interval == pytest.approx((0.5 - 1.96 * 0.1118, 0.5 + 1.96 * 0.1118), abs=0.02)


def test_the_same_seed_gives_the_same_interval_and_another_gives_another() -> None:
    strata = [np.arange(7.0), np.arange(5.0) ** 2]
    first, again, other = (estimate(mean_score, strata, seed=seed) for seed in (1, 1, 2))
    bounds = [
        found.interval.tolist() for found in (first, again, other) if found.interval is not None
    ]
    assert bounds[0] == bounds[1] != bounds[2]


def test_without_repeated_runs_there_is_no_interval() -> None:
    single, double = arrays([[1.0], [2.0, 3.0]]), arrays([[1.0, 2.0], [2.0, 3.0]])
    assert estimate(mean_score, single, seed=0).interval is None
    assert estimate(probability_of_improvement, double, single, seed=0).interval is None
    profile = partial(performance_profile, thresholds=[1.0])
    assert estimate(profile, single, seed=0).interval is None
    assert estimate(probability_of_improvement, double, double, seed=0).interval is not None


def test_the_interval_of_a_profile_holds_at_each_threshold() -> None:
    profile = partial(performance_profile, thresholds=[0.0, 25.0, 500.0])
    found = estimate(profile, arrays(TASKS), seed=0)
    bounds = found.interval
    assert bounds is not None
    assert bounds.shape == (2, 3)
    assert (bounds[0] <= found.value).all()
    assert (found.value <= bounds[1]).all()
    assert bounds[:, 0].tolist() == [1.0, 1.0]
    assert bounds[:, 2].tolist() == [0.0, 0.0]
