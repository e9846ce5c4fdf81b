"""Tables of a study's runs: their cost, the missing ones, and all of them."""

from __future__ import annotations

import numpy as np

from noisynet.reports.analysis import Analysis
from noisynet.reports.table_formats import Table, number_cell


def run_tables(analysis: Analysis) -> list[Table]:
    """Every table of runs."""
    return [cost(analysis), missing(analysis), runs_table(analysis)]


def cost(analysis: Analysis) -> Table:
    """Throughput and duration of each contender's runs."""
    table = Table(
        "cost",
        "Throughput and time",
        ("agent", "median", "slowest", "fastest", "per run", "training", "evaluation", "runs"),
        (
            "Steps are actions of the agent in training. Hours are wall-clock time, including work "
            "repeated after interruptions; runs may have shared a machine.",
        ),
        (("steps per second", 3), ("hours", 3), ("", 1)),
    )
    cells = analysis.study.cells
    for contender in analysis.study.contenders:
        found = [run for (one, _), runs in cells.items() if one == contender for run in runs]
        timed = [run for run in found if run.training_seconds > 0]
        if not timed:
            continue
        speeds = [run.steps_per_second for run in timed]
        training = sum(run.training_seconds for run in timed) / 3600
        evaluation = sum(run.evaluation_seconds for run in timed) / 3600
        table.add(
            contender.title,
            *(number_cell(speed, 0) for speed in (np.median(speeds), min(speeds), max(speeds))),
            (training + evaluation) / len(timed),
            training,
            evaluation,
            len(timed),
        )
    return table


def missing(analysis: Analysis) -> Table:
    """Missing and unfinished runs of the study's agents, environments and seeds."""
    columns = ("agent", "environment", "seeds without a run", "unfinished seeds")
    notes = ("Unfinished runs appear in the curves of their environments only.",)
    table, study = Table("missing", "Missing runs", columns, notes), analysis.study
    for contender in study.contenders:
        for task in study.tasks:
            absent = ", ".join(map(str, study.absent(contender, task)))
            runs = study.unfinished(contender, task)
            unfinished = ", ".join(f"{run.seed} ({run.state})" for run in runs)
            if absent or unfinished:
                table.add(contender.title, task, absent or "–", unfinished or "–")
    return table


def runs_table(analysis: Analysis) -> Table:
    """Every run."""
    columns = ("run", "agent", "environment", "seed", "state", "evaluated at (frames)")
    table = Table("runs", "Runs", (*columns, "best", "last", "steps/s", "remarks"))
    study = analysis.study
    for (contender, task), runs in study.cells.items():
        for run in runs:
            scores = run.curve[~np.isnan(run.curve)]
            table.add(
                run.name,
                contender.title,
                task,
                run.seed,
                run.state if study.is_complete(run) else f"{run.state}, incomplete",
                run.protocol.frames(len(run.curve)) if scores.size else "no evaluation",
                scores.max() if scores.size else None,
                scores[-1] if scores.size else None,
                number_cell(run.steps_per_second, 0),
                "; ".join(run.remarks),
            )
    return table
