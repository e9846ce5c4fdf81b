"""Tables of scores: the paper's Tables 1 to 3 next to the published numbers, and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noisynet.reports.agents import FACTORISED_A3C, Contender
from noisynet.reports.analysis import AGGREGATED_TASKS, PUBLISHED_FRAMES, Analysis
from noisynet.reports.published import PRINTED
from noisynet.reports.scores import (
    AGGREGATES,
    Floats,
    estimate,
    improvement,
    mean_score,
    median_score,
    standard_deviation,
)
from noisynet.reports.study import table_label
from noisynet.reports.table_formats import Cell, Table, interval_cell, number_cell

Pairs = Sequence[tuple[Contender, Contender]]
_INTERVAL = (
    "In brackets: 95 % interval of a stratified bootstrap over seeds, if every environment has at "
    "least two."
)


def score_tables(analysis: Analysis) -> list[Table]:
    """Every table of scores; without rows if there are no runs for it."""
    return [
        *(table_1(analysis), table_2(analysis), other_agents(analysis), comparison(analysis)),
        *(aggregates(analysis), raw_scores(analysis), relative_scores(analysis)),
        noise_on_and_off(analysis),
    ]


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


def _paper_pairs(analysis: Analysis) -> Pairs:
    return [pair for pair in analysis.study.pairs if pair[0].style.in_paper]


def _means(analysis: Analysis, pairs: Pairs, name: str, title: str) -> Table:
    table = Table(
        name,
        f"{title}: mean and median {analysis.label}",
        ("agents", "mean", "median", "mean", "median", "improvement on median (%)", "environments"),
        groups=(("baseline", 2), ("NoisyNet", 2), ("", 2)),
    )
    for noisy, baseline in pairs:
        tasks = analysis.tasks(noisy, baseline)
        if not tasks:
            continue
        heading = baseline.title
        if noisy.agent == FACTORISED_A3C or noisy.variant:
            heading = f"{baseline.title} and {noisy.title}"
        for label, published in (("measured", False), ("published, same games", True)):
            agents = (baseline, noisy)
            both = [analysis.normalised(one, tasks, published=published) for one in agents]
            if all(scores.size for one in both for scores in one):
                _add_means(table, f"{heading}, {label}", both)
        if analysis.study.family == "atari" and noisy.style.in_paper and not noisy.variant:
            *values, gain = PRINTED[noisy.agent]
            cells = _mark_better([number_cell(value, 0) for value in values])
            table.add(f"{heading}, printed", *cells, gain, 57)
    table.notes = [
        analysis.normalisation,
        "A run's score is the maximum of its evaluations; seeds are averaged (section 4.1). Only "
        "complete runs count, on environments on which both agents have some.",
    ]
    if any("published" in row[0].text for row in table.rows):
        table.notes.append(
            "published, same games: the paper's scores on the measured games; printed: the paper's "
            "numbers for 57 games. The published agents were trained for "
            f"{PUBLISHED_FRAMES['value']:,} frames (A3C: {PUBLISHED_FRAMES['actor-critic']:,})."
        )
    return table


def _add_means(table: Table, heading: str, both: Sequence[Sequence[Floats]]) -> None:
    """Add mean and median of the baseline and of the noisy agent; the better ones are marked."""
    values = [float(f(scores)) for scores in both for f in (mean_score, median_score)]
    gain = float(improvement(values[3], values[1])) if values[1] > 0 else None  # else undefined
    cells = _mark_better([number_cell(value, 1) for value in values])
    table.add(heading, *cells, number_cell(gain, 0), len(both[0]))


def _mark_better(cells: Sequence[Cell]) -> list[Cell]:
    """Mark the better mean and the better median of two agents' four cells."""
    return [replace(cell, best=_is_best(cell, cells[i % 2 :: 2])) for i, cell in enumerate(cells)]


def _is_best(cell: Cell, compared: Sequence[Cell]) -> bool:
    """Whether a cell has the highest number of several that are not all equal."""
    values = [one.value for one in compared if one.value is not None]
    return cell.value is not None and cell.value == max(values) > min(values)


# --- Table 3 and Figure 1 ------------------------------------------------------------------------


def raw_scores(analysis: Analysis) -> Table:
    """Maximal scores, mean ± standard deviation over seeds, next to the published ones."""
    study = analysis.study
    shown = [contender for contender in study.contenders if study.tasks_of(contender)]
    atari = study.family == "atari"
    columns = ["environment", *(("human", "random") if atari else ("highest", "lowest"))]
    groups = [("reference", 2)]
    with_published = set()
    for contender in shown:
        if any(analysis.published(contender, task) for task in study.tasks):
            with_published.add(contender)
        forms = ["measured", "published"] if contender in with_published else ["measured"]
        columns += forms
        groups.append((contender.title, len(forms)))
    table = Table("table-3", "Table 3: raw scores", columns, groups=groups)
    for task in study.tasks:
        if not any(study.complete(contender, task) for contender in shown):
            continue
        reference = analysis.references.get(task)
        limits = (reference.high, reference.low) if reference else (None, None)
        cells = [number_cell(limit, 1 if atari else None) for limit in limits]
        measured = {one: raw_cell(study.scores(one, task), len(study.seeds)) for one in shown}
        for contender, cell in measured.items():
            cells.append(replace(cell, best=_is_best(cell, list(measured.values()))))
            if contender in with_published:
                score = analysis.published(contender, task)
                known = number_cell(score.mean, 0, spread=score.std) if score else number_cell(None)
                cells.append(known)
        table.add(table_label(task), *cells)
    table.notes = [
        "Maximum of a run's evaluations, mean ± population standard deviation over seeds, as in "
        "the paper; (n) where fewer seeds than elsewhere are complete; no ± for one seed.",
    ]
    others = [contender.title for contender in shown if not contender.style.in_paper]
    if others:
        table.notes.append(f"Not in the paper: {', '.join(others)}.")
    return table


