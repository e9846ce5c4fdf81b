"""The paper's tables, recomputed from the scores published in its Table 3.

Recomputed numbers are marked: = as printed in the paper; ≈ different, but within the rounding of
Table 3 to whole points; ≠ different.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Final, Literal, TextIO

import numpy as np

from noisynet.reports.agents import AGENTS, BASELINE, STYLES
from noisynet.reports.published import (
    PRINTED,
    ReferenceName,
    atari_references,
    published_scores,
    source_references,
)
from noisynet.reports.scores import (
    Floats,
    Reference,
    Tally,
    human_normalised,
    improvement,
    relative_score,
    tally,
)
from noisynet.reports.table_formats import (
    Cell,
    Table,
    TableFormat,
    make_row,
    number_cell,
    render_table,
)

HALF_A_POINT: Final = 0.5
"""The rounding error of Table 3, and of the per cents in Tables 1 and 2."""

AggregateName = Literal["mean", "median"]
_AGGREGATES: Final[tuple[AggregateName, ...]] = ("mean", "median")
_BOTH: Final[tuple[ReferenceName, ...]] = ("unrounded", "printed")


@dataclass(frozen=True)
class Recomputed:
    """A statistic of Table 3, and its bounds given the rounding of Table 3."""

    value: float
    low: float
    high: float

    def mark(self, printed: int) -> str:
        """=, ≈ or ≠ the printed number."""
        if round(self.value) == printed:
            return "="
        reaches = self.low <= printed + HALF_A_POINT and self.high >= printed - HALF_A_POINT
        return "≈" if reaches else "≠"


def normalised_scores(
    agent: str, references: ReferenceName, shift: float = 0.0, leave_out: str = ""
) -> Floats:
    """Eq. 18 for every game of Table 3, with `shift` points added to each score."""
    limits = atari_references(references)
    return np.array(
        [
            human_normalised(score.mean + shift, limits[game])
            for game, score in published_scores()[agent].items()
            if game != leave_out
        ]
    )


def recomputed(agent: str, statistic: AggregateName, references: ReferenceName) -> Recomputed:
    """The mean or median over games of an agent's human-normalised scores."""
    found = []
    for shift in (0.0, -HALF_A_POINT, HALF_A_POINT):
        scores = normalised_scores(agent, references, shift)
        found.append(float(np.mean(scores) if statistic == "mean" else np.median(scores)))
    return Recomputed(*found)


def published_tally(noisy: str) -> Tally:
    """Wins, ties and losses of a noisy agent against its baseline in Table 3."""
    scores = published_scores()
    pair = ([score.mean for score in scores[agent].values()] for agent in (noisy, BASELINE[noisy]))
    return tally(*pair)


def paper_tables() -> list[Table]:
    """Tables 1 and 2, the relative scores of Figure 1, and Table 3 with its references."""
    return [
        table_1(),
        table_2(),
        relative_scores(),
        raw_scores(),
        references_that_differ(),
    ]


def print_paper(out: TextIO | None = None, form: TableFormat = "text") -> None:
    """Print the paper's tables, recomputed, next to the original numbers.

    Args:
        out: the stream; None for standard output.
        form: text for a terminal, or Markdown, CSV or LaTeX.
    """
    stream = sys.stdout if out is None else out
    stream.write("\n".join(render_table(table, form) for table in paper_tables()))


# --- Tables 1 and 2 ------------------------------------------------------------------------------

_COLUMNS: Final = ("", "printed", "recomputed", "", "with printed references", "", "why")


