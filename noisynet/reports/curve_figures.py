"""Figures 6 to 8: the learning curves in every environment; also of agents not in the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from noisynet.reports.agents import Contender
from noisynet.reports.analysis import (
    BASELINES,
    OTHER_BASELINES,
    PUBLISHED_FRAMES,
    Analysis,
)
from noisynet.reports.plotting import (
    WIDTH,
    LazyFigure,
    band,
    frames_axis,
    line_style,
    markers,
    short_number,
)
from noisynet.reports.scores import mean_over_seeds
from noisynet.reports.study import figure_label

_FIGURES: Final = {
    "dqn": ("figure-6", "Figure 6: "),
    "dueling": ("figure-7", "Figure 7: "),
    "a3c": ("figure-8", "Figure 8: "),
    "c51": ("curves-c51", ""),
    "rainbow-without-noise": ("curves-rainbow", ""),
}
"""The names and the beginnings of the titles, by baseline."""
_MAX_COLUMNS: Final = 6


def curve_figures(analysis: Analysis) -> Iterator[LazyFigure]:
    """Figures 6, 7 and 8, and those of the other agents, if there are runs for them."""
    for title, agent in (BASELINES | OTHER_BASELINES).items():
        shown = analysis.compared_with(agent, factorised_a3c=True)
        tasks = [
            task
            for task in analysis.study.tasks
            if any(analysis.study.cells.get((contender, task)) for contender in shown)
        ]
        if not tasks or not any(analysis.study.points(contender) for contender in shown):
            continue
        published = _shows_published(analysis, shown)
        name, beginning = _FIGURES[agent]
        yield LazyFigure(
            name,
            f"{beginning}{title}, every environment",
            "Evaluation scores: mean over complete runs, shaded ± one standard deviation; thin "
            "lines are unfinished runs."
            + (" Dotted: the published maximal score." if published else ""),
            partial(_grid, analysis, shown, tasks, published),
        )


def _shows_published(analysis: Analysis, shown: Sequence[Contender]) -> bool:
    """Whether to show published scores: they would flatten the curves of much shorter runs."""
    horizons = analysis.study.horizons
    in_paper = any(contender.style.in_paper for contender in shown)
    return (
        in_paper
        and analysis.study.family == "atari"
        and all(
            2 * horizons[contender.style.kind] >= PUBLISHED_FRAMES[contender.style.kind]
            for contender in shown
        )
    )


def _grid(
    analysis: Analysis, shown: Sequence[Contender], tasks: Sequence[str], published: bool
) -> Figure:
    columns = min(_MAX_COLUMNS if len(tasks) > 12 else 3, len(tasks))
    rows = -(-len(tasks) // columns)
    small = columns == _MAX_COLUMNS
    panel = (WIDTH / columns, 0.9) if small else (WIDTH / 3, 1.7)
    margin = 0.42  # inches above for the legend and below for the axis
    width, height = max(panel[0] * columns, 0.6 * WIDTH), panel[1] * rows + 2 * margin
    figure = Figure(figsize=(width, height))
    grid = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(
        left=(0.42 if small else 0.62) / width,
        right=0.985,
        bottom=(margin + 0.02) / height,
        top=1 - (margin + 0.05) / height,
        wspace=0.42 if small else 0.3,
        hspace=0.42 if small else 0.45,
    )
    horizon = max(float(analysis.study.frames(contender)[-1]) for contender in shown)
    for position, (axes, task) in enumerate(zip(grid.flat, tasks, strict=False)):
        for contender in shown:
            _panel_curves(analysis, axes, contender, task, shown, published)
        frames_axis(axes, horizon, label=False)
        axes.yaxis.set_major_locator(MaxNLocator(3 if small else 5))
        # A fixed height: an automatic one takes a sixth of the time of the whole figure.
        axes.set_title(figure_label(task), fontsize=6.5 if small else 8, pad=2, y=1.0)
        if small:
            axes.tick_params(labelsize=5, length=1.5, pad=1)
            axes.yaxis.set_major_formatter(lambda value, _: short_number(value))
            # All panels share the x axis: only the lowest of a column has labels.
            axes.tick_params(axis="x", labelbottom=position + columns >= len(tasks))
    for axes in grid.flat[len(tasks) :]:
        axes.set_visible(False)
    _label_axes(figure, grid.flat[0], horizon)
    _legend(figure, shown)
    return figure


def _label_axes(figure: Figure, axes: Axes, horizon: float) -> None:
    frames_axis(axes, horizon)
    label = axes.get_xlabel()
    axes.set_xlabel("")
    figure.supxlabel(label, fontsize=8, y=0.06 / figure.get_figheight())
    figure.supylabel("evaluation score (points)", fontsize=8, x=0.04 / figure.get_figwidth())


def _legend(figure: Figure, shown: Sequence[Contender]) -> None:
    handles = [Line2D([], [], **line_style(contender, shown)) for contender in shown]
    figure.legend(handles=handles, loc="upper center", ncols=min(len(handles), 3))


def _panel_curves(
    analysis: Analysis,
    axes: Axes,
    contender: Contender,
    task: str,
    shown: Sequence[Contender],
    published: bool,
) -> None:
    study = analysis.study
    style: dict[str, Any] = line_style(contender, shown)
    style["linewidth"] *= 0.7
    x = study.frames(contender)
    curves = study.curves(contender, task)
    if len(curves):
        mean = mean_over_seeds(curves)
        axes.plot(x, mean, **style, **markers(study.points(contender)))
        if len(curves) > 1:
            deviation = np.sqrt(mean_over_seeds((curves - mean) ** 2))
            band(axes, x, mean - deviation, mean + deviation, contender.style.colour)
    unfinished = [
        run for run in study.cells.get((contender, task), ()) if not study.is_complete(run)
    ]
    for run in unfinished:
        within = run.curve.points <= study.points(contender)
        frames = run.curve.points[within] * study.period(contender)
        thin = {**style, "linewidth": 0.6, "alpha": 0.7}
        axes.plot(frames, run.curve.scores[within], **thin, **markers(study.points(contender)))
    score = analysis.published(contender, task) if published else None
    if score is not None:
        axes.axhline(score.mean, color=contender.style.colour, linestyle=(0, (1, 2)), linewidth=0.8)
