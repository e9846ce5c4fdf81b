"""Figures over training: learning curves (Figures 2, 5 to 8), noise on against off, Σ̄ (Figure 3).

Agents that are not in the paper have the same figures under other names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from noisynet.reports.agents import FACTORISED_A3C, Contender
from noisynet.reports.analysis import PUBLISHED_FRAMES, Analysis
from noisynet.reports.load_runs import SIGMA_POINTS, NoiseMode
from noisynet.reports.plotting import (
    WIDTH,
    ReportFigure,
    band,
    figure_legend,
    frames_axis,
    line_style,
    markers,
    panels,
)
from noisynet.reports.scores import Floats, mean_over_seeds
from noisynet.reports.study import figure_label

COMPARISONS: Final = {
    "dqn": ("DQN", "figure-6", "Figure 6: "),
    "dueling": ("Dueling", "figure-7", "Figure 7: "),
    "a3c": ("A3C", "figure-8", "Figure 8: "),
    "c51": ("C51", "curves-c51", ""),
    "rainbow-without-noise": ("Rainbow", "curves-rainbow", ""),
}
"""By baseline: the title of the comparison, the name of its curves, the start of their title."""
_MAX_COLUMNS: Final = 6
_MODES: Final[dict[NoiseMode, Any]] = {"on": "-", "off": (0, (1, 1))}

_SIGMA_GAMES: Final = 5
_SIGMA_BARS: Final = 10
# For lines of environments: Tol's muted colours, none of which is an agent's.
_TASK_COLOURS: Final = ("#332288", "#88CCEE", "#117733", "#DDCC77", "#AA4499", "#882255")
_TASK_MARKERS: Final = ("o", "s", "^", "D", "v", "P")


def curve_figures(analysis: Analysis) -> Iterator[ReportFigure]:
    """Every figure over training for which there are runs."""
    for figures in (_environment_figures, _median_figures, _noise_figures, _sigma_figures):
        for figure in figures(analysis):
            yield replace(figure, over_frames=True)


# --- Figures 6 to 8: every environment -----------------------------------------------------------


def _environment_figures(analysis: Analysis) -> Iterator[ReportFigure]:
    study = analysis.study
    for agent, (title, name, beginning) in COMPARISONS.items():
        shown = analysis.compared_with(agent, factorised_a3c=True)
        tasks = [task for task in study.tasks if any((one, task) in study.cells for one in shown)]
        if not any(study.points(contender) for contender in shown):
            continue
        published = _shows_published(analysis, shown)
        yield ReportFigure(
            name,
            f"{beginning}{title}, every environment",
            "Evaluation scores: mean over complete runs, shaded ± one standard deviation; thin "
            "lines are unfinished runs."
            + (" Dotted: the published maximal score." if published else ""),
            _environments(analysis, shown, tasks, published),
        )


def _shows_published(analysis: Analysis, shown: Sequence[Contender]) -> bool:
    """Whether to show published scores: they would flatten the curves of much shorter runs."""
    if analysis.study.family != "atari" or not shown[0].style.in_paper:
        return False
    kinds = {contender.style.kind for contender in shown}
    return all(2 * analysis.study.horizons[kind] >= PUBLISHED_FRAMES[kind] for kind in kinds)


def _environments(
    analysis: Analysis, shown: Sequence[Contender], tasks: Sequence[str], published: bool
) -> Figure:
    columns = min(_MAX_COLUMNS if len(tasks) > 12 else 3, len(tasks))
    small = columns == _MAX_COLUMNS
    width = max(WIDTH if small else WIDTH / 3 * columns, 0.6 * WIDTH)
    figure, grid = panels(len(tasks), columns, width, 0.9 if small else 1.7, 0.6)
    legend = figure_legend(figure, [Line2D([], [], **line_style(one, shown)) for one in shown], 3)
    height = figure.get_figheight() + legend
    figure.set_figheight(height)
    figure.subplots_adjust(
        left=(0.42 if small else 0.62) / width,
        right=0.985,
        bottom=0.44 / height,
        top=1 - (legend + 0.22) / height,
        wspace=0.42 if small else 0.3,
        hspace=0.42 if small else 0.45,
    )
    horizon = max(float(analysis.study.frames(contender)[-1]) for contender in shown)
    for position, (axes, task) in enumerate(zip(grid, tasks, strict=True)):
        for contender in shown:
            _plot_environment(analysis, axes, contender, task, shown)
            score = analysis.published(contender, task) if published else None
            if score is not None:
                style: dict[str, Any] = {"linestyle": (0, (1, 2)), "linewidth": 0.8}
                axes.axhline(score.mean, color=contender.style.colour, **style)
        label = frames_axis(axes, horizon)
        axes.yaxis.set_major_locator(MaxNLocator(3 if small else 5))
        # A fixed height: an automatic one takes a sixth of the time of the whole figure.
        axes.set_title(figure_label(task), fontsize=6.5 if small else 8, pad=2, y=1.0)
        if small:
            axes.tick_params(labelsize=5, length=1.5, pad=1)
            axes.yaxis.set_major_formatter(lambda value, _: short_number(value))
            # All panels share the x axis: only the lowest of a column has labels.
            axes.tick_params(axis="x", labelbottom=position + columns >= len(tasks))
    figure.supxlabel(label, fontsize=8, y=0.06 / height)
    figure.supylabel("evaluation score (points)", fontsize=8, x=0.04 / width)
    return figure


def _plot_environment(
    analysis: Analysis, axes: Axes, contender: Contender, task: str, shown: Sequence[Contender]
) -> None:
    study, x = analysis.study, analysis.study.frames(contender)
    style = line_style(contender, shown) | markers(len(x))
    style["linewidth"] *= 0.7
    complete = study.complete(contender, task)
    if complete:
        mean, deviation = _mean_and_deviation(study.curves(contender, complete))
        axes.plot(x, mean, **style)
        if len(complete) > 1:
            band(axes, x, (mean - deviation, mean + deviation), contender.style.colour)
    for curve in study.curves(contender, study.unfinished(contender, task)):
        present = ~np.isnan(curve)
        thin = {"linewidth": 0.6, "alpha": 0.7, "label": f"{contender.title}, unfinished"}
        axes.plot(x[present], curve[present], **style | thin)


def _mean_and_deviation(curves: Floats) -> tuple[Floats, Floats]:
    """Of curves [S, K] over seeds: [K] each."""
    mean = mean_over_seeds(curves)
    return mean, np.sqrt(mean_over_seeds((curves - mean) ** 2))


def short_number(value: float) -> str:
    """A number in at most four characters: 12,000 is 12k."""
    units = ((1e6, "M"), (1e3, "k"), (1.0, ""))
    size, unit = next((s, u) for s, u in units if abs(value) >= s or s == 1)
    return f"{value / size:g}{unit}".replace("-", "−")


# --- Figures 2 and 5: medians --------------------------------------------------------------------


def _median_figures(analysis: Analysis) -> Iterator[ReportFigure]:
    by_title = {title: analysis.compared_with(agent) for agent, (title, *_) in COMPARISONS.items()}
    paper = {title: by_title[title] for title in ("DQN", "Dueling", "A3C")}
    others = {title: by_title[title] for title in ("C51", "Rainbow")}
    a3c = analysis.compared_with("a3c", factorised_a3c=True)
    factorised = any(contender.agent == FACTORISED_A3C for contender in a3c)
    for name, title, compared in (
        ("figure-2", "Figure 2: median learning curves", paper),
        ("medians", "Median learning curves of agents that are not in the paper", others),
        (
            "figure-5",
            "Figure 5: A3C with independent and with factorised noise",
            {"A3C": a3c} if factorised else {},
        ),
    ):
        found = {h: shown for h, shown in compared.items() if shown and analysis.tasks(*shown)}
        if not found:
            continue
        counts = "; ".join(f"{h}: {len(analysis.tasks(*shown))}" for h, shown in found.items())
        numbers = "" if name == "medians" else " The paper has no numbers for this figure."
        yield ReportFigure(
            name,
            title,
            "At each evaluation: the median over environments of the normalised mean score over "
            "seeds. Environments on which every agent of a panel has complete runs."
            f"{numbers} Environments: {counts}.",
            _medians(analysis, list(found.values())),
        )


def _medians(analysis: Analysis, compared: Sequence[Sequence[Contender]]) -> Figure:
    width = WIDTH / 3 * len(compared) if len(compared) > 1 else WIDTH / 2
    figure, grid = panels(len(compared), len(compared), width, 2.6, 0)
    for axes, shown in zip(grid, compared, strict=True):
        tasks = analysis.tasks(*shown)
        for contender in shown:
            x, y = analysis.study.frames(contender), analysis.median_curve(contender, tasks)
            axes.plot(x, y, **line_style(contender, shown), **markers(len(x)))
        horizon = max(analysis.study.frames(contender)[-1] for contender in shown)
        axes.set_xlabel(frames_axis(axes, horizon))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        # Above the panel, where it covers no curve.
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)
    grid[0].set_ylabel(f"median {analysis.label}")
    figure.tight_layout()
    return figure


# --- noise on against off ------------------------------------------------------------------------


def _noise_figures(analysis: Analysis) -> Iterator[ReportFigure]:
    noisy = {}
    for contender in analysis.study.contenders:
        tasks = [
            task
            for task in analysis.tasks(contender)
            if all(analysis.study.scores(contender, task, mode).size for mode in _MODES)
        ]
        if tasks and contender.style.noisy:
            noisy[contender] = tasks
    if noisy:
        yield ReportFigure(
            "noise",
            "Noise on against off, median learning curves",
            "Median learning curves of the same weights, evaluated with noise and with mean "
            "weights.",
            _noise_modes(analysis, noisy),
        )


def _noise_modes(analysis: Analysis, noisy: dict[Contender, list[str]]) -> Figure:
    columns = min(len(noisy), 4)
    figure, grid = panels(len(noisy), columns, max(WIDTH * columns / 4, 3.5), 1.9, 0.5)
    for axes, (contender, tasks) in zip(grid, noisy.items(), strict=True):
        x = analysis.study.frames(contender)
        for mode, dashes in _MODES.items():
            style = {"color": contender.style.colour, "linestyle": dashes, **markers(len(x))}
            curve = analysis.median_curve(contender, tasks, mode)
            axes.plot(x, curve, label=f"noise {mode}", **style)
        axes.set_xlabel(frames_axis(axes, x[-1]), size=7)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_title(contender.title, fontsize=7)
    for axes in grid[::columns]:
        axes.set_ylabel(f"median {analysis.label}", fontsize=6.5)
    handles = [
        Line2D([], [], color="black", linestyle=dashes, label=f"noise {mode}")
        for mode, dashes in _MODES.items()
    ]
    legend = figure_legend(figure, handles)
    figure.tight_layout(rect=(0, 0, 1, 1 - legend / figure.get_figheight()))
    return figure


# --- Figure 3: Σ̄ ---------------------------------------------------------------------------------


def _sigma_figures(analysis: Analysis) -> Iterator[ReportFigure]:
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
        yield ReportFigure(
            f"{'figure-3' if in_paper else 'sigma'}-{contender.file_name}",
            f"{'Figure 3: ' if in_paper else ''}Σ̄ of {contender.title}",
            "Σ̄, the mean |σ| of the weights of each noisy layer (Eq. 20), over training: mean over "
            f"seeds, bars of ± one standard deviation.{others}",
            _layers(analysis, contender, chosen),
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
    runs = analysis.study.cells.get((contender, task), ())
    layers = dict.fromkeys(layer for run in runs for layer in run.sigma)
    return {
        layer: np.stack([run.sigma[layer] for run in runs if layer in run.sigma])
        for layer in layers
    }


def _layers(analysis: Analysis, contender: Contender, tasks: Sequence[str]) -> Figure:
    sigma = {task: _sigma(analysis, contender, task) for task in tasks}
    layers = list(dict.fromkeys(layer for of_task in sigma.values() for layer in of_task))
    columns = 2 if len(layers) == 4 else min(len(layers), 3)
    figure, grid = panels(len(layers), columns, max(WIDTH * columns / 3, 3.5), 2.0, 0.45)
    budget = analysis.study.protocols[contender.style.kind].budget_frames
    for axes, layer in zip(grid, layers, strict=True):
        for index, (task, of_task) in enumerate(sigma.items()):
            if layer in of_task:
                _plot_sigma(axes, budget, of_task[layer], index, figure_label(task))
        axes.set_xlabel(frames_axis(axes, budget))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_title(layer)
    for axes in grid[::columns]:
        # A formula: the font cannot combine the bar with a plain letter.
        axes.set_ylabel(r"$\bar{\Sigma}$ (mean $|\sigma^w|$)", parse_math=True)
    handles = [one for axes in grid for one in axes.get_legend_handles_labels()[0]]
    legend = figure_legend(figure, handles, 5)
    figure.tight_layout(rect=(0, 0, 1, 1 - legend / figure.get_figheight()))
    return figure


def _plot_sigma(axes: Axes, budget: int, values: Floats, index: int, label: str) -> None:
    """A line with a few error bars, offset for each environment."""
    x = (np.arange(SIGMA_POINTS) + 0.5) * budget / SIGMA_POINTS
    mean, deviation = _mean_and_deviation(values)
    present = ~np.isnan(mean)
    x, mean, deviation = x[present], mean[present], deviation[present]
    every = max(1, len(x) // _SIGMA_BARS)
    start, colour = index % every, _TASK_COLOURS[index % len(_TASK_COLOURS)]
    marker = _TASK_MARKERS[index % len(_TASK_MARKERS)]
    style: dict[str, Any] = {"marker": marker, "markersize": 3, "markevery": (start, every)}
    axes.plot(x, mean, color=colour, label=label, linewidth=1.1, **style)
    if len(values) > 1:
        at = slice(start, None, every)
        bars: dict[str, Any] = {"fmt": "none", "elinewidth": 0.8, "capsize": 1.5}
        axes.errorbar(x[at], mean[at], yerr=deviation[at], ecolor=colour, **bars)
