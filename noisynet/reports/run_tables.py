"""What a study took, what is missing from it, and every run in it."""

from __future__ import annotations

import numpy as np

from noisynet.reports.analysis import Analysis
from noisynet.reports.table_formats import Table, number, words


def cost(analysis: Analysis) -> Table:
    """Speed and time of each contender's runs."""
    rows = []
    for who in analysis.study.contenders:
        found = [run for (one, _), of in analysis.study.cells.items() if one == who for run in of]
        timed = [run.timing for run in found if run.timing.training_seconds > 0]
        if not timed:
            continue
        speeds = [timing.steps_per_second for timing in timed]
        training = sum(timing.training_seconds for timing in timed) / 3600
        evaluation = sum(timing.evaluation_seconds for timing in timed) / 3600
        rows.append(
            (
                words(who.title),
                number(float(np.median(speeds)), 0),
                number(min(speeds), 0),
                number(max(speeds), 0),
                number((training + evaluation) / len(timed)),
                number(training),
                number(evaluation),
                number(len(timed), 0),
            )
        )
    notes = (
        "Steps are actions of the agent in training. Hours are wall-clock, work that was repeated "
        "after interruptions included; runs may have shared a machine.",
    )
    return Table(
        "cost",
        "Speed and time",
        (
            "agent",
            "median",
            "slowest",
            "fastest",
            "for each run",
            "training",
            "evaluation",
            "runs",
        ),
        tuple(rows),
        notes,
        (("steps per second", 3), ("hours", 3), ("", 1)),
    )


def missing(analysis: Analysis) -> Table:
    """What a full study of the same agents, environments and seeds would have besides."""
    rows = tuple(
        (
            words(one.who.title),
            words(one.task),
            words(", ".join(map(str, one.absent)) or "–"),
            words(
                ", ".join(
                    f"{seed} ({state})"
                    for seed, state in zip(one.unfinished, one.states, strict=True)
                )
                or "–"
            ),
        )
        for one in analysis.study.missing()
    )
    notes = (
        "Unfinished runs are drawn in the curves of single environments, and count nowhere else.",
    )
    columns = ("agent", "environment", "seeds without a run", "unfinished seeds")
    return Table("missing", "What is missing", columns, rows, notes)


def runs(analysis: Analysis) -> Table:
    """Every run that was read."""
    study = analysis.study
    rows = []
    for (who, task), found in sorted(study.cells.items()):
        for run in found:
            scores = run.curve.scores
            rows.append(
                (
                    words(run.name),
                    words(who.title),
                    words(task),
                    number(run.seed, 0),
                    words(run.state if study.is_complete(run) else f"{run.state}, not complete"),
                    number(int(run.curve.points.max()) * study.period(who), 0)
                    if scores.size
                    else words("no evaluation"),
                    number(float(scores.max()) if scores.size else None),
                    number(float(scores[-1]) if scores.size else None),
                    number(run.timing.steps_per_second, 0),
                    words("; ".join(run.remarks)),
                )
            )
    columns = ("run", "agent", "environment", "seed", "state", "evaluated at (frames)")
    return Table("runs", "Runs", (*columns, "best", "last", "steps/s", "remarks"), tuple(rows))
