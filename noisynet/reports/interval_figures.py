"""Figures beyond the paper's: aggregates with intervals, profiles, noise on against off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from noisynet.reports.agents import Contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.load_metrics import NoiseMode
from noisynet.reports.plotting import (
    DIAMONDS,
    WIDTH,
    LazyFigure,
    band,
    figure_legend,
    frames_axis,
    line_style,
    markers,
)
from noisynet.reports.scores import (
    HUMAN,
    Estimate,
    Floats,
    Statistic,
    estimate_profile,
    interquartile_mean,
    mean_score,
    median_score,
    optimality_gap,
)

_PROFILE_POINTS: Final = 101
_AGGREGATES: Final[tuple[tuple[str, Statistic], ...]] = (
    ("median", median_score),
    ("interquartile mean", interquartile_mean),
    ("mean", mean_score),
    ("optimality gap", optimality_gap),
)
_MODES: Final[dict[NoiseMode, Any]] = {"on": "-", "off": (0, (1, 1))}


def interval_figures(analysis: Analysis) -> Iterator[LazyFigure]:
    """Aggregates, probability of improvement, profiles, and noise on against off."""
    shown = [contender for contender in analysis.study.contenders if analysis.tasks(contender)]
    if shown:
        yield LazyFigure(
            "aggregates",
            "Aggregate scores with intervals",
            "Each agent over the environments on which it has complete runs, with 95 % intervals "
            "of a stratified bootstrap over seeds. A lower optimality gap is better.",
            partial(_aggregates, analysis, shown),
        )
    pairs = [pair for pair in analysis.study.pairs if analysis.tasks(*pair)]
    if pairs:
        yield LazyFigure(
            "improvement",
            "Probability of improvement",
            "The probability that a run of the noisy agent scores higher than one of its baseline, "
            "mean over environments, with 95 % intervals. Below 50 % the baseline is better.",
            partial(_improvements, analysis, pairs),
        )
    if shown:
        yield LazyFigure(
            "profiles",
            "Performance profiles",
            "The fraction of runs that score above each threshold, with 95 % intervals. Higher is "
            "better; a curve crosses 50 % at its median run. A long axis is logarithmic above "
            "100 %.",
            partial(_profiles, analysis, shown),
        )
    noisy = [
        contender
        for contender in shown
        if contender.style.noisy and _tasks_in_both_modes(analysis, contender)
    ]
    if noisy:
        yield LazyFigure(
            "noise",
            "Noise on against off, median learning curves",
            "Median learning curves of the same weights, evaluated with noise and with mean "
            "weights.",
            partial(_noise, analysis, noisy),
        )


# --- aggregates ----------------------------------------------------------------------------------


def _aggregates(analysis: Analysis, shown: Sequence[Contender]) -> Figure:
    figure = Figure(figsize=(WIDTH, 0.95 + 0.22 * len(shown)))
    row = figure.subplots(1, len(_AGGREGATES), sharey=True)
    for axes, (title, statistic) in zip(row, _AGGREGATES, strict=True):
        for position, contender in enumerate(shown):
            tasks = analysis.tasks(contender)
            _interval(
                axes,
                position,
                analysis.estimate(statistic, contender, tasks),
                contender.style.colour,
            )
            published = analysis.published_strata(contender, tasks)
            # Published scores are means over seeds, so that only these statistics are known.
            if published is not None and statistic in (mean_score, median_score):
                value, label = float(statistic(published)), "published, same games"
                axes.plot([value], [position], label=label, **DIAMONDS)
        axes.set_title(title)
        axes.set_xlabel("(%)")
        axes.xaxis.set_major_locator(MaxNLocator(4))
    _label_rows(row[0], [contender.title for contender in shown])
    figure_legend(figure, row[0])
    has_legend = bool(row[0].get_legend_handles_labels()[1])
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.2 / figure.get_figheight() * has_legend))
    return figure


def _interval(axes: Axes, position: int, found: Estimate, colour: str) -> None:
    if found.interval is not None:
        axes.plot(found.interval, [position, position], color=colour, linewidth=4, alpha=0.4)
    axes.plot([found.value], [position], color=colour, marker="|", markersize=9, markeredgewidth=2)


def _label_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first at the top


def _improvements(analysis: Analysis, pairs: Sequence[tuple[Contender, Contender]]) -> Figure:
    figure = Figure(figsize=(WIDTH * 0.75, 0.75 + 0.26 * len(pairs)))
    axes = figure.add_subplot()
    for position, (noisy, baseline) in enumerate(pairs):
        _interval(axes, position, analysis.improvement(noisy, baseline), noisy.style.colour)
    axes.axvline(0.5, color="black", linewidth=0.8)
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("probability that the noisy agent scores higher")
    _label_rows(axes, [f"{noisy.title} over {baseline.title}" for noisy, baseline in pairs])
    figure.tight_layout()
    return figure


# --- profiles ------------------------------------------------------------------------------------


def _profiles(analysis: Analysis, shown: Sequence[Contender]) -> Figure:
    strata = {
        contender: analysis.strata(contender, analysis.tasks(contender)) for contender in shown
    }
    thresholds = _thresholds(np.concatenate([found.values for found in strata.values()]))
    figure = Figure(figsize=(WIDTH, 3.0))
    axes = figure.add_subplot()
    for contender, found in strata.items():
        profile, bounds = estimate_profile(found, thresholds, seed=analysis.seed)
        axes.plot(thresholds, profile, drawstyle="steps-post", **line_style(contender, shown))
        if bounds is not None:
            band(axes, thresholds, bounds[0], bounds[1], contender.style.colour, steps=True)
    if thresholds[-1] > 4 * HUMAN:
        axes.set_xscale("symlog", linthresh=HUMAN)
        ticks = [0, 25, 50, 75, 100, 200, 300, 500, 1_000, 2_000, 5_000, 10_000]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.xaxis.minorticks_off()
    axes.set_xlim(thresholds[0], thresholds[-1])
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(f"threshold: {analysis.normaliser.label}")
    axes.set_ylabel("fraction of runs above")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.tight_layout()
    return figure


def _thresholds(scores: Floats) -> Floats:
    """From 0 to the 98th percentile; logarithmic above 100 if that is above 400."""
    high = max(float(np.percentile(scores, 98)), 1.0)
    if high <= 4 * HUMAN:
        return np.linspace(0, high, _PROFILE_POINTS)
    upper = np.geomspace(HUMAN, high, _PROFILE_POINTS)[1:]
    return np.concatenate([np.linspace(0, HUMAN, _PROFILE_POINTS), upper])


# --- noise on against off ------------------------------------------------------------------------


def _tasks_in_both_modes(analysis: Analysis, contender: Contender) -> list[str]:
    study = analysis.study
    return [
        task
        for task in analysis.tasks(contender)
        if study.scores(contender, task, "on").size and study.scores(contender, task, "off").size
    ]


def _noise(analysis: Analysis, noisy: Sequence[Contender]) -> Figure:
    columns = min(len(noisy), 4)
    rows = -(-len(noisy) // columns)
    figure = Figure(figsize=(max(WIDTH * columns / 4, 3.5), 0.5 + 1.9 * rows))
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, contender in zip(grid.flat, noisy, strict=False):
        tasks = _tasks_in_both_modes(analysis, contender)
        x = analysis.study.frames(contender)
        for mode, dashes in _MODES.items():
            curve = analysis.median_curve(contender, tasks, mode)
            style = {"color": contender.style.colour, "linestyle": dashes}
            axes.plot(x, curve, **style, **markers(analysis.study.points(contender)))
        frames_axis(axes, float(x[-1]))
        axes.xaxis.label.set_size(7)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_title(contender.title, fontsize=7)
    for axes in grid.flat[len(noisy) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel(f"median {analysis.normaliser.label}", fontsize=6.5)
    handles = [
        Line2D([], [], color="black", linestyle=dashes, label=f"noise {mode}")
        for mode, dashes in _MODES.items()
    ]
    figure.legend(handles=handles, loc="upper center", ncols=2)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.2 / figure.get_figheight()))
    return figure