def raw_cell(scores: Floats, seeds: int) -> Cell:
    """Mean ± standard deviation; followed by the number of scores if that is below `seeds`."""
    if not scores.size:
        return number_cell(None)
    deviation = standard_deviation(scores) if scores.size > 1 else None
    cell = number_cell(float(scores.mean()), spread=deviation)
    return replace(cell, text=cell.text + (f" ({scores.size})" if scores.size < seeds else ""))


def relative_scores(analysis: Analysis) -> Table:
    """The numbers of Figure 1."""
    columns, groups = ["environment"], []
    values: list[dict[str, float]] = []
    for noisy, baseline in analysis.study.pairs:
        measured = analysis.relative(noisy, baseline)
        published = analysis.relative(noisy, baseline, published=True)
        if measured:
            forms = {"measured": measured} | ({"published": published} if published else {})
            columns += forms
            values += forms.values()
            groups.append((f"{noisy.title} over {baseline.title}", len(forms)))
    title = "Relative score of NoisyNet over its baseline (%)"
    notes = ("100 × (NoisyNet − baseline) / (max(high, baseline) − low), Eq. 19.",)
    table = Table("relative", title, columns, notes, groups)
    for task in analysis.study.tasks:
        if any(task in found for found in values):
            table.add(table_label(task), *(number_cell(found.get(task), 1) for found in values))
    return table


# --- beyond the paper ----------------------------------------------------------------------------


def comparison(analysis: Analysis) -> Table:
    """Every noisy agent against its baseline: wins, ties, losses, probability of improvement."""
    table = Table(
        "comparison",
        "NoisyNet against its baseline",
        (
            *("agents", "wins/ties/losses", "published", "probability of improvement"),
            *("median relative score (%)", "mean relative score (%)", "environments"),
        ),
        (
            "Wins, ties and losses: environments in which the mean score is higher, equal or "
            "lower.",
            "Probability of improvement: of a run of the noisy agent over one of its baseline, "
            f"mean over environments, from {AGGREGATED_TASKS} on; a tie counts half. {_INTERVAL}",
            "Relative score: Eq. 19.",
        ),
    )
    for noisy, baseline in analysis.study.pairs:
        relative = list(analysis.relative(noisy, baseline).values())
        if relative:
            better = Cell("–")
            if analysis.aggregated(noisy, baseline):
                better = interval_cell(analysis.improvement(noisy, baseline), 2)
            table.add(
                f"{noisy.title} over {baseline.title}",
                analysis.tally(noisy, baseline),
                analysis.tally(noisy, baseline, published=True),
                better,
                number_cell(float(np.median(relative)), 1),
                number_cell(float(np.mean(relative)), 1),
                len(relative),
            )
    return table


def aggregates(analysis: Analysis) -> Table:
    """Mean, median, interquartile mean and optimality gap of every contender."""
    columns = ("agent", *AGGREGATES, "environments", "runs")
    table = Table("aggregates", f"Aggregate {analysis.label}", columns)
    compared = set()
    for contender in analysis.study.contenders:
        tasks = analysis.tasks(contender)
        if not analysis.aggregated(contender):
            continue
        compared.add(tuple(tasks))
        scores = analysis.normalised(contender, tasks)
        cells = (interval_cell(estimate(f, scores)) for f in AGGREGATES.values())
        table.add(contender.title, *cells, len(tasks), sum(map(len, scores)))
    table.notes = [analysis.normalisation, _INTERVAL]
    if len(compared) > 1:
        table.notes.append(
            "The agents have complete runs on different environments: do not compare these rows "
            "with each other. Table 1 compares agents on common environments."
        )
    return table


def noise_on_and_off(analysis: Analysis) -> Table:
    """The same weights evaluated with noise and with mean weights."""
    table = Table(
        "noise",
        "Noise on against off",
        ("agent, environment", "noise on", "noise off", "on − off", "normalised difference (%)"),
        (
            "Noisy agents are evaluated twice at each evaluation: with noise, resampled at every "
            "action, and with the mean weights. Each score is the maximum of its own curve.",
        ),
    )
    study = analysis.study
    noisy = [contender for contender in study.contenders if contender.style.noisy]
    for contender, task in ((one, task) for one in noisy for task in study.tasks_of(one)):
        on, off = study.scores(contender, task, "on"), study.scores(contender, task, "off")
        if not on.size or not off.size:
            continue
        reference = analysis.references.get(task)
        gain = float(on.mean() - off.mean())
        share = 100 * gain / (reference.high - reference.low) if reference else None
        cells = [raw_cell(scores, len(study.seeds)) for scores in (on, off)]
        cells = [replace(cell, best=_is_best(cell, cells)) for cell in cells]
        table.add(f"{contender.title}, {table_label(task)}", *cells, gain, number_cell(share, 1))
    return table
