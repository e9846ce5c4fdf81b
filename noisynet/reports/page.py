"""Renders the report as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from noisynet.reports.load_runs import SkippedFolder
from noisynet.reports.plotting import RenderedFigure
from noisynet.reports.table_formats import Table

_SVG_BYTES: Final = 400_000
"""Larger figures are embedded as PNG: fifty vector panels make a page slow."""
_MAX_OPEN_ROWS: Final = 60
_PIXELS_PER_INCH: Final = 140
"""Larger than on paper: seven inches fill the page."""


@dataclass(frozen=True)
class PageItem:
    """A table or a figure on the page.

    Attributes:
        name: its anchor, within its section.
        title: for the table of contents.
        files: links to its files, as (label, path relative to the page).
        table: if the item is a table.
        image: a data URI, if the item is a figure.
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
    def collapsed(self) -> bool:
        """Whether a table is collapsed because it is long."""
        return self.table is not None and len(self.table.rows) > _MAX_OPEN_ROWS

    def is_numeric(self, column: int) -> bool:
        """Whether a column of the table has numbers, which are right-aligned."""
        return self.table is not None and any(
            row[column].value is not None for row in self.table.rows
        )


@dataclass(frozen=True)
class Section:
    """The section of one study."""

    name: str
    heading: str
    lines: tuple[str, ...]
    notes: tuple[str, ...]
    items: tuple[PageItem, ...]


def table_item(table: Table, paths: Sequence[tuple[str, str]]) -> PageItem:
    """A table for the page."""
    return PageItem(table.name, table.title, tuple(paths), table=table)


def figure_item(image: RenderedFigure, paths: Sequence[tuple[str, str]]) -> PageItem:
    """A figure embedded in the page."""
    kind, data = ("svg+xml", image.svg) if len(image.svg) < _SVG_BYTES else ("png", image.png)
    uri = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    figure = image.figure
    return PageItem(
        figure.name,
        figure.title,
        tuple(paths),
        image=uri,
        caption=figure.caption,
        width=round(image.width_inches * _PIXELS_PER_INCH),
    )


def render_page(
    title: str,
    opening: Sequence[str],
    sections: Sequence[Section],
    skipped: Sequence[SkippedFolder],
    closing: str,
) -> str:
    """Render the page as HTML, with everything that comes from runs escaped.

    The content security policy allows only the page's own script and style and no requests, in case
    a name gets past the escaping.
    """
    style, script = _resource("page.css"), _resource("page.js")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_resource("page.html")).render(
        title=title,
        opening=opening,
        sections=sections,
        skipped=skipped,
        closing=closing,
        style=Markup(style),  # package data, not from runs
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _resource(name: str) -> str:
    return (files("noisynet") / "reports" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
