"""The style of figures, and their reproducible rendering as PNG and SVG."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
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

DIAMONDS: Final[dict[str, Any]] = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 3.2,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
    "markeredgewidth": 0.7,
}
"""The style of published scores."""
_VARIANT_LINES: Final = ((0, (1, 1)), (0, (3, 1, 1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (2, 2)))


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report; `name` is that of its files, as in "figure-2".

    With `over_frames`, its x axes are training frames, and the page shows the values of its lines
    under the pointer.
    """

    name: str
    title: str
    caption: str
    drawn: Figure
    over_frames: bool = False

    def render(self) -> tuple[bytes, bytes]:
        """The figure as PNG and as SVG."""
        png, svg = io.BytesIO(), io.BytesIO()
        with figure_style():
            self.drawn.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
            self.drawn.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        return png.getvalue(), svg.getvalue()


def line_values(figure: Figure) -> dict[str, Any]:
    """The values of every labelled line of a figure, for the script of the page.

    `x` has the frames of all lines, and each line its `y` at these, None where it has no point.
    `box` is the panel within the figure: left, top, width and height as fractions; `range` the
    ends of its x axis.
    """
    lines = {
        axes: [line for line in axes.lines if not str(line.get_label()).startswith("_")]
        for axes in figure.axes
    }
    points = [np.asarray(line.get_xdata(), float) for found in lines.values() for line in found]
    frames = np.unique(np.concatenate([np.empty(0), *points]))
    panels = []
    for axes, found in lines.items():
        box = axes.get_position()
        values = [
            {
                "name": str(line.get_label()),
                "colour": to_hex(line.get_color()),
                "y": _values_at(frames, *(np.asarray(data, float) for data in line.get_data())),
            }
            for line in found
        ]
        if values:
            bounds = (box.x0, 1 - box.y1, box.width, box.height)
            panel = {"box": [round(float(bound), 4) for bound in bounds], "lines": values}
            panels.append({**panel, "title": axes.get_title(), "range": [*axes.get_xlim()]})
    return {"x": frames.round().astype(int).tolist(), "panels": panels}


def _values_at(frames: Floats, x: Floats, y: Floats) -> list[float | None]:
    values = dict(zip(x, y, strict=True))
    found = (values.get(frame, math.nan) for frame in frames)
    return [None if math.isnan(value) else float(f"{value:.4g}") for value in found]


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
    dashes: Any = "-"
    if contender.variant:
        variants = [one for one in contenders if one.agent == contender.agent and one.variant]
        dashes = _VARIANT_LINES[variants.index(contender) % len(_VARIANT_LINES)]
    # The width tells a noisy agent from its baseline without colour.
    return {
        "color": contender.style.colour,
        "linestyle": dashes,
        "linewidth": 1.7 if contender.style.noisy else 1.0,
        "label": contender.title,
    }


def panels(
    count: int, columns: int, width: float, row_height: float, margin: float
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels in rows of `columns`, in inches, `margin` of its height extra."""
    rows = -(-count // columns)
    figure = Figure(figsize=(width, margin + row_height * rows))
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, grid[:count]


def frames_axis(axes: Axes, frames: float) -> str:
    """Scale the axis of training frames in a suitable unit; return its label."""
    units = (("millions", 1e6), ("thousands", 1e3), ("", 1.0))
    unit, size = next((unit, size) for unit, size in units if frames >= size or size == 1.0)
    axes.set_xlim(0, frames)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / size:g}"))
    return f"training frames ({unit})" if unit else "training frames"


def band(
    axes: Axes, x: Floats, bounds: Sequence[Floats] | Floats, colour: str, **more: Any
) -> None:
    """Shade an interval around a line."""
    axes.fill_between(x, *bounds, color=colour, alpha=0.18, linewidth=0, **more)


def figure_legend(figure: Figure, handles: Sequence[Any], columns: int = 4) -> float:
    """Put one legend above all panels of a figure, each label once; return its height in inches.

    Long labels have fewer columns.
    """
    once = {str(handle.get_label()): handle for handle in handles}
    if not once:
        return 0.0
    longest = 0.6 + 0.065 * max(map(len, once))  # inches of a handle and its label
    columns = max(1, min(columns, len(once), int(figure.get_figwidth() / longest)))
    figure.legend(handles=list(once.values()), loc="upper center", ncols=columns)
    return 0.08 + 0.16 * -(-len(once) // columns)


def markers(points: int) -> dict[str, Any]:
    """Markers for curves of few points: a single point would otherwise be invisible."""
    return {"marker": "o", "markersize": 3, "clip_on": False} if points <= 15 else {}
