"""Computes statistics and intervals by rliable; run by a Python that has it.

Standard input: {"noisy": [[…]], "baseline": [[…]], "thresholds": […]}, scores [runs][tasks] as
fractions. Standard output: the statistics of `noisynet.reports.scores`, as fractions.
"""

import json
import sys

import numpy as np
from rliable import library, metrics  # type: ignore[import-not-found]

REPETITIONS = 4_000


def main() -> None:
    given = json.load(sys.stdin)
    noisy, baseline = (np.array(given[name]) for name in ("noisy", "baseline"))

    def aggregates(scores):  # type: ignore[no-untyped-def]
        return np.array(
            [
                metrics.aggregate_mean(scores),
                metrics.aggregate_median(scores),
                metrics.aggregate_iqm(scores),
                metrics.aggregate_optimality_gap(scores),
            ]
        )

    def improvement(x, y):  # type: ignore[no-untyped-def]
        return np.array([metrics.probability_of_improvement(x, y)])

    points, intervals = library.get_interval_estimates(
        {"noisy": noisy}, aggregates, reps=REPETITIONS
    )
    better, better_interval = library.get_interval_estimates(
        {"pair": (noisy, baseline)}, improvement, reps=REPETITIONS
    )
    thresholds = np.array(given["thresholds"])
    profiles, profile_intervals = library.create_performance_profile(
        {"noisy": noisy}, thresholds, reps=REPETITIONS
    )
    found = {
        "aggregates": points["noisy"].tolist(),
        "aggregates_interval": intervals["noisy"].tolist(),
        "improvement": better["pair"].tolist(),
        "improvement_interval": better_interval["pair"].tolist(),
        "profile": profiles["noisy"].tolist(),
        "profile_interval": profile_intervals["noisy"].tolist(),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
