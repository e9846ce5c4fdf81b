"""The paper's Tables 1 to 3 and the numbers of Figure 1 from runs, next to the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace

import numpy as np

from noisynet.reports.agents import FACTORISED_A3C, Contender
from noisynet.reports.analysis import PUBLISHED_FRAMES, Analysis
from noisynet.reports.published import PRINTED
from noisynet.reports.scores import improvement, mean_score, median_score, standard_deviation
from noisynet.reports.study import table_label
from noisynet.reports.table_formats import Cell, Table, make_row, number_cell

# --- Tables 1 and 2 ------------------------------------------------------------------------------


def table_1(analysis: Analysis) -> Table:
    """Mean and median normalised score of each agent and its NoisyNet version."""
    pairs = [pair for pair in _paper_pairs(analysis) if pair[0].agent != FACTORISED_A3C]
    return _means(analysis, pairs, "table-1", "Table 1")


def table_2(analysis: Analysis) -> Table:
    """Table 1 with factorised NoisyNet-A3C; empty without such runs."""
    pairs = _paper_pairs(analysis)
    if not any(noisy.agent == FACTORISED_A3C for noisy, _ in pairs):
        pairs = []
    return _means(analysis, pairs, "table-2", "Table 2, with factorised A3C")


def other_agents(analysis: Analysis) -> Table:
    """Table 1 for agents that are not in the paper; empty without such runs."""
    pairs = [pair for pair in analysis.study.pairs if not pair[0].style.in_paper]
    return _means(analysis, pairs, "other-agents", "Agents that are not in the paper")


def _paper_pairs(analysis: Analysis) -> list[tuple[Contender, Contender]]:
    return [pair for pair in analysis.study.pairs if pair[0].style.in_paper]


def _means(
    analysis: Analysis, pairs: Sequence[tuple[Contender, Contender]], name: str, title: str
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for noisy, baseline in pairs:
        tasks = analysis.tasks(noisy, baseline)
        if not tasks:
            continue
        heading = baseline.title
        if noisy.agent == FACTORISED_A3C or noisy.variant:
            heading = f"{baseline.title} and {noisy.title}"
        measured = [analysis.strata(contender, tasks) for contender in (baseline, noisy)]
        published = [analysis.published_strata(contender, tasks) for contender in (baseline, noisy)]
        for label, both in (("measured", measured), ("published, same games", published)):
            if both[0] is not None and both[1] is not None:
                values = [float(f(one)) for one in both if one for f in (mean_score, median_score)]
                rows.append(_means_row(f"{heading}, {label}", values, len(tasks)))
        if analysis.study.family == "atari" and noisy.style.in_paper and not noisy.variant:
            printed = PRINTED[noisy.agent]
            *values, gain = astuple(printed)
            row = _means_row(f"{heading}, printed", values, 57, digits=0)
            rows.append((*row[:-2], number_cell(gain, 0), row[-1]))
    notes = [analysis.normaliser.sentence, _SCORE]
    if any("published" in row[0].text for row in rows):
        notes.append(
            "published, same games: the paper's scores on the measured games; printed: the paper's "
            "numbers for 57 games. The published agents were trained for "
            f"{PUBLISHED_FRAMES['value']:,} frames (A3C: {PUBLISHED_FRAMES['actor-critic']:,})."
        )
    return Table(
        name,
        f"{title}: mean and median {analysis.normaliser.label}",
        ("agents", "mean", "median", "mean", "median", "improvement on median (%)", "environments"),
        tuple(rows),
        tuple(notes),
        (("baseline", 2), ("NoisyNet", 2), ("", 2)),
    )


_SCORE = (
    "A run's score is the maximum of its evaluations; seeds are averaged (section 4.1). Only "
    "complete runs count, on environments on which both agents have some."
)


def _means_row(
    heading: str, values: Sequence[float], tasks: int, digits: int = 1
) -> tuple[Cell, ...]:
    """Mean and median of the baseline and of the noisy agent; the better ones are marked."""
    cells = [number_cell(value, digits) for value in values]
    for i in (0, 1):
        better = i if values[i] > values[i + 2] else i + 2
        if values[i] != values[i + 2]:
            cells[better] = replace(cells[better], best=True)
    gain = improvement(values[3], values[1]) if values[1] > 0 else None  # otherwise undefined
    return make_row(heading, *cells, number_cell(gain, 0), tasks)


# --- Table 3 and Figure 1 ------------------------------------------------------------------------


def raw_scores(analysis: Analysis) -> Table:
    """Maximal scores, mean ± standard deviation over seeds, next to the published ones."""
    study = analysis.study
    shown = [contender for contender in study.contenders if study.tasks_of(contender)]
    atari = study.family == "atari"
    with_published = [
        contender
        for contender in shown
        if any(analysis.published(contender, t) for t in study.tasks)
    ]
    columns, groups = ["environment"], [("reference", 2)]
    columns += ["human", "random"] if atari else ["highest", "lowest"]
    for contender in shown:
        has = contender in with_published
        columns += ["measured", "published"] if has else ["measured"]
        groups.append((contender.title, 2 if has else 1))
    rows = []
    for task in study.tasks:
        reference = analysis.normaliser.references.get(task)
        limits = (reference.high, reference.low) if reference else (None, None)
        cells = [number_cell(limit, 1 if atari else None) for limit in limits]
        scores = {contender: study.scores(contender, task) for contender in shown}
        means = {
            contender: float(found.mean()) for contender, found in scores.items() if found.size
        }
        for contender in shown:
            best = contender in means and means[contender] == max(means.values()) > min(
                means.values()
            )
            cells.append(raw_cell(scores[contender].tolist(), len(study.seeds), best))
            if contender in with_published:
                score = analysis.published(contender, task)
                cells.append(
                    number_cell(score.mean, 0, spread=score.std) if score else number_cell(None)
                )
        if means:
            rows.append(make_row(table_label(task), *cells))
    notes = [
        "Maximum of a run's evaluations, mean ± population standard deviation over seeds, as in "
        "the paper; (n) where fewer seeds than elsewhere are complete; no ± for one seed.",
    ]
    others = [contender.title for contender in shown if not contender.style.in_paper]
    if others:
        notes.append(f"Not in the paper: {', '.join(others)}.")
    title = "Table 3: raw scores"
    return Table("table-3", title, tuple(columns), tuple(rows), tuple(notes), tuple(groups))


def raw_cell(scores: Sequence[float], seeds: int, best: bool) -> Cell:
    """Mean ± standard deviation; followed by the number of scores if that is below `seeds`."""
    if not scores:
        return number_cell(None)
    deviation = standard_deviation(scores) if len(scores) > 1 else None
    cell = number_cell(float(np.mean(scores)), spread=deviation)
    few = f" ({len(scores)})" if len(scores) < seeds else ""
    return replace(cell, text=cell.text + few, best=best)


def relative_scores(analysis: Analysis) -> Table:
    """The numbers of Figure 1."""
    study = analysis.study
    pairs = [pair for pair in study.pairs if analysis.tasks(*pair)]
    columns, groups, values = ["environment"], [], []
    for noisy, baseline in pairs:
        measured = analysis.relative(noisy, baseline)
        published = analysis.published_relative(noisy, baseline, list(measured))
        values.append(measured)
        columns.append("measured")
        if published:
            values.append(published)
            columns.append("published")
        groups.append((f"{noisy.title} over {baseline.title}", 2 if published else 1))
    rows = [
        make_row(table_label(task), *(number_cell(found.get(task), 1) for found in values))
        for task in study.tasks
        if any(task in found for found in values)
    ]
    notes = ("100 × (NoisyNet − baseline) / (max(high, baseline) − low), Eq. 19.",)
    title = "Relative score of NoisyNet over its baseline (%)"
    return Table("relative", title, tuple(columns), tuple(rows), notes, tuple(groups))
