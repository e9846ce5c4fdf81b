"""The paper's tables, recomputed from the scores published in its Table 3.

Recomputed numbers are marked: = as printed in the paper; ≈ different, but within the rounding of
Table 3 to whole points; ≠ different.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, TextIO

import numpy as np
from numpy.typing import ArrayLike

from noisynet.reports.agents import AGENTS, STYLES
from noisynet.reports.published import (
    PRINTED,
    ReferenceName,
    atari_references,
    published_scores,
)
from noisynet.reports.scores import (
    Floats,
    human_normalised,
    improvement,
    relative_score,
    tally,
)
from noisynet.reports.table_formats import Cell, Table, TableFormat, number_cell, render_table

HALF_A_POINT: Final = 0.5
"""The rounding error of Table 3, and of the per cents in Tables 1 and 2."""

AggregateName = Literal["mean", "median"]
_AGGREGATES: Final[tuple[AggregateName, ...]] = ("mean", "median")
_BOTH: Final[tuple[ReferenceName, ...]] = ("unrounded", "printed")
_PUBLISHED: Final = tuple(agent for agent in AGENTS if agent in published_scores())
_NOISY: Final = tuple(agent for agent in _PUBLISHED if STYLES[agent].noisy)


def normalised_scores(agent: str, references: ReferenceName) -> Floats:
    """Eq. 18 for every game of Table 3, as printed, and half a point lower and higher: [3, G]."""
    limits = atari_references(references)
    shifts = np.array([0.0, -HALF_A_POINT, HALF_A_POINT])
    return np.stack(
        [
            human_normalised(score.mean + shifts, limits[game])
            for game, score in published_scores()[agent].items()
        ],
        axis=1,
    )


def recomputed(agent: str, statistic: AggregateName, references: ReferenceName) -> Floats:
    """The mean or median over games of an agent's human-normalised scores, and its bounds: [3].

    The second and third number are the lowest and the highest given the rounding of Table 3.
    """
    scores = normalised_scores(agent, references)
    return np.asarray(scores.mean(axis=1) if statistic == "mean" else np.median(scores, axis=1))


def mark(found: ArrayLike, printed: int) -> str:
    """Whether a recomputed number, with its bounds, is =, ≈ or ≠ the printed one."""
    value, low, high = np.asarray(found, float)
    if round(value) == printed:
        return "="
    reaches = low <= printed + HALF_A_POINT and high >= printed - HALF_A_POINT
    return "≈" if reaches else "≠"


def published_tally(noisy: str) -> str:
    """Wins/ties/losses of a noisy agent against its baseline in Table 3."""
    agents = (noisy, STYLES[noisy].baseline)
    return tally(*([score.mean for score in published_scores()[one].values()] for one in agents))


def paper_tables() -> list[Table]:
    """Tables 1 and 2, the relative scores of Figure 1, and Table 3 with its references."""
    return [table_1(), table_2(), relative_scores(), raw_scores(), references_that_differ()]


def print_paper(out: TextIO | None = None, form: TableFormat = "text") -> None:
    """Print the paper's tables, recomputed, next to the original numbers."""
    stream = sys.stdout if out is None else out
    stream.write("\n".join(render_table(table, form) for table in paper_tables()))


# --- Tables 1 and 2 ------------------------------------------------------------------------------

_WHY: Final = {"mean": "Video Pinball", "median": "references are rounded, too"}
"""Why the printed references do not reproduce the printed numbers."""


def table_1() -> Table:
    """Means and medians of three agents and their NoisyNet versions."""
    table = Table(
        "paper-table-1",
        "Table 1: mean and median human-normalised score (%) over 57 games",
        ("", "printed", "recomputed", "", "with printed references", "", "why"),
        _table_1_notes(),
    )
    for noisy in _NOISY:
        printed, baseline = PRINTED[noisy], STYLES[noisy].baseline
        for agent, values in ((baseline, printed[:2]), (noisy, printed[2:4])):
            for statistic, value in zip(_AGGREGATES, values, strict=True):
                found = [recomputed(agent, statistic, references) for references in _BOTH]
                reasons = ("Table 3 is rounded", _WHY[statistic])
                _add_marked(table, f"{STYLES[agent].title}, {statistic}", value, found, reasons)
        found = [_improvement(noisy, references) for references in _BOTH]
        reasons = ("the paper divides rounded medians",) * 2
        _add_marked(table, "  improvement on the median", printed.improvement, found, reasons)
    return table


def _table_1_notes() -> list[str]:
    # With and without the one game on which the two sets of references differ.
    scores = [normalised_scores(agent, "printed")[0] for agent in ("dqn", "noisynet-dqn")]
    pinball = list(published_scores()["dqn"]).index("video_pinball")
    means, without = np.mean(scores, axis=1), np.delete(scores, pinball, axis=1).mean(axis=1)
    return [
        "recomputed: Eq. 18 with the unrounded references of Wang et al. 2016 and 0 for Video "
        "Pinball's random score; their 16,257 does not reproduce the printed means.",
        "with printed references: Eq. 18 with the Human and Random columns of Table 3. Its "
        "human score of Video Pinball is 1,411 points above random, so that scores above 230,000 "
        "become 15,000 % and more and dominate the means, but not the medians.",
        f"With the printed references NoisyNet lowers DQN's mean, from {means[0]:.0f} to "
        f"{means[1]:.0f}; without Video Pinball it raises it, from {without[0]:.0f} to "
        f"{without[1]:.0f}.",
        "NoisyNet-A3C's median game is Pong, printed as 12: scores from 11.5 to 12.5 give medians "
        "of 91 to 94.",
        "The printed improvements are those of the rounded medians: 123 on 83 is 48.2 %, 172 on "
        "132 is 30.3 %, 94 on 80 is 17.5 %.",
        'The text\'s "at least 18 and at most 48 percentage points" are per cent of the '
        "baseline's median; in points of the median they are 14 to 40.",
        "= as printed; ≈ different, but within the rounding of Table 3; ≠ different.",
    ]


