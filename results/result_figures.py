"""The figures of the studies, from their committed data."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from studies import (
    GROUP_TITLES,
    OF_VARIANTS,
    STUDIES,
    RunData,
    StudyData,
    curves,
    environment_title,
    layer_groups,
    maxima,
    training_curves,
)
from verdicts import iqm

from noisynet.reports.agents import STYLES, Contender
from noisynet.reports.plotting import WIDTH, band, figure_style, frames_axis, panels
from noisynet.reports.scores import Floats, mean_over_seeds

DPI: Final = 150
MAX_BYTES: Final = 150_000
"""Of a figure."""
_COLOURS: Final = 128
_LINE: Final = 0.165  # the height of a line of text
# Colours of variants, safe for colour-blind readers (Wong 2011).
_PALETTE: Final = ("#D55E00", "#E69F00", "#CC79A7", "#009E73", "#0072B2", "#56B4E9", "#000000")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
# From small to large (Tol's iridescent colours): σ0 is a quantity.
_QUANTITY: Final = ("#7EB2E4", "#9A709E", "#D55E00", "#46353A")


def render(figure: Figure, source: str) -> bytes:
    """A figure as PNG of few colours, a third of the size; `source` names the data it shows."""
    drawn, png, text = io.BytesIO(), io.BytesIO(), PngInfo()
    with figure_style():
        figure.savefig(drawn, format="png", dpi=DPI)
    text.add_text("Source", source)
    image = Image.open(drawn).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    image.save(png, format="png", optimize=True, pnginfo=text)
    return png.getvalue()


def seeds_text(runs: Sequence[RunData]) -> str:
    """How many seeds finished: "3 seeds"."""
    count = len({run.seed for run in runs if run.finished})
    return f"{count} seed" + "s" * (count != 1)


# --- styles --------------------------------------------------------------------------------------


def styles(study: StudyData) -> dict[Contender, dict[str, Any]]:
    """Colour, marker and width of each contender's lines.

    Agents have the colours of the reports. Variants have colours of their own: dashes could not be
    told apart in small panels.
    """
    found: dict[Contender, dict[str, Any]] = {}
    order = _by_sigma0(study) if study.name == "sigma0" else study.contenders
    variants = any(contender.variant for contender in study.contenders)
    for index, contender in enumerate(order):
        colour = contender.style.colour
        if study.name == "sigma0":
            colour = _QUANTITY[index % len(_QUANTITY)]
        elif variants:
            colour = _PALETTE[_variant_index(study, contender) % len(_PALETTE)]
        found[contender] = {
            "color": colour,
            "marker": _MARKERS[index % len(_MARKERS)],
            "linestyle": "-" if contender.style.noisy else (0, (4, 1.5)),
            "linewidth": 1.5,
            "label": study.title(contender),
        }
    return found


def _by_variant(study: StudyData) -> dict[Contender, dict[str, Any]]:
    """The same for all agents: a colour and a marker of each variant, without the agent's name."""
    names = list(dict.fromkeys(map(study.variant_title, study.contenders)))
    return {
        contender: {
            "color": _PALETTE[names.index(name)],
            "marker": _MARKERS[names.index(name)],
            "linewidth": 1.5,
            "label": name,
        }
        for contender in study.contenders
        for name in [study.variant_title(contender)]
    }


def _variant_index(study: StudyData, contender: Contender) -> int:
    """Noisy contenders from the start of the palette, those without noise from its blues."""
    noisy = contender.style.noisy
    same = [one for one in study.contenders if one.style.noisy == noisy]
    return same.index(contender) + (0 if noisy else 4)


def _by_sigma0(study: StudyData) -> list[Contender]:
    return sorted(study.contenders, key=sigma0)


def sigma0(contender: Contender) -> float:
    """σ0 of a variant of the study "sigma0"."""
    return float(contender.variant.removeprefix("sigma0-") or 0.5)


def _handles(study: StudyData, shown: Sequence[Contender]) -> list[Line2D]:
    found = styles(study)
    return [Line2D([], [], markersize=3.5, **found[contender]) for contender in shown]