def table_1() -> Table:
    """Means and medians of three agents and their NoisyNet versions."""
    rows = [row for noisy in PRINTED if noisy in published_scores() for row in _printed_rows(noisy)]
    # With and without the one game on which the two sets of references differ.
    means = {
        agent: (
            recomputed(agent, "mean", "printed").value,
            float(normalised_scores(agent, "printed", leave_out="video_pinball").mean()),
        )
        for agent in ("dqn", "noisynet-dqn")
    }
    plain, noisy = means["dqn"], means["noisynet-dqn"]
    notes = (
        "recomputed: Eq. 18 with the unrounded references of Wang et al. 2016 and 0 for Video "
        "Pinball's random score; their 16,257 does not reproduce the printed means.",
        "with printed references: Eq. 18 with the Human and Random columns of Table 3. Its "
        "human score of Video Pinball is 1,411 points above random, so that scores above 230,000 "
        "become 15,000 % and more and dominate the means, but not the medians.",
        f"With the printed references NoisyNet lowers DQN's mean, from {plain[0]:.0f} to "
        f"{noisy[0]:.0f}; without Video Pinball it raises it, from {plain[1]:.0f} to "
        f"{noisy[1]:.0f}.",
        "NoisyNet-A3C's median game is Pong, printed as 12: scores from 11.5 to 12.5 give medians "
        "of 91 to 94.",
        "The printed improvements are those of the rounded medians: 123 on 83 is 48.2 %, 172 on "
        "132 is 30.3 %, 94 on 80 is 17.5 %.",
        'The text\'s "at least 18 and at most 48 percentage points" are per cent of the '
        "baseline's median; in points of the median they are 14 to 40.",
        "= as printed; ≈ different, but within the rounding of Table 3; ≠ different.",
    )
    title = "Table 1: mean and median human-normalised score (%) over 57 games"
    return Table("paper-table-1", title, _COLUMNS, tuple(rows), notes)


def _printed_rows(noisy: str) -> Iterator[tuple[Cell, ...]]:
    """One row of Tables 1 and 2, with a line for each number."""
    printed = PRINTED[noisy]
    for agent, values in (
        (BASELINE[noisy], (printed.baseline_mean, printed.baseline_median)),
        (noisy, (printed.noisy_mean, printed.noisy_median)),
    ):
        for statistic, value in zip(_AGGREGATES, values, strict=True):
            found = [recomputed(agent, statistic, references) for references in _BOTH]
            reasons = "Table 3 is rounded", _WHY[statistic]
            yield _line(f"{STYLES[agent].title}, {statistic}", value, found, reasons)
    found = [_improvement(noisy, references) for references in _BOTH]
    reason = "the paper divides rounded medians"
    yield _line("  improvement on the median", printed.improvement, found, (reason, reason))


_WHY: Final = {"mean": "Video Pinball", "median": "references are rounded, too"}
"""Why the printed references do not reproduce the printed numbers."""


def _line(
    heading: str, printed: int, found: Sequence[Recomputed], reasons: Sequence[str]
) -> tuple[Cell, ...]:
    cells: list[Cell | str] = []
    why: list[str] = []
    for value, reason in zip(found, reasons, strict=True):
        mark = value.mark(printed)
        cells += [number_cell(value.value, 1), mark]
        why += [] if mark == "=" or reason in why else [reason]
    return make_row(heading, printed, *cells, "; ".join(why))


def _improvement(noisy: str, references: ReferenceName) -> Recomputed:
    better, worse = (recomputed(agent, "median", references) for agent in (noisy, BASELINE[noisy]))
    return Recomputed(
        improvement(better.value, worse.value),
        improvement(better.low, worse.high),
        improvement(better.high, worse.low),
    )


def table_2() -> Table:
    """Table 1 with factorised NoisyNet-A3C, in the paper's layout."""
    rows = []
    for noisy, printed in PRINTED.items():
        title = STYLES[BASELINE[noisy]].title
        factorised = noisy not in published_scores()
        name = f"{title} (factorised)" if factorised else title
        rows.append(make_row(f"{name}, printed", *astuple(printed)))
        found = [
            None if agent not in published_scores() else recomputed(agent, kind, "unrounded").value
            for agent in (BASELINE[noisy], noisy)
            for kind in _AGGREGATES
        ]
        gain = None
        if found[1] is not None and found[3] is not None:
            gain = improvement(found[3], found[1])
        cells = (*(number_cell(value, 1) for value in found), number_cell(gain, 1))
        rows.append(make_row("  recomputed", *cells))
    notes = (
        "Of A3C (factorised) only the baseline can be recomputed: the paper has no scores of "
        "single games for NoisyNet-A3C with factorised noise.",
        "Its printed improvement of 24 % is that of the printed medians (99 on 80).",
    )
    return Table(
        "paper-table-2",
        "Table 2: the same with A3C and factorised noise (%), unrounded references",
        ("", "mean", "median", "mean", "median", "on median"),
        tuple(rows),
        notes,
        (("baseline", 2), ("NoisyNet", 2), ("improvement", 1)),
    )


