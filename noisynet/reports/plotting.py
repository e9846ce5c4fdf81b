"""How every figure looks and is written: one style, PNG and SVG, the same bytes each time."""

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
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that figures look the same anywhere
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
    "svg.hashsalt": "noisynet",  # names inside the file do not depend on when it is made
    "text.parse_math": False,  # a dollar sign in a name begins no formula
}

# Lines other than agents', such as environments: Tol's muted colours, none of them an agent's.
OTHER_COLOURS: Final = ("#332288", "#88CCEE", "#117733", "#DDCC77", "#AA4499", "#882255")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P")
_VARIANT_LINES: Final = ((0, (1, 1)), (0, (3, 1, 1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (2, 2)))


@dataclass(frozen=True)
class Drawing:
    """A figure that has yet to be drawn: many at once would fill the memory.

    Attributes:
        name: of its files, as in "figure-2".
        title: one line.
        caption: what is shown and how to read it.
        draw: makes it.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Image:
    """A drawn figure."""

    drawing: Drawing
    width_inches: float
    png: bytes
    svg: bytes


def render(drawing: Drawing) -> Image:
    """Draw it, as PNG and as SVG."""
    with figure_style():
        figure = drawing.draw()
        png, svg = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Image(drawing, figure.get_figwidth(), png.getvalue(), svg.getvalue())


@contextmanager
def figure_style() -> Iterator[None]:
    """Inside, figures are drawn in the one style, whatever the user's own is."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        # A name in a script that the font lacks is drawn as boxes; the tables have it in full.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches, which no global state knows of."""
    return Figure(figsize=(width, height))


def short_task(task: str) -> str:
    """An environment's name without its family; Atari's with spaces, Deep Sea's with its size."""
    family, _, name = task.partition("/")
    if family == "deep_sea":
        return f"deep sea {name}"
    return name.replace("_", " ") if family == "atari" else name or task


def line_style(who: Contender, contenders: Sequence[Contender]) -> dict[str, Any]:
    """Colour, thickness and dashes of an agent's lines; each of its variants has its own dashes."""
    variants = [one for one in contenders if one.agent == who.agent and one.variant]
    if who in variants:
        dashes: Any = _VARIANT_LINES[variants.index(who) % len(_VARIANT_LINES)]
    else:
        dashes = "-"
    # Thickness tells the two of a pair apart where there is no colour.
    return {
        "color": who.style.colour,
        "linestyle": dashes,
        "linewidth": 1.7 if who.style.noisy else 1.0,
        "label": who.title,
    }


def other_style(index: int, label: str) -> dict[str, Any]:
    """Colour and marker of the index-th line that is not an agent's."""
    return {
        "color": OTHER_COLOURS[index % len(OTHER_COLOURS)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "label": label,
    }


def frames_axis(axes: Axes, frames: float, *, label: bool = True) -> None:
    """Name the axis of training frames, in a unit that fits."""
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
    """A shaded interval around a line, or around steps."""
    axes.fill_between(
        x, low, high, color=colour, alpha=0.18, linewidth=0, step="post" if steps else None
    )


def legend_over(axes: Axes, columns: int = 1) -> None:
    """The legend of one panel, in place of its title: inside it might cover a curve."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2)


def legend_above(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """One legend for a whole figure, over its panels, each label once."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if once:
        figure.legend(
            list(once.values()), list(once), loc="upper center", ncols=min(columns, len(once))
        )


def dots(points: int) -> dict[str, Any]:
    """A curve of few points shows them; one point alone would otherwise not be seen at all."""
    return {"marker": "o", "markersize": 3, "clip_on": False} if points <= 15 else {}


def short_number(value: float) -> str:
    """At most four characters: 12,000 is 12k."""
    size, unit = next(
        (s, u) for s, u in ((1e6, "M"), (1e3, "k"), (1.0, "")) if abs(value) >= s or s == 1
    )
    return f"{value / size:g}{unit}".replace("-", "−")
