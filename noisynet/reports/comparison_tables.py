"""What the paper lacks: aggregates with intervals, probabilities, noise on against off."""

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
from noisynet.reports.table_formats import Table, interval, number, words


def comparison(analysis: Analysis) -> Table:
    """Wins, ties and losses, and how likely a noisy run is to score higher."""
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
            (
                words(f"{noisy.title} over {baseline.title}"),
                words(str(analysis.tally(noisy, baseline))),
                words(str(theirs_tally) if published else "–"),
                interval(better.value, better.interval, 2),
                number(float(np.median(relative)), 1),
                number(float(np.mean(relative)), 1),
                number(len(tasks), 0),
            )
        )
    notes = (
        "Wins, ties and losses are environments in which the mean score is higher, equal, lower.",
        "Probability of improvement: that a run of the first scores higher than one of the second, "
        f"mean over environments, a tie counting half. {_INTERVAL}",
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
    "In brackets: 95 % interval of a stratified bootstrap over seeds, where every environment has "
    "at least two."
)


def aggregates(analysis: Analysis) -> Table:
    """Mean, median, interquartile mean and optimality gap of every contender."""
    statistics = (mean_score, median_score, interquartile_mean, optimality_gap)
    rows, counts = [], set()
    for who in analysis.study.contenders:
        tasks = analysis.tasks(who)
        if not tasks:
            continue
        strata = analysis.strata(who, tasks)
        found = [analysis.estimate(statistic, who, tasks) for statistic in statistics]
        counts.add(tuple(tasks))
        rows.append(
            (
                words(who.title),
                *(interval(one.value, one.interval) for one in found),
                number(len(tasks), 0),
                number(len(strata.values), 0),
            )
        )
    notes = [analysis.normaliser.sentence, _INTERVAL]
    if len(counts) > 1:
        notes.append(
            "The agents have complete runs on different environments, so these rows must not be "
            "compared with each other; Table 1 compares on common ones."
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
    for who in study.contenders:
        if not who.style.noisy:
            continue
        for task in study.tasks_of(who):
            on, off = study.scores(who, task, "on"), study.scores(who, task, "off")
            if on.size and off.size:
                reference = analysis.normaliser.references.get(task)
                span = reference.high - reference.low if reference else float("nan")
                gain = float(on.mean() - off.mean())
                rows.append(
                    (
                        words(f"{who.title}, {task.removeprefix('atari/')}"),
                        raw_cell(on.tolist(), len(study.seeds), on.mean() > off.mean()),
                        raw_cell(off.tolist(), len(study.seeds), off.mean() > on.mean()),
                        number(gain),
                        number(100 * gain / span, 1),
                    )
                )
    notes = (
        "Every evaluation of a noisy agent is played twice with the same weights: with noise, "
        "redrawn at every action, and with the mean weights. Each score is the maximum of its own "
        "curve.",
    )
    return Table(
        "noise",
        "Noise on against off",
        ("agent, environment", "noise on", "noise off", "on − off", "normalised difference (%)"),
        tuple(rows),
        notes,
    )
