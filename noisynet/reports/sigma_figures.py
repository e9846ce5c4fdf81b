"""Figure 3: Σ̄ of each noisy layer over training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from noisynet.reports.agents import Contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.load_metrics import SIGMA_POINTS
from noisynet.reports.plotting import (
    WIDTH,
    LazyFigure,
    figure_legend,
    frames_axis,
    task_style,
)
from noisynet.reports.scores import Floats, mean_over_seeds
from noisynet.reports.study import figure_label

_SIGMA_GAMES: Final = 5
_SIGMA_BARS: Final = 10


def sigma_figures(analysis: Analysis) -> Iterator[LazyFigure]:
    """Figure 3 for each noisy contender."""
    for contender in analysis.study.contenders:
        tasks = [task for task in analysis.study.tasks if _sigma(analysis, contender, task)]
        if not tasks:
            continue
        chosen = choose_games(tasks)
        others = ""
        if len(chosen) < len(tasks):
            others = (
                f" {len(chosen)} of {len(tasks)} environments are shown: those named in section "
                "4.2, and others in alphabetical order."
            )
        in_paper = contender.style.in_paper
        yield LazyFigure(
            f"{'figure-3' if in_paper else 'sigma'}-{contender.file_name}",
            f"{'Figure 3: ' if in_paper else ''}Σ̄ of {contender.title}",
            "Σ̄, the mean |σ| of the weights of each noisy layer (Eq. 20), over training: mean over "
            f"seeds, bars of ± one standard deviation.{others}",
            partial(_sigmas, analysis, contender, chosen),
        )


def choose_games(tasks: Sequence[str]) -> list[str]:
    """At most five: Pong and Beam Rider, named in the paper, and others evenly spaced."""
    if len(tasks) <= _SIGMA_GAMES:
        return list(tasks)
    named = [task for task in ("atari/beam_rider", "atari/pong") if task in tasks]
    rest = [task for task in tasks if task not in named]
    positions = np.linspace(0, len(rest) - 1, _SIGMA_GAMES - len(named)).round().astype(int)
    return sorted([*named, *(rest[position] for position in positions)])


def _sigma(analysis: Analysis, contender: Contender, task: str) -> dict[str, Floats]:
    """Σ̄ of each layer: [S, SIGMA_POINTS]."""
    found: dict[str, list[Floats]] = {}
    for run in analysis.study.cells.get((contender, task), ()):
        for layer, values in run.sigma.items():
            found.setdefault(layer, []).append(values)
    return {layer: np.stack(values) for layer, values in found.items()}


def _sigmas(analysis: Analysis, contender: Contender, tasks: Sequence[str]) -> Figure:
    curves = {task: _sigma(analysis, contender, task) for task in tasks}
    layers = list(dict.fromkeys(layer for of_task in curves.values() for layer in of_task))
    columns = 2 if len(layers) == 4 else min(len(layers), 3)
    rows = -(-len(layers) // columns)
    figure = Figure(figsize=(max(WIDTH * columns / 3, 3.5), 0.45 + 2.0 * rows))
    grid = figure.subplots(rows, columns, squeeze=False)
    budget = analysis.study.protocols[contender.style.kind].budget_frames
    x = (np.arange(SIGMA_POINTS) + 0.5) * budget / SIGMA_POINTS
    for axes, layer in zip(grid.flat, layers, strict=False):
        for index, (task, of_task) in enumerate(curves.items()):
            if layer in of_task:
                _sigma_line(axes, x, of_task[layer], index, figure_label(task))
        frames_axis(axes, budget)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_title(layer)
    for axes in grid.flat[len(layers) :]:
        axes.set_visible(False)
    for row in grid:
        # A formula: the font cannot combine the bar with a plain letter.
        row[0].set_ylabel(r"$\bar{\Sigma}$ (mean $|\sigma^w|$)", parse_math=True)
    figure_legend(figure, grid.flat[0], columns=5)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / figure.get_figheight()))
    return figure


def _sigma_line(axes: Axes, x: Floats, values: Floats, index: int, label: str) -> None:
    """A line with a few error bars, offset for each environment."""
    mean = mean_over_seeds(values)
    present = ~np.isnan(mean)
    x, mean, values = x[present], mean[present], values[:, present]
    every = max(1, len(x) // _SIGMA_BARS)
    style = task_style(index, label)
    axes.plot(x, mean, linewidth=1.1, markersize=3, markevery=(index % every, every), **style)
    if len(values) > 1:
        deviation = np.sqrt(mean_over_seeds((values - mean) ** 2))
        at = slice(index % every, None, every)
        bars: dict[str, Any] = {
            "fmt": "none",
            "ecolor": style["color"],
            "elinewidth": 0.8,
            "capsize": 1.5,
        }
        axes.errorbar(x[at], mean[at], yerr=deviation[at], **bars)
