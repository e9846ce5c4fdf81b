"""Tables of a study's runs: their cost, the missing ones, and all of them."""

from __future__ import annotations

import numpy as np

from noisynet.reports.analysis import Analysis
from noisynet.reports.table_formats import Table, make_row, number_cell


def cost(analysis: Analysis) -> Table:
    """Throughput and duration of each contender's runs."""
    rows = []
    for contender in analysis.study.contenders:
        found = [
            run for (one, _), of in analysis.study.cells.items() if one == contender for run in of
        ]
        timed = [run.timing for run in found if run.timing.training_seconds > 0]
        if not timed:
            continue
        speeds = [timing.steps_per_second for timing in timed]
        training = sum(timing.training_seconds for timing in timed) / 3600
        evaluation = sum(timing.evaluation_seconds for timing in timed) / 3600
        rows.append(
            make_row(
                contender.title,
                number_cell(float(np.median(speeds)), 0),
                number_cell(min(speeds), 0),
                number_cell(max(speeds), 0),
                number_cell((training + evaluation) / len(timed)),
                number_cell(training),
                number_cell(evaluation),
                len(timed),
            )
        )
    notes = (
        "Steps are actions of the agent in training. Hours are wall-clock time, including work "
        "repeated after interruptions; runs may have shared a machine.",
    )
    return Table(
        "cost",
        "Throughput and time",
        ("agent", "median", "slowest", "fastest", "per run", "training", "evaluation", "runs"),
        tuple(rows),
        notes,
        (("steps per second", 3), ("hours", 3), ("", 1)),
    )


def missing(analysis: Analysis) -> Table:
    """Missing and unfinished runs of the study's agents, environments and seeds."""
    rows = []
    for one in analysis.study.missing():
        states = zip(one.unfinished, one.states, strict=True)
        absent = ", ".join(map(str, one.absent)) or "–"
        unfinished = ", ".join(f"{seed} ({state})" for seed, state in states) or "–"
        rows.append(make_row(one.contender.title, one.task, absent, unfinished))
    notes = ("Unfinished runs appear in the curves of their environments only.",)
    columns = ("agent", "environment", "seeds without a run", "unfinished seeds")
    return Table("missing", "Missing runs", columns, tuple(rows), notes)


def runs_table(analysis: Analysis) -> Table:
    """Every run."""
    study = analysis.study
    rows = []
    for (contender, task), found in sorted(study.cells.items()):
        for run in found:
            scores = run.curve.scores
            rows.append(
                make_row(
                    run.name,
                    contender.title,
                    task,
                    run.seed,
                    run.state if study.is_complete(run) else f"{run.state}, incomplete",
                    int(run.curve.points.max()) * study.period(contender)
                    if scores.size
                    else "no evaluation",
                    number_cell(float(scores.max()) if scores.size else None),
                    number_cell(float(scores[-1]) if scores.size else None),
                    number_cell(run.timing.steps_per_second, 0),
                    "; ".join(run.remarks),
                )
            )
    columns = ("run", "agent", "environment", "seed", "state", "evaluated at (frames)")
    return Table("runs", "Runs", (*columns, "best", "last", "steps/s", "remarks"), tuple(rows))
