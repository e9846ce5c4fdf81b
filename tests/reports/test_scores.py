"""Statistics of scores, against hand-computed numbers."""

from __future__ import annotations

import numpy as np
import pytest

from noisynet.reports.scores import (
    Reference,
    Strata,
    Tally,
    estimate,
    estimate_profile,
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
    run_score,
    standard_deviation,
    tally,
)

# Three tasks with 2, 2 and 4 runs.
TASKS = ([10.0, 30.0], [50.0, 70.0], [100.0, 120.0, 140.0, 200.0])


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
    assert run_score([1.0, 7.0, 3.0]) == 7.0
    assert run_score([-5.0, float("nan"), -3.0]) == -3.0
    assert np.isnan(run_score([]))


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
    counted = tally(noisy=[3.0, 1.0, 2.0, 9.0], baseline=[2.0, 1.0, 4.0, 8.0])
    assert counted == Tally(wins=2, ties=1, losses=1)
    assert str(counted) == "2/1/1"


def test_mean_and_median_are_over_tasks_of_means_over_runs() -> None:
    strata = Strata.of(TASKS)
    assert strata.task_means().tolist() == [20, 60, 140]
    assert mean_score(strata) == pytest.approx(220 / 3)
    assert median_score(strata) == 60


def test_the_interquartile_mean_is_of_the_middle_half_of_all_runs() -> None:
    assert interquartile_mean(Strata.of(TASKS)) == (50 + 70 + 100 + 120) / 4


def test_the_optimality_gap_ignores_scores_above_100() -> None:
    assert optimality_gap(Strata.of(TASKS)) == 100 - (10 + 30 + 50 + 70 + 4 * 100) / 8


def test_a_tie_is_half_an_improvement() -> None:
    noisy, baseline = Strata.of([[2.0, 4.0], [1.0]]), Strata.of([[1.0, 2.0, 5.0], [1.0]])
    # first task: 2 beats 1 and ties 2, 4 beats 1 and 2: 3.5 of 6; second: a tie
    assert probability_of_improvement(noisy, baseline) == pytest.approx((3.5 / 6 + 0.5) / 2)


def test_a_profile_is_the_fraction_of_runs_above_each_threshold() -> None:
    profile = performance_profile(Strata.of(TASKS), [0.0, 50.0, 100.0, 200.0])
    assert profile.tolist() == [1.0, 5 / 8, 3 / 8, 0.0]


def test_a_task_without_scores_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got \[1, 0\] scores"):
        Strata.of([[1.0], []])
    with pytest.raises(ValueError, match="at least one task"):
        Strata.of([])


def test_agents_are_compared_on_the_same_tasks_only() -> None:
    with pytest.raises(ValueError, match="got 1 and 2 tasks"):
        probability_of_improvement(Strata.of([[1.0]]), Strata.of([[1.0], [2.0]]))


def test_runs_are_resampled_within_their_task() -> None:
    # Every run of a task scores the same, so no resample can differ.
    strata = Strata.of([[1.0, 1.0], [5.0, 5.0, 5.0], [9.0, 9.0]])
    for statistic in (mean_score, median_score, interquartile_mean, optimality_gap):
        found = estimate(statistic, strata, seed=3)
        assert found.interval == (found.value, found.value)


def test_the_interval_of_a_mean_is_its_bootstrap_distribution() -> None:
    # One task with scores 0 and 1: the mean of two samples is 0, ½ or 1 with ¼, ½ and ¼.
    strata = Strata.of([[0.0, 1.0]])
    assert estimate(mean_score, strata, seed=0).interval == (0.0, 1.0)
    # Ten tasks of that kind: normal to a good approximation, deviation √(1/8)/√10.
    found = estimate(mean_score, Strata.of([[0.0, 1.0]] * 10), seed=0, resamples=20_000)
    assert found.interval is not None
    assert found.interval == pytest.approx((0.5 - 1.96 * 0.1118, 0.5 + 1.96 * 0.1118), abs=0.02)


def test_the_same_seed_gives_the_same_interval_and_another_gives_another() -> None:
    strata = Strata.of([np.arange(7.0), np.arange(5.0) ** 2])
    first, again, other = (estimate(mean_score, strata, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.interval != other.interval


def test_without_repeated_runs_there_is_no_interval() -> None:
    single, double = Strata.of([[1.0], [2.0, 3.0]]), Strata.of([[1.0, 2.0], [2.0, 3.0]])
    assert estimate(mean_score, single, seed=0).interval is None
    assert estimate(probability_of_improvement, double, single, seed=0).interval is None
    assert estimate_profile(single, [1.0], seed=0)[1] is None
    assert estimate(probability_of_improvement, double, double, seed=0).interval is not None


def test_the_interval_of_a_profile_holds_at_each_threshold() -> None:
    profile, bounds = estimate_profile(Strata.of(TASKS), [0.0, 25.0, 500.0], seed=0)
    assert bounds is not None
    assert bounds.shape == (2, 3)
    assert (bounds[0] <= profile).all()
    assert (profile <= bounds[1]).all()
    assert bounds[:, 0].tolist() == [1.0, 1.0]
    assert bounds[:, 2].tolist() == [0.0, 0.0]
