"""Tables of a study's runs: their cost, the missing ones, and all of them."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import numpy as np

from noisynet.reports.agents import Contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.table_formats import Cell, Table, number_cell


def run_tables(analysis: Analysis, report: Path) -> list[Table]:
    """Every table of runs; links to runs start at the folder of the report."""
    return [
        *(cost(analysis), missing(analysis), configuration(analysis), versions(analysis)),
        runs_table(analysis, report),
    ]


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


def configuration(analysis: Analysis) -> Table:
    """The settings of every contender."""
    study = analysis.study
    notes = ("Several values: those of different environments.",)
    columns = ("setting", *(contender.title for contender in study.contenders))
    table = Table("configuration", "Configuration", columns, notes, collapsed=True)
    found: dict[str, dict[Contender, list[str]]] = {}
    for (contender, _), runs in study.cells.items():
        for key, value in (item for run in runs for item in run.settings.items()):
            values = found.setdefault(key, {}).setdefault(contender, [])
            if value not in values:
                values.append(value)
    for key, by_contender in sorted(found.items()):
        cells = ["; ".join(by_contender.get(contender, ["–"])) for contender in study.contenders]
        table.add(key, *(cell.replace('"', "") for cell in cells))
    return table


def versions(analysis: Analysis) -> Table:
    """What the runs were trained with: versions, commit, machine and device."""
    counts = Counter(text for run in analysis.study.runs for text in run.made_by)
    table = Table("versions", "Versions and machines", ("trained with", "runs"), collapsed=True)
    for text, count in counts.most_common():
        table.add(text, count)
    return table


def runs_table(analysis: Analysis, report: Path) -> Table:
    """Every run, with a link from the folder of the report to its own."""
    columns = ("run", "agent", "environment", "seed", "state", "evaluated at (frames)")
    table = Table("runs", "Runs", (*columns, "best", "last", "steps/s", "remarks"))
    study = analysis.study
    for (contender, task), runs in study.cells.items():
        for run in runs:
            scores = run.curve[~np.isnan(run.curve)]
            table.add(
                Cell(run.name, link=_link(run.path, report)),
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


def _link(folder: Path, report: Path) -> str:
    """The relative address of a folder; it begins with a dot, so that it never names a scheme."""
    path = os.path.relpath(os.fsencode(folder.resolve()), os.fsencode(report.resolve()))
    return f"./{quote(path)}/"