def _add_marked(
    table: Table, heading: str, printed: int, found: Sequence[Floats], reasons: Sequence[str]
) -> None:
    """Add a printed number and what it is recomputed as, with the reasons of differences."""
    cells: list[Cell | str] = []
    why: list[str] = []
    for one, reason in zip(found, reasons, strict=True):
        cells += [number_cell(float(one[0]), 1), mark(one, printed)]
        why += [] if cells[-1] == "=" or reason in why else [reason]
    table.add(heading, printed, *cells, "; ".join(why))


def _improvement(noisy: str, references: ReferenceName) -> Floats:
    """The improvement on the median and its bounds: [3]."""
    agents = (noisy, STYLES[noisy].baseline)
    better, worse = (recomputed(agent, "median", references) for agent in agents)
    return improvement(better, worse[[0, 2, 1]])


def table_2() -> Table:
    """Table 1 with factorised NoisyNet-A3C, in the paper's layout."""
    table = Table(
        "paper-table-2",
        "Table 2: the same with A3C and factorised noise (%), unrounded references",
        ("", "mean", "median", "mean", "median", "on median"),
        (
            "Of A3C (factorised) only the baseline can be recomputed: the paper has no scores of "
            "single games for NoisyNet-A3C with factorised noise.",
            "Its printed improvement of 24 % is that of the printed medians (99 on 80).",
        ),
        (("baseline", 2), ("NoisyNet", 2), ("improvement", 1)),
    )
    for noisy, printed in PRINTED.items():
        baseline = STYLES[noisy].baseline
        factorised = "" if noisy in _PUBLISHED else " (factorised)"
        table.add(f"{STYLES[baseline].title}{factorised}, printed", *printed)
        found = [
            float(recomputed(agent, kind, "unrounded")[0]) if agent in _PUBLISHED else None
            for agent in (baseline, noisy)
            for kind in _AGGREGATES
        ]
        gain = None if factorised else float(_improvement(noisy, "unrounded")[0])
        table.add("  recomputed", *(number_cell(value, 1) for value in (*found, gain)))
    return table


# --- Figure 1 and Table 3 ------------------------------------------------------------------------


def relative_scores() -> Table:
    """The numbers of Figure 1: Eq. 19 for each game, with both sets of references."""
    scores = published_scores()
    table = Table(
        "paper-figure-1",
        "Figure 1: relative human-normalised score of NoisyNet over its baseline (%), Eq. 19",
        ("game", *_BOTH * len(_NOISY)),
        (
            "unrounded, printed: the references, as in Table 1. Which agent wins does not depend "
            "on them. Figure 1 truncates its bars at 250 %.",
            "Ties are ties of rounded scores.",
        ),
        [(STYLES[STYLES[noisy].baseline].title, 2) for noisy in _NOISY],
    )
    for game in scores["dqn"]:
        cells = []
        for noisy in _NOISY:
            ours, theirs = (scores[one][game].mean for one in (noisy, STYLES[noisy].baseline))
            for references in _BOTH:
                relative = relative_score(ours, theirs, atari_references(references)[game])
                cells.append(number_cell(relative, 1))
        table.add(game, *cells)
    table.add("wins/ties/losses", *(published_tally(noisy) for noisy in _NOISY for _ in _BOTH))
    return table


def raw_scores() -> Table:
    """Table 3: maximal scores, with the best of each game marked."""
    table = Table(
        "paper-table-3",
        "Table 3: maximal score, mean ± standard deviation of three seeds, as printed",
        ("game", "human", "random", *(STYLES[agent].title for agent in _PUBLISHED)),
        (
            "* marks the best score of a row, all of them if several are equal. The paper prints "
            "one in bold: in boxing NoisyNet-A3C, in freeway Dueling, in pong NoisyNet-DQN.",
        ),
    )
    for game, limit in atari_references("printed").items():
        found = [published_scores()[agent][game] for agent in _PUBLISHED]
        best = max(limit.high, limit.low, *(score.mean for score in found))
        cells = [number_cell(limit.high, 0), number_cell(limit.low, 0)]
        cells += [number_cell(score.mean, 0, spread=score.std) for score in found]
        marked = (
            replace(cell, text=cell.text.replace(" ", ""), best=cell.value == best)
            for cell in cells
        )
        table.add(game, *marked)
    return table


def references_that_differ() -> Table:
    """The references that differ between the paper and its source."""
    table = Table(
        "paper-references",
        "Random scores that differ between Wang et al. 2016, Table 3 and Table 1",
        ("game", "Wang et al.", "printed", "used for means", "why"),
        (
            "All other references of Table 3 are those of Wang et al. 2016, rounded to whole "
            "points.",
        ),
    )
    for game, reference in atari_references("source").items():
        source = reference.low
        printed, used = (
            atari_references("printed")[game].low,
            atari_references("unrounded")[game].low,
        )
        why = ""
        if round(source) != printed:
            why = "two digits are swapped in Table 3"
        elif source != used:
            why = "only 0 reproduces the means of Table 1"
        if why:
            table.add(game, *(number_cell(value, 1) for value in (source, printed, used)), why)
    return table
