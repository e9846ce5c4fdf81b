"""Tables beyond the paper's: aggregates with intervals, and noise on against noise off."""

from __future__ import annotations

import numpy as np

from noisynet.reports.analysis import Analysis
from noisynet.reports.measured_tables import raw_cell
from noisynet.reports.scores import (
    interquartile_mean,
    mean_score,
    median_score,
    optimality_gap,
    tally,
)
from noisynet.reports.study import table_label
from noisynet.reports.table_formats import Table, interval_cell, make_row, number_cell


def comparison(analysis: Analysis) -> Table:
    """Every noisy agent against its baseline: wins, ties, losses, probability of improvement."""
    rows = []
    for noisy, baseline in analysis.study.pairs:
        tasks = analysis.tasks(noisy, baseline)
        if not tasks:
            continue
        better = analysis.improvement(noisy, baseline)
        relative = list(analysis.relative(noisy, baseline).values())
        published = [
            (ours.mean, theirs.mean)
            for task in analysis.study.tasks_of(noisy, baseline)
            if (ours := analysis.published(noisy, task)) is not None
            and (theirs := analysis.published(baseline, task)) is not None
        ]
        theirs_tally = tally([a for a, _ in published], [b for _, b in published])
        rows.append(
            make_row(
                f"{noisy.title} over {baseline.title}",
                str(analysis.tally(noisy, baseline)),
                str(theirs_tally) if published else "–",
                interval_cell(better.value, better.interval, 2),
                number_cell(float(np.median(relative)), 1),
                number_cell(float(np.mean(relative)), 1),
                len(tasks),
            )
        )
    notes = (
        "Wins, ties and losses: environments in which the mean score is higher, equal or lower.",
        "Probability of improvement: of a run of the noisy agent over one of its baseline, mean "
        f"over environments; a tie counts half. {_INTERVAL}",
        "Relative score: Eq. 19.",
    )
    return Table(
        "comparison",
        "NoisyNet against its baseline",
        (
            "agents",
            "wins/ties/losses",
            "published",
            "probability of improvement",
            "median relative score (%)",
            "mean relative score (%)",
            "environments",
        ),
        tuple(rows),
        notes,
    )


_INTERVAL = (
    "In brackets: 95 % interval of a stratified bootstrap over seeds, if every environment has at "
    "least two."
)


def aggregates(analysis: Analysis) -> Table:
    """Mean, median, interquartile mean and optimality gap of every contender."""
    statistics = (mean_score, median_score, interquartile_mean, optimality_gap)
    rows, counts = [], set()
    for contender in analysis.study.contenders:
        tasks = analysis.tasks(contender)
        if not tasks:
            continue
        strata = analysis.strata(contender, tasks)
        found = [analysis.estimate(statistic, contender, tasks) for statistic in statistics]
        counts.add(tuple(tasks))
        rows.append(
            make_row(
                contender.title,
                *(interval_cell(one.value, one.interval) for one in found),
                len(tasks),
                len(strata.values),
            )
        )
    notes = [analysis.normaliser.sentence, _INTERVAL]
    if len(counts) > 1:
        notes.append(
            "The agents have complete runs on different environments: do not compare these rows "
            "with each other. Table 1 compares agents on common environments."
        )
    columns = ("agent", "mean", "median", "interquartile mean", "optimality gap")
    return Table(
        "aggregates",
        f"Aggregate {analysis.normaliser.label}",
        (*columns, "environments", "runs"),
        tuple(rows),
        tuple(notes),
    )


def noise_on_and_off(analysis: Analysis) -> Table:
    """The same weights evaluated with noise and with mean weights."""
    study = analysis.study
    rows = []
    for contender in study.contenders:
        if not contender.style.noisy:
            continue
        for task in study.tasks_of(contender):
            on, off = study.scores(contender, task, "on"), study.scores(contender, task, "off")
            if on.size and off.size:
                reference = analysis.normaliser.references.get(task)
                span = reference.high - reference.low if reference else float("nan")
                gain = float(on.mean() - off.mean())
                rows.append(
                    make_row(
                        f"{contender.title}, {table_label(task)}",
                        raw_cell(on.tolist(), len(study.seeds), on.mean() > off.mean()),
                        raw_cell(off.tolist(), len(study.seeds), off.mean() > on.mean()),
                        number_cell(gain),
                        number_cell(100 * gain / span, 1),
                    )
                )
    notes = (
        "Noisy agents are evaluated twice at each evaluation: with noise, resampled at every "
        "action, and with the mean weights. Each score is the maximum of its own curve.",
    )
    return Table(
        "noise",
        "Noise on against off",
        ("agent, environment", "noise on", "noise off", "on − off", "normalised difference (%)"),
        tuple(rows),
        notes,
    )
