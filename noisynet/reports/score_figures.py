"""Figures of scores: Figure 1, aggregates with intervals, performance profiles."""

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
from noisynet.reports.plotting import (
    DIAMONDS,
    WIDTH,
    ReportFigure,
    band,
    figure_legend,
    line_style,
)
from noisynet.reports.scores import (
    AGGREGATES,
    HUMAN,
    Estimate,
    Floats,
    estimate,
    performance_profile,
)
from noisynet.reports.study import figure_label

TRUNCATION: Final = 250.0
"""Where Figure 1 truncates its bars, in per cent."""
_PROFILE_POINTS: Final = 101


def score_figures(analysis: Analysis) -> Iterator[ReportFigure]:
    """Relative scores, aggregates, probability of improvement and profiles, if there are runs."""
    yield from _relative_figures(analysis)
    shown = [one for one in analysis.study.contenders if analysis.aggregated(one)]
    if shown:
        yield ReportFigure(
            "aggregates",
            "Aggregate scores with intervals",
            "Each agent over the environments on which it has complete runs, with 95 % intervals "
            "of a stratified bootstrap over seeds. A lower optimality gap is better.",
            _aggregates(analysis, shown),
        )
    pairs = [pair for pair in analysis.study.pairs if analysis.aggregated(*pair)]
    if pairs:
        yield ReportFigure(
            "improvement",
            "Probability of improvement",
            "The probability that a run of the noisy agent scores higher than one of its baseline, "
            "mean over environments, with 95 % intervals. Below 50 % the baseline is better.",
            _improvements(analysis, pairs),
        )
    if shown:
        yield ReportFigure(
            "profiles",
            "Performance profiles",
            "The fraction of runs that score above each threshold, with 95 % intervals. Higher is "
            "better; a curve crosses 50 % at its median run. A long axis is logarithmic above "
            "100 %.",
            _profiles(analysis, shown),
        )


# --- Figure 1 ------------------------------------------------------------------------------------


def _relative_figures(analysis: Analysis) -> Iterator[ReportFigure]:
    for number, (noisy, baseline) in enumerate(analysis.study.pairs):
        measured = analysis.relative(noisy, baseline)
        if not measured:
            continue
        published = analysis.relative(noisy, baseline, published=True)
        diamonds = " Diamonds: published scores." if published else ""
        name, title = f"relative-{noisy.file_name}", "Relative score"
        if noisy.style.in_paper:  # the paper's agents come first, so that letters are consecutive
            name, title = f"figure-1{'abcdefghijklmnopqrstuvwxyz'[number % 26]}", "Figure 1"
        yield ReportFigure(
            name,
            f"{title}: {noisy.title} over {baseline.title}",
            f"Relative score of {noisy.title} over {baseline.title} (Eq. 19) in each environment. "
            "Bars have the colour of the better agent and are truncated at 250 %, with their value "
            f"above.{diamonds}",
            _bars(noisy, baseline, measured, published),
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
    _finish_bars(axes, tasks, [*heights, *diamonds, 0.0])
    handles = [
        Line2D([], [], color=contender.style.colour, lw=5, label=f"{contender.title} better")
        for contender in (noisy, baseline)
    ]
    if diamonds:
        handles.append(Line2D([], [], label="published", **DIAMONDS))
    columns = len(handles) if len(tasks) > 8 else 1
    figure.legend(handles=handles, loc="upper center", ncols=columns, handlelength=1)
    top = 0.9 if columns > 1 else 0.98 - 0.06 * len(handles)
    figure.tight_layout(rect=(0, 0, 1, top))
    return figure


def _finish_bars(axes: Axes, tasks: Sequence[str], shown: Sequence[float]) -> None:
    low, high = min(shown), max(shown)
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


# --- aggregates ----------------------------------------------------------------------------------


def _aggregates(analysis: Analysis, shown: Sequence[Contender]) -> Figure:
    figure = Figure(figsize=(WIDTH, 0.95 + 0.22 * len(shown)))
    row = figure.subplots(1, len(AGGREGATES), sharey=True)
    titles = ("median", "interquartile mean", "mean", "optimality gap")
    for axes, title in zip(row, titles, strict=True):
        for position, contender in enumerate(shown):
            tasks = analysis.tasks(contender)
            found = estimate(AGGREGATES[title], analysis.normalised(contender, tasks))
            _interval(axes, position, found, contender.style.colour)
            published = analysis.normalised(contender, tasks, published=True)
            # Published scores are means over seeds, so that only these statistics are known.
            if title in ("mean", "median") and all(scores.size for scores in published):
                value, label = float(AGGREGATES[title](published)), "published, same games"
                axes.plot([value], [position], label=label, **DIAMONDS)
        axes.set_title(title)
        axes.set_xlabel("(%)")
        axes.xaxis.set_major_locator(MaxNLocator(4))
    _label_rows(row[0], [contender.title for contender in shown])
    legend = figure_legend(figure, row[0].get_legend_handles_labels()[0])
    figure.tight_layout(rect=(0, 0, 1, 1 - legend / figure.get_figheight()))
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
    scores = {one: analysis.normalised(one, analysis.tasks(one)) for one in shown}
    thresholds = _thresholds(np.concatenate([runs for tasks in scores.values() for runs in tasks]))
    profile = partial(performance_profile, thresholds=thresholds)
    figure = Figure(figsize=(WIDTH, 3.0))
    axes = figure.add_subplot()
    for contender, tasks in scores.items():
        found = estimate(profile, tasks)
        axes.plot(thresholds, found.value, drawstyle="steps-post", **line_style(contender, shown))
        if found.interval is not None:
            band(axes, thresholds, found.interval, contender.style.colour, step="post")
    if thresholds[-1] > 4 * HUMAN:
        axes.set_xscale("symlog", linthresh=HUMAN)
        ticks = [0, 25, 50, 75, 100, 200, 300, 500, 1_000, 2_000, 5_000, 10_000]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.xaxis.minorticks_off()
    axes.set_xlim(thresholds[0], thresholds[-1])
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(f"threshold: {analysis.label}")
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