# --- Figure 1 and Table 3 ------------------------------------------------------------------------


def relative_scores() -> Table:
    """The numbers of Figure 1: Eq. 19 for each game, with both sets of references."""
    scores = published_scores()
    pairs = [noisy for noisy in BASELINE if noisy in scores]
    rows = []
    for game in scores["dqn"]:
        cells = []
        for noisy in pairs:
            values = scores[noisy][game].mean, scores[BASELINE[noisy]][game].mean
            for references in _BOTH:
                reference = atari_references(references)[game]
                cells.append(number_cell(relative_score(*values, reference), 1))
        rows.append(make_row(game, *cells))
    tallies = [str(published_tally(noisy)) for noisy in pairs for _ in _BOTH]
    rows.append(make_row("wins/ties/losses", *tallies))
    notes = (
        "unrounded, printed: the references, as in Table 1. Which agent wins does not depend on "
        "them. Figure 1 truncates its bars at 250 %.",
        "Ties are ties of rounded scores.",
    )
    return Table(
        "paper-figure-1",
        "Figure 1: relative human-normalised score of NoisyNet over its baseline (%), Eq. 19",
        ("game", *["unrounded", "printed"] * len(pairs)),
        tuple(rows),
        notes,
        tuple((STYLES[BASELINE[noisy]].title, 2) for noisy in pairs),
    )


def raw_scores() -> Table:
    """Table 3: maximal scores, with the best of each game marked."""
    scores, limits = published_scores(), atari_references("printed")
    agents = [agent for agent in AGENTS if agent in scores]
    rows = []
    for game, limit in limits.items():
        found = [scores[agent][game] for agent in agents]
        best = max(limit.high, limit.low, *(score.mean for score in found))
        cells = [number_cell(limit.high, 0), number_cell(limit.low, 0)]
        cells += [number_cell(score.mean, 0, spread=score.std) for score in found]
        marked = (
            Cell(cell.text.replace(" ", ""), cell.value, cell.spread, cell.value == best)
            for cell in cells
        )
        rows.append(make_row(game, *marked))
    notes = (
        "* marks the best score of a row, all of them if several are equal. The paper prints one "
        "in bold: in boxing NoisyNet-A3C, in freeway Dueling, in pong NoisyNet-DQN.",
    )
    titles = (STYLES[agent].title for agent in agents)
    return Table(
        "paper-table-3",
        "Table 3: maximal score, mean ± standard deviation of three seeds, as printed",
        ("game", "human", "random", *titles),
        tuple(rows),
        notes,
    )


def references_that_differ() -> Table:
    """The references that differ between the paper and its source."""
    rows = []
    for game, source in source_references().items():
        printed, used = atari_references("printed")[game], atari_references("unrounded")[game]
        reason = _why(source, printed, used)
        if reason:
            values = (source.low, printed.low, used.low)
            rows.append(make_row(game, *(number_cell(value, 1) for value in values), reason))
    notes = (
        "All other references of Table 3 are those of Wang et al. 2016, rounded to whole points.",
    )
    return Table(
        "paper-references",
        "Random scores that differ between Wang et al. 2016, Table 3 and Table 1",
        ("game", "Wang et al.", "printed", "used for means", "why"),
        tuple(rows),
        notes,
    )


def _why(source: Reference, printed: Reference, used: Reference) -> str:
    if round(source.low) != printed.low:
        return "two digits are swapped in Table 3"
    if source.low != used.low:
        return "only 0 reproduces the means of Table 1"
    return ""
