"""Figures 1, 2 and 5 from runs: relative scores and median learning curves.

Agents that are not in the paper have the same figures under other names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from noisynet.reports.agents import FACTORISED_A3C, Contender
from noisynet.reports.analysis import BASELINES, OTHER_BASELINES, Analysis
from noisynet.reports.plotting import (
    DIAMONDS,
    WIDTH,
    LazyFigure,
    frames_axis,
    line_style,
    markers,
    panel_legend,
)
from noisynet.reports.scores import Floats
from noisynet.reports.study import figure_label

TRUNCATION: Final = 250.0
"""Where Figure 1 truncates its bars, in per cent."""


def paper_figures(analysis: Analysis) -> Iterator[LazyFigure]:
    """Figures 1, 2 and 5, if there are runs for them."""
    yield from _relative_figures(analysis)
    yield from _median_figures(analysis)


# --- Figure 1 ------------------------------------------------------------------------------------


def _relative_figures(analysis: Analysis) -> Iterator[LazyFigure]:
    for number, (noisy, baseline) in enumerate(analysis.study.pairs):
        measured = analysis.relative(noisy, baseline)
        if not measured:
            continue
        published = analysis.published_relative(noisy, baseline, list(measured))
        diamonds = " Diamonds: published scores." if published else ""
        name, title = f"relative-{noisy.file_name}", "Relative score"
        if noisy.style.in_paper:  # the paper's agents come first, so that letters are consecutive
            name, title = f"figure-1{'abcdefghijklmnopqrstuvwxyz'[number % 26]}", "Figure 1"
        yield LazyFigure(
            name,
            f"{title}: {noisy.title} over {baseline.title}",
            f"Relative score of {noisy.title} over {baseline.title} (Eq. 19) in each environment. "
            "Bars have the colour of the better agent and are truncated at 250 %, with their value "
            f"above.{diamonds}",
            partial(_bars, noisy, baseline, measured, published),
        )


def _bars(
    noisy: Contender,
    baseline: Contender,
    measured: dict[str, float],
    published: dict[str, float],
) -> Figure:
    tasks = sorted(measured, key=lambda task: -measured[task])
    heights = np.minimum([measured[task] for task in tasks], TRUNCATION)
    figure = Figure(figsize=(max(2.6, min(WIDTH, 1.3 + 0.42 * len(tasks))), 2.9))
    axes = figure.add_subplot()
    colours = [noisy.style.colour if height >= 0 else baseline.style.colour for height in heights]
    axes.bar(range(len(tasks)), heights, width=0.75, color=colours)
    for position, task in enumerate(tasks):
        if measured[task] > TRUNCATION:
            text = f"{measured[task]:.0f}"
            style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 6, "rotation": 90}
            axes.text(position, TRUNCATION + 20, text, **style)  # above a diamond
    positions = [position for position, task in enumerate(tasks) if task in published]
    diamonds = [min(published[tasks[position]], TRUNCATION) for position in positions]
    axes.plot(positions, diamonds, clip_on=False, **DIAMONDS)
    _finish_bars(axes, tasks, heights, diamonds)
    handles = [
        Line2D([], [], color=noisy.style.colour, lw=5, label=f"{noisy.title} better"),
        Line2D([], [], color=baseline.style.colour, lw=5, label=f"{baseline.title} better"),
    ]
    if diamonds:
        handles.append(Line2D([], [], label="published", **DIAMONDS))
    columns = len(handles) if len(tasks) > 8 else 1
    figure.legend(handles=handles, loc="upper center", ncols=columns, handlelength=1)
    top = 0.9 if columns > 1 else 0.98 - 0.06 * len(handles)
    figure.tight_layout(rect=(0, 0, 1, top))
    return figure


def _finish_bars(
    axes: Axes, tasks: Sequence[str], heights: Floats, diamonds: Sequence[float]
) -> None:
    shown = np.concatenate([heights, np.asarray(diamonds, float), [0.0]])
    low, high = float(shown.min()), float(shown.max())
    room = 0.06 * max(high - low, 1.0)
    axes.set_yticks(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
    axes.set_ylim(low - room, high + (room if high < TRUNCATION else 80))
    axes.set_xlim(-0.8, len(tasks) - 0.2)
    axes.axhline(0, color="black", linewidth=0.7)
    axes.set_ylabel("relative score (%)")
    axes.grid(axis="x", visible=False)
    small = 6.3 if len(tasks) > 30 else 7
    axes.set_xticks(range(len(tasks)), [figure_label(task) for task in tasks], fontsize=small)
    axes.tick_params(axis="x", rotation=90, length=0, pad=2)


# --- Figures 2 and 5 -----------------------------------------------------------------------------


def _median_figures(analysis: Analysis) -> Iterator[LazyFigure]:
    method = (
        "At each evaluation: the median over environments of the normalised mean score over seeds. "
        "Environments on which every agent of a panel has complete runs."
    )
    no_numbers = " The paper has no numbers for this figure."
    other_title = "Median learning curves of agents that are not in the paper"
    for name, title, baselines, note in (
        ("figure-2", "Figure 2: median learning curves", BASELINES, no_numbers),
        ("medians", other_title, OTHER_BASELINES, ""),
    ):
        compared = {heading: analysis.compared_with(agent) for heading, agent in baselines.items()}
        panels = {h: shown for h, shown in compared.items() if shown and analysis.tasks(*shown)}
        if not panels:
            continue
        counts = "; ".join(f"{h}: {len(analysis.tasks(*shown))}" for h, shown in panels.items())
        caption = f"{method}{note} Environments: {counts}."
        yield LazyFigure(name, title, caption, partial(_medians, analysis, panels))
    a3c = analysis.compared_with("a3c", factorised_a3c=True)
    if any(contender.agent == FACTORISED_A3C for contender in a3c):
        tasks = analysis.tasks(*a3c)
        if tasks:
            yield LazyFigure(
                "figure-5",
                "Figure 5: A3C with independent and with factorised noise",
                f"{method}{no_numbers} Environments: {len(tasks)}.",
                partial(_medians, analysis, {"A3C": a3c}),
            )


def _medians(analysis: Analysis, panels: dict[str, list[Contender]]) -> Figure:
    width = WIDTH / 3 if len(panels) > 1 else WIDTH / 2
    figure = Figure(figsize=(width * max(len(panels), 1), 2.6))
    axes_row = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, shown in zip(axes_row, panels.values(), strict=True):
        tasks = analysis.tasks(*shown)
        for contender in shown:
            axes.plot(
                analysis.study.frames(contender),
                analysis.median_curve(contender, tasks),
                **line_style(contender, shown),
                **markers(analysis.study.points(contender)),
            )
        frames_axis(axes, max(analysis.study.frames(contender)[-1] for contender in shown))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        panel_legend(axes)
    axes_row[0].set_ylabel(f"median {analysis.normaliser.label}")
    figure.tight_layout()
    return figure
