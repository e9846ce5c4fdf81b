"""The style of figures, and their reproducible rendering as PNG and SVG."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from noisynet.reports.agents import Contender
from noisynet.reports.scores import Floats

WIDTH: Final = 7.0
"""Inches: the text width of a page."""
DPI: Final = 200

_STYLE: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",  # shipped with matplotlib: figures look the same on every machine
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "noisynet",  # reproducible ids inside the file
    "text.parse_math": False,  # a dollar sign in a name starts no formula
}

# For lines of environments: Tol's muted colours, none of which is an agent's.
OTHER_COLOURS: Final = ("#332288", "#88CCEE", "#117733", "#DDCC77", "#AA4499", "#882255")
DIAMONDS: Final[dict[str, Any]] = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 3.2,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
    "markeredgewidth": 0.7,
}
"""The style of published scores."""
_MARKERS: Final = ("o", "s", "^", "D", "v", "P")
_VARIANT_LINES: Final = ((0, (1, 1)), (0, (3, 1, 1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (2, 2)))


@dataclass(frozen=True)
class LazyFigure:
    """A figure that is drawn on demand: all figures at once would fill the memory.

    Attributes:
        name: of its files, as in "figure-2".
        title: one line.
        caption: what it shows and how to read it.
        draw: draws it.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class RenderedFigure:
    """A figure as image files."""

    figure: LazyFigure
    width_inches: float
    png: bytes
    svg: bytes


def render_figure(figure: LazyFigure) -> RenderedFigure:
    """Draw a figure as PNG and SVG."""
    with figure_style():
        drawn = figure.draw()
        png, svg = io.BytesIO(), io.BytesIO()
        drawn.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        drawn.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return RenderedFigure(figure, drawn.get_figwidth(), png.getvalue(), svg.getvalue())


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw figures in the report's style, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        # Characters that the font lacks are drawn as boxes; the tables have them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def line_style(contender: Contender, contenders: Sequence[Contender]) -> dict[str, Any]:
    """Colour, width and dashes of a contender's lines; dashes tell variants of an agent apart."""
    variants = [one for one in contenders if one.agent == contender.agent and one.variant]
    if contender in variants:
        dashes: Any = _VARIANT_LINES[variants.index(contender) % len(_VARIANT_LINES)]
    else:
        dashes = "-"
    # The width tells a noisy agent from its baseline without colour.
    return {
        "color": contender.style.colour,
        "linestyle": dashes,
        "linewidth": 1.7 if contender.style.noisy else 1.0,
        "label": contender.title,
    }


def task_style(index: int, label: str) -> dict[str, Any]:
    """Colour and marker of the index-th environment's line."""
    return {
        "color": OTHER_COLOURS[index % len(OTHER_COLOURS)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "label": label,
    }


def frames_axis(axes: Axes, frames: float, *, label: bool = True) -> None:
    """Label the axis of training frames, in a suitable unit."""
    unit, size = next(
        (unit, size)
        for unit, size in (("millions", 1e6), ("thousands", 1e3), ("", 1.0))
        if frames >= size or size == 1.0
    )
    axes.set_xlim(0, frames)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / size:g}"))
    if label:
        axes.set_xlabel(f"training frames ({unit})" if unit else "training frames")


def band(
    axes: Axes, x: Floats, low: Floats, high: Floats, colour: str, *, steps: bool = False
) -> None:
    """Shade an interval around a line or a step function."""
    axes.fill_between(
        x, low, high, color=colour, alpha=0.18, linewidth=0, step="post" if steps else None
    )


def panel_legend(axes: Axes, columns: int = 1) -> None:
    """Put the legend of a panel above it, where it covers no curve."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2)


def figure_legend(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Put one legend above all panels of a figure, with each label once."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if once:
        figure.legend(
            list(once.values()), list(once), loc="upper center", ncols=min(columns, len(once))
        )


def markers(points: int) -> dict[str, Any]:
    """Markers for curves of few points: a single point would otherwise be invisible."""
    return {"marker": "o", "markersize": 3, "clip_on": False} if points <= 15 else {}


def short_number(value: float) -> str:
    """A number in at most four characters: 12,000 is 12k."""
    size, unit = next(
        (s, u) for s, u in ((1e6, "M"), (1e3, "k"), (1.0, "")) if abs(value) >= s or s == 1
    )
    return f"{value / size:g}{unit}".replace("-", "−")