def _finish(figure: Figure, title: str, handles: Sequence[Any], columns: int) -> Figure:
    """Title and legend above all panels, where they cover no data."""
    height, columns = figure.get_figheight(), min(columns, len(handles))
    figure.text(0.5, 1 - 0.04 / height, title, fontsize=9, ha="center", va="top")
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 1 - 0.17 / height)}
    figure.legend(handles=handles, ncols=columns, handlelength=2.6, **below)
    lines = -(-len(handles) // columns)
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.25 + _LINE * lines) / height))
    return figure


def _title(study: StudyData, columns: int = 2) -> str:
    """What the lines are: "MinAtar, value agents: interquartile mean over 3 seeds, 95 % …"."""
    seeds = seeds_text(study.runs)
    if seeds == "1 seed":
        return f"{STUDIES[study.name]}: one seed, no intervals"
    if columns == 1:  # narrow: the panel itself names the environment
        return f"Interquartile mean over {seeds}, 95 % bootstrap intervals"
    return f"{STUDIES[study.name]}: interquartile mean over {seeds}, 95 % bootstrap intervals"


def _score_axis(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if axes.dataLim.y0 >= 0:
        axes.set_ylim(bottom=0)


# --- learning curves -----------------------------------------------------------------------------


def learning_curves(study: StudyData) -> Figure:
    """Every environment: interquartile mean over seeds with 95 % bootstrap intervals.

    Runs with different budgets have panels of their own.
    """
    runs = [run for run in study.runs if not run.environment.startswith("deep_sea")]
    keys = list(dict.fromkeys((run.environment, run.frames) for run in runs))
    figure, grid, columns = _curve_panels(len(keys), 3)
    shown = [c for c in study.contenders if any(run.contender == c for run in runs)]
    for axes, (environment, frames) in zip(grid, keys, strict=True):
        inside = [run for run in runs if (run.environment, run.frames) == (environment, frames)]
        curve_panel(axes, study, inside)
        title = environment_title(environment)
        axes.set_title(f"{title}, {seeds_text(inside)}")
    for axes in grid[::columns]:
        axes.set_ylabel("evaluation score")
    return _finish(figure, _title(study, columns), _handles(study, shown), 4 if columns > 1 else 2)


def _curve_panels(count: int, columns: int) -> tuple[Figure, list[Axes], int]:
    """Panels for learning curves, a larger one where there is only one, and their columns."""
    columns = min(columns, count)
    size = (WIDTH, 1.95) if columns > 1 else (0.72 * WIDTH, 2.7)
    return *panels(count, columns, *size, 0.55), columns


def variants_by_agent(study: StudyData) -> Figure:
    """A panel for each agent on each environment, with a curve for each variant."""
    keys = list(dict.fromkeys((run.environment, run.agent) for run in study.runs))
    figure, grid, columns = _curve_panels(len(keys), 2)
    for axes, (environment, agent) in zip(grid, keys, strict=True):
        inside = [run for run in study.runs if (run.environment, run.agent) == (environment, agent)]
        curve_panel(axes, study, inside)
        title = f"{STYLES[agent].title}, {environment_title(environment)}"
        axes.set_title(f"{title}, {seeds_text(inside)}")
    for axes in grid[::columns]:
        axes.set_ylabel("evaluation score")
    drawn = {style["label"]: style for style in _by_variant(study).values()}
    handles = [Line2D([], [], markersize=3.5, **style) for style in drawn.values()]
    return _finish(figure, _title(study, columns), handles, 4)


def curve_panel(
    axes: Axes,
    study: StudyData,
    runs: Sequence[RunData],
    curves_of: Callable[[Sequence[RunData]], Floats] = curves,
) -> None:
    """The curves of runs of one budget on one environment; unfinished ones are thin lines."""
    found = _by_variant(study) if study.name in OF_VARIANTS else styles(study)
    for contender in dict.fromkeys(run.contender for run in runs):
        mine = [run for run in runs if run.contender == contender]
        done = [run for run in mine if run.finished]
        x = np.arange(1, mine[0].points + 1, dtype=float) * mine[0].period_frames
        style = found[contender] | {"markersize": 3, "clip_on": False}
        if len(x) > 25:
            style["marker"] = ""
        if done:
            value, low, high = _curve_interval(curves_of(done))
            axes.plot(x, value, **style)
            band(axes, x, (low, high), style["color"])
        for run in mine:
            if not run.finished:
                thin = style | {"linewidth": 0.6, "markersize": 1.5, "alpha": 0.7}
                axes.plot(x, curves_of([run])[0], **thin)
    axes.set_xlabel(frames_axis(axes, runs[0].frames))
    _score_axis(axes)


def _curve_interval(of_seeds: Floats) -> tuple[Floats, Floats, Floats]:
    """Interquartile mean and interval at each evaluation of curves [S, K]: [K] each."""
    found = []
    for scores in of_seeds.T:
        scores = scores[~np.isnan(scores)]
        if not scores.size:
            found.append((np.nan,) * 3)
            continue
        one = iqm(scores)
        value = float(one.value)
        low, high = (value, value) if one.interval is None else map(float, one.interval)
        found.append((value, low, high))
    value, low, high = np.array(found).T
    return value, low, high


def training_and_evaluations(study: StudyData) -> Figure:
    """Returns of training games above, evaluations below; a column for each budget."""
    budgets = list(dict.fromkeys(run.frames for run in study.runs))
    figure = Figure(figsize=(WIDTH, 4.6))
    grid = figure.subplots(2, len(budgets), squeeze=False, sharex="col", sharey=True)
    for (upper, lower), frames in zip(grid.T, budgets, strict=True):
        inside = [run for run in study.runs if run.frames == frames]
        curve_panel(upper, study, inside, training_curves)
        curve_panel(lower, study, inside)
        names = dict.fromkeys(environment_title(run.environment) for run in inside)
        upper.set_title(f"{', '.join(names)}, {frames:,} frames")
        upper.set_xlabel("")
    grid[0, 0].set_ylabel("mean of the last\n100 training games")
    grid[1, 0].set_ylabel("evaluation score")
    return _finish(figure, _title(study), _handles(study, study.contenders), 3)


# --- Deep Sea ------------------------------------------------------------------------------------


def deep_sea(studies: Sequence[StudyData]) -> Figure:
    """Episodes until solved and the fraction of seeds that solve it, against the size."""
    columns = len(studies)
    figure = Figure(figsize=(WIDTH if columns > 1 else 0.72 * WIDTH, 5.3))
    grid = figure.subplots(2, columns, squeeze=False, sharex="col", height_ratios=(3, 2))
    handles: dict[str, Line2D] = {}
    for (upper, lower), study in zip(grid.T, studies, strict=True):
        drawn = styles(study)
        budget = max(run.budget_episodes for run in study.runs)
        for position, contender in enumerate(study.contenders):
            shift = (position - (len(study.contenders) - 1) / 2) * 0.22  # bars side by side
            _deep_sea_lines(study, contender, (upper, lower), shift, drawn[contender])
            handles[study.title(contender)] = _handles(study, [contender])[0]
        sizes = sorted({run.size for run in study.runs})
        upper.set_yscale("log")
        # Undirected exploration needs about 2ⁿ episodes.
        inside = [size for size in np.linspace(sizes[0], sizes[-1], 100) if 2**size <= budget]
        upper.plot(inside, [2**size for size in inside], color="#888888", lw=0.8, ls=(0, (1, 2)))
        if inside:
            place = {"xytext": (3, -2), "textcoords": "offset points", "va": "top"}
            upper.annotate("2ⁿ", (inside[-1], 2 ** inside[-1]), color="#666666", size=7, **place)
        upper.axhline(budget, color="#888888", linewidth=0.6)
        ticks = [tick for tick in (20, 50, 100, 200, 500, 1_000, 2_000, 5_000) if tick <= budget]
        upper.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        upper.yaxis.minorticks_off()
        upper.set_ylim(15, 1.25 * budget)
        fixed = "fixed" if study.name.endswith("fixed") else "random"
        upper.set_title(f"{fixed.capitalize()} action map, {seeds_text(study.runs)}")
        lower.set_ylim(-0.05, 1.05)
        lower.yaxis.set_major_formatter(PercentFormatter(1.0))
        lower.set_xticks(sizes, [f"{size}" for size in sizes])
        lower.set_xlabel("size of Deep Sea (n × n cells)")
    grid[0, 0].set_ylabel("episodes until solved")
    grid[1, 0].set_ylabel("seeds that solve it")
    title = "Interquartile mean, 95 % intervals; hollow: not every seed solves it"
    return _finish(figure, title, list(handles.values()), 3 if columns > 1 else 2)


def solved_episodes(runs: Sequence[RunData]) -> Floats:
    """Episodes until solved; the whole budget for runs that never solve it: [S]."""
    return np.array([min(run.solved_episodes, run.budget_episodes) for run in runs], float)


def _deep_sea_lines(
    study: StudyData,
    contender: Contender,
    both: tuple[Axes, Axes],
    shift: float,
    style: dict[str, Any],
) -> None:
    upper, lower = both
    cells = [(e, study.of(contender, e)) for e in study.environments]
    cells = sorted(((e, runs) for e, runs in cells if runs), key=lambda cell: cell[1][0].size)
    if not cells:
        return
    sizes = np.array([runs[0].size for _, runs in cells]) + shift
    found = [iqm(solved_episodes(runs)) for _, runs in cells]
    values = np.array([float(one.value) for one in found])
    upper.plot(sizes, values, **style | {"marker": ""})
    lows, highs = (
        [
            v if one.interval is None else one.interval[i]
            for v, one in zip(values, found, strict=True)
        ]
        for i in (0, 1)
    )
    upper.vlines(sizes, lows, highs, color=style["color"], linewidth=1.2, alpha=0.6)
    solved = np.array(
        [np.mean([np.isfinite(r.solved_episodes) for r in runs]) for _, runs in cells]
    )
    for size, value, all_solved in zip(sizes, values, solved == 1, strict=True):
        face = style["color"] if all_solved else "white"
        dot = {"color": style["color"], "marker": style["marker"], "markersize": 4}
        upper.plot([size], [value], markerfacecolor=face, clip_on=False, zorder=3, **dot)
    lower.plot(sizes, solved, markersize=3.5, clip_on=False, **style)


# --- σ0 ------------------------------------------------------------------------------------------


def sigma0_figure(study: StudyData) -> Figure:
    """Curves of each σ0, and the score or the episodes until solved against σ0."""
    figure = Figure(figsize=(WIDTH, 2.7))
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    games = [run for run in study.runs if run.environment.startswith("minatar")]
    grids = [run for run in study.runs if run.environment.startswith("deep_sea")]
    if games:
        curve_panel(left, study, games)
        name = environment_title(games[0].environment)
        left.set_title(f"{name}, {seeds_text(games)}")
        left.set_ylabel("evaluation score")
        _against_sigma0(middle, study, games, maxima)
        middle.set_title(name)
        middle.set_ylabel("score (maximum)")
    if grids:
        _against_sigma0(right, study, grids, solved_episodes)
        right.axhline(grids[0].budget_episodes, color="#888888", linewidth=0.6)
        right.set_title(f"{environment_title(grids[0].environment)}, {seeds_text(grids)}")
        right.set_ylabel("episodes until solved")
    for axes, runs in ((left, games), (middle, games), (right, grids)):
        axes.set_visible(bool(runs))
    title = "NoisyNet-DQN by σ0: interquartile mean over seeds, 95 % bootstrap intervals"
    return _finish(figure, title, _handles(study, _by_sigma0(study)), 4)


def _against_sigma0(axes: Axes, study: StudyData, runs: Sequence[RunData], numbers: Any) -> None:
    drawn = styles(study)
    order = [c for c in _by_sigma0(study) if study.of(c, runs[0].environment)]
    for position, contender in enumerate(order):
        values = numbers(study.of(contender, runs[0].environment))
        _dot(axes, position, values, drawn[contender], vertical=True)
    axes.set_xticks(range(len(order)), [f"{sigma0(contender):g}" for contender in order])
    axes.set_xlim(-0.6, len(order) - 0.4)
    _score_axis(axes)
    axes.set_xlabel("σ0")


def _dot(
    axes: Axes, position: float, values: Floats, style: dict[str, Any], *, vertical: bool
) -> None:
    """An interquartile mean with its interval; the seeds are small points next to it."""
    found, colour = iqm(values), style["color"]
    beside = np.full(len(values), position + 0.22)
    centre = np.array([position])
    seeds = {"linestyle": "none", "marker": ".", "markersize": 3, "color": colour, "alpha": 0.7}
    mark = {"linestyle": "none", "marker": style["marker"], "markersize": 5, "color": colour}
    spread = found.interval if found.interval is not None else np.repeat(found.value, 2)
    if vertical:
        axes.vlines(centre, *spread, color=colour, linewidth=3, alpha=0.4)
        axes.plot(beside, values, **seeds)
        axes.plot(centre, [found.value], **mark)
    else:
        axes.hlines(centre, *spread, color=colour, linewidth=3, alpha=0.4)
        axes.plot(values, beside, **seeds)
        axes.plot([found.value], centre, **mark)


# --- controls ------------------------------------------------------------------------------------


def controls_figure(study: StudyData) -> Figure:
    """Curves of every control, and below them the scores with intervals."""
    columns = len(study.environments)
    figure = Figure(figsize=(WIDTH, 5.0))
    grid = figure.subplots(2, columns, squeeze=False, height_ratios=(3, 2))
    drawn = styles(study)
    for column, environment in enumerate(study.environments):
        upper, lower = grid[:, column]
        runs = [run for run in study.runs if run.environment == environment]
        curve_panel(upper, study, runs)
        upper.set_title(f"{environment_title(environment)}, {seeds_text(runs)}")
        for position, contender in enumerate(study.contenders):
            done = study.of(contender, environment)
            if done:
                _dot(lower, position, maxima(done), drawn[contender], vertical=False)
        titles = [study.title(contender) if not column else "" for contender in study.contenders]
        lower.set_yticks(range(len(titles)), titles)
        lower.set_ylim(len(titles) - 0.4, -0.6)
        lower.set_xlim(left=0)
        lower.grid(axis="y", visible=False)
        lower.set_xlabel("score (maximum of the curve)")
    grid[0, 0].set_ylabel("evaluation score")
    return _finish(figure, _title(study), _handles(study, study.contenders), 3)


# --- Σ̄ ------------------------------------------------------------------------------------------


def has_sigma(study: StudyData) -> bool:
    """Whether a finished run has noisy layers."""
    return any(run.finished and run.sigma for run in study.runs)


def sigma_figure(study: StudyData) -> Figure:
    """Σ̄ of each group of layers relative to the start: a line for each environment."""
    with_sigma = [run for run in study.runs if run.finished and run.sigma]
    noisy = list(dict.fromkeys(run.contender for run in with_sigma))
    groups = {run.contender: list(layer_groups(run.sigma)) for run in with_sigma}
    rows = max(map(len, groups.values()))
    width = max(WIDTH * len(noisy) / 3, 0.8 * WIDTH)
    figure = Figure(figsize=(min(width, WIDTH), 1.0 + 1.5 * rows))
    grid = figure.subplots(rows, len(noisy), squeeze=False, sharex="col", sharey="row")
    for column, contender in enumerate(noisy):
        frames = max(run.frames for run in study.runs if run.contender == contender)
        for axes, group in zip(grid[:, column], groups[contender], strict=False):
            for index, environment in enumerate(study.environments):
                runs = [run for run in study.of(contender, environment) if run.sigma]
                if runs:
                    _sigma_line(axes, runs, group, index)
            axes.axhline(1, color="black", linewidth=0.6)
            axes.yaxis.set_major_locator(MaxNLocator(4))
            if not column or group not in groups[noisy[column - 1]]:
                axes.set_ylabel(GROUP_TITLES[group])
            label = frames_axis(axes, frames)
        axes.set_xlabel(label)
        axes.tick_params(labelbottom=True)
        for unused in grid[len(groups[contender]) :, column]:
            unused.set_visible(False)
        grid[0, column].set_title(study.title(contender))
    handles = [
        Line2D([], [], color=_PALETTE[i], marker=_MARKERS[i], markersize=3.5, label=name)
        for i, name in enumerate(map(environment_title, study.environments))
    ]
    title = f"Mean |σ| of the weights relative to the start, mean over {seeds_text(study.runs)}"
    return _finish(figure, title, handles, 3)


def _sigma_line(axes: Axes, runs: Sequence[RunData], group: str, index: int) -> None:
    layers = layer_groups(runs[0].sigma)[group]
    ratios = [
        np.mean([run.sigma[layer] / run.sigma[layer][0] for layer in layers], axis=0)
        for run in runs
    ]
    length = min(map(len, ratios))
    x, mean = runs[0].sigma_frames[:length], mean_over_seeds([one[:length] for one in ratios])
    style: dict[str, Any] = {"marker": _MARKERS[index], "markersize": 3, "markevery": (index, 5)}
    axes.plot(x, mean, color=_PALETTE[index], linewidth=1.2, **style)
