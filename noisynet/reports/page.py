"""The page: one HTML file that needs nothing else, with every table and every figure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from noisynet.reports.plotting import Image
from noisynet.reports.table_formats import Table

_SVG_BYTES: Final = 400_000
"""Larger drawings are shown as PNG: fifty panels of vectors make a page slow."""
_FOLDED_ROWS: Final = 60
_PIXELS_PER_INCH: Final = 140
"""Larger than on paper: a text width of seven inches fills the page."""


@dataclass(frozen=True)
class Item:
    """A table or a figure on the page.

    Attributes:
        name: its anchor, within its section.
        title: for the list of contents.
        files: what it was also written as, (label, path relative to the page).
        table: the table, if it is one.
        image: the figure as a data URI, if it is one.
        caption: of the figure.
        width: of the figure, in pixels.
    """

    name: str
    title: str
    files: tuple[tuple[str, str], ...]
    table: Table | None = None
    image: str = ""
    caption: str = ""
    width: int = 0

    @property
    def folded(self) -> bool:
        """Whether a table is so long that it is opened on demand."""
        return self.table is not None and len(self.table.rows) > _FOLDED_ROWS

    def is_numeric(self, column: int) -> bool:
        """Whether a column of the table has numbers, which stand at its right."""
        return self.table is not None and any(
            row[column].value is not None for row in self.table.rows
        )


@dataclass(frozen=True)
class Section:
    """What the page says of one study."""

    name: str
    heading: str
    lines: tuple[str, ...]
    notes: tuple[str, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True)
class LeftOut:
    """A folder that is not part of the report."""

    path: str
    reason: str


def table_item(table: Table, paths: Sequence[tuple[str, str]]) -> Item:
    """A table for the page."""
    return Item(table.name, table.title, tuple(paths), table=table)


def figure_item(image: Image, paths: Sequence[tuple[str, str]]) -> Item:
    """A figure for the page, inside the page."""
    kind, data = ("svg+xml", image.svg) if len(image.svg) < _SVG_BYTES else ("png", image.png)
    uri = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    drawing = image.drawing
    return Item(
        drawing.name,
        drawing.title,
        tuple(paths),
        image=uri,
        caption=drawing.caption,
        width=round(image.width_inches * _PIXELS_PER_INCH),
    )


def render_page(
    title: str,
    opening: Sequence[str],
    sections: Sequence[Section],
    left_out: Sequence[LeftOut],
    closing: str,
) -> str:
    """The page as HTML; whatever comes from runs is escaped.

    The page forbids itself, by its content security policy, every script and style but its own and
    every request: a name that got past the escaping still could not do anything.
    """
    style, script = _resource("page.css"), _resource("page.js")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_resource("page.html")).render(
        title=title,
        opening=opening,
        sections=sections,
        left_out=left_out,
        closing=closing,
        style=Markup(style),  # our own files, not from runs
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _resource(name: str) -> str:
    return (files("noisynet") / "reports" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
