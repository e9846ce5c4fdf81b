"""Figures 6 to 8: the learning curves of every environment."""

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
from noisynet.reports.analysis import FAMILIES, PUBLISHED_FRAMES, Analysis
from noisynet.reports.plotting import (
    WIDTH,
    Drawing,
    band,
    dots,
    frames_axis,
    line_style,
    new_figure,
    short_number,
    short_task,
)
from noisynet.reports.scores import mean_over_seeds

_GRID_FIGURE: Final = {"dqn": 6, "dueling": 7, "a3c": 8}
_GRID_COLUMNS: Final = 6


def grid_figures(analysis: Analysis) -> Iterator[Drawing]:
    """Figures 6, 7 and 8, as far as there are runs for them."""
    for title, agent in FAMILIES.items():
        shown = analysis.family(agent)
        if agent == "a3c":
            shown = [who for who in analysis.study.contenders if "a3c" in who.agent]
        tasks = [
            task
            for task in analysis.study.tasks
            if any(analysis.study.cells.get((who, task)) for who in shown)
        ]
        if not tasks or not any(analysis.study.points(who) for who in shown):
            continue
        beside = _published_lines(analysis, shown)
        yield Drawing(
            f"figure-{_GRID_FIGURE[agent]}",
            f"Figure {_GRID_FIGURE[agent]}: {title}, every environment",
            "Score of each evaluation: mean over complete seeds, shaded ± one standard deviation; "
            "thin lines are runs that have not reached the end."
            + (" Dotted: the published maximal score." if beside else ""),
            partial(_grid, analysis, shown, tasks, beside),
        )


def _published_lines(analysis: Analysis, shown: Sequence[Contender]) -> bool:
    """Scores after the paper's budget only flatten the curves of much shorter runs."""
    horizons = analysis.study.horizons
    return analysis.study.suite == "atari" and all(
        2 * horizons[who.style.kind] >= PUBLISHED_FRAMES[who.style.kind] for who in shown
    )


def _grid(
    analysis: Analysis, shown: Sequence[Contender], tasks: Sequence[str], published: bool
) -> Figure:
    columns = min(_GRID_COLUMNS if len(tasks) > 12 else 3, len(tasks))
    rows = -(-len(tasks) // columns)
    small = columns == _GRID_COLUMNS
    panel = (WIDTH / columns, 0.9) if small else (WIDTH / 3, 1.7)
    margin = 0.42  # inches above for the legend and below for the axis
    width, height = max(panel[0] * columns, 0.6 * WIDTH), panel[1] * rows + 2 * margin
    figure = new_figure(width, height)
    grid = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(
        left=(0.42 if small else 0.62) / width,
        right=0.985,
        bottom=(margin + 0.02) / height,
        top=1 - (margin + 0.05) / height,
        wspace=0.42 if small else 0.3,
        hspace=0.42 if small else 0.45,
    )
    horizon = max(float(analysis.study.frames(who)[-1]) for who in shown)
    for place, (axes, task) in enumerate(zip(grid.flat, tasks, strict=False)):
        for who in shown:
            _panel_curves(analysis, axes, who, task, shown, published)
        frames_axis(axes, horizon, label=False)
        axes.yaxis.set_major_locator(MaxNLocator(3 if small else 5))
        # A fixed height: looking for a free one takes a sixth of the time of the whole figure.
        axes.set_title(short_task(task), fontsize=6.5 if small else 8, pad=2, y=1.0)
        if small:
            axes.tick_params(labelsize=5, length=1.5, pad=1)
            axes.yaxis.set_major_formatter(lambda value, _: short_number(value))
            # Every panel has the same frames: only the lowest of a column has them written.
            axes.tick_params(axis="x", labelbottom=place + columns >= len(tasks))
    for axes in grid.flat[len(tasks) :]:
        axes.set_visible(False)
    _name_axes(figure, grid.flat[0], horizon)
    _family_legend(figure, shown)
    return figure


def _name_axes(figure: Figure, axes: Axes, horizon: float) -> None:
    frames_axis(axes, horizon)
    named = axes.get_xlabel()
    axes.set_xlabel("")
    figure.supxlabel(named, fontsize=8, y=0.06 / figure.get_figheight())
    figure.supylabel("evaluation score (points)", fontsize=8, x=0.04 / figure.get_figwidth())


def _family_legend(figure: Figure, shown: Sequence[Contender]) -> None:
    handles = [Line2D([], [], **line_style(who, shown)) for who in shown]
    figure.legend(handles=handles, loc="upper center", ncols=min(len(handles), 3))


def _panel_curves(
    analysis: Analysis,
    axes: Axes,
    who: Contender,
    task: str,
    shown: Sequence[Contender],
    published: bool,
) -> None:
    study = analysis.study
    style: dict[str, Any] = line_style(who, shown)
    style["linewidth"] *= 0.7
    x = study.frames(who)
    curves = study.curves(who, task)
    if len(curves):
        mean = mean_over_seeds(curves)
        axes.plot(x, mean, **style, **dots(study.points(who)))
        if len(curves) > 1:
            deviation = np.sqrt(mean_over_seeds((curves - mean) ** 2))
            band(axes, x, mean - deviation, mean + deviation, who.style.colour)
    unfinished = [run for run in study.cells.get((who, task), ()) if not study.is_complete(run)]
    for run in unfinished:
        within = run.curve.points <= study.points(who)
        frames = run.curve.points[within] * study.period(who)
        thin = {**style, "linewidth": 0.6, "alpha": 0.7}
        axes.plot(frames, run.curve.scores[within], **thin, **dots(study.points(who)))
    score = analysis.published(who, task) if published else None
    if score is not None:
        axes.axhline(score.mean, color=who.style.colour, linestyle=(0, (1, 2)), linewidth=0.8)
