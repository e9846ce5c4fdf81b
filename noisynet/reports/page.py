"""Renders the report as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from noisynet.reports.plotting import ReportFigure
from noisynet.reports.table_formats import Table, TableFormat, render_table

_SVG_BYTES: Final = 400_000
"""Larger figures are embedded as PNG: fifty vector panels make a page slow."""
_TABLE_FILES: Final[tuple[tuple[str, TableFormat, str], ...]] = (
    ("Markdown", "markdown", "md"),
    ("CSV", "csv", "csv"),
    ("LaTeX", "latex", "tex"),
)


@dataclass(frozen=True)
class PageItem:
    """A table or a figure on the page.

    Attributes:
        name: its anchor, within its section.
        title: its heading.
        files: a label, a path relative to the page and the content of each of its files.
        table: if the item is a table.
        image: a data URI, if the item is a figure.
        caption: of the figure.
        width: of the figure, in inches on paper.
    """

    name: str
    title: str
    files: Sequence[tuple[str, str, bytes]]
    table: Table | None = None
    image: str = ""
    caption: str = ""
    width: float = 0.0


@dataclass(frozen=True)
class Section:
    """The section of one study."""

    name: str
    heading: str
    lines: Sequence[str]
    notes: Sequence[str]
    items: Sequence[PageItem]


def table_item(table: Table, study: str) -> PageItem:
    """A table for the page and as files."""
    files = [
        (label, f"tables/{study}/{table.name}.{extension}", render_table(table, form).encode())
        for label, form, extension in _TABLE_FILES
    ]
    return PageItem(table.name, table.title, files, table=table)


def figure_item(figure: ReportFigure, study: str) -> PageItem:
    """A figure embedded in the page and as files."""
    png, svg = figure.render()
    kind, data = ("svg+xml", svg) if len(svg) < _SVG_BYTES else ("png", png)
    path = f"figures/{study}/{figure.name}"
    return PageItem(
        figure.name,
        figure.title,
        [("PNG", f"{path}.png", png), ("SVG", f"{path}.svg", svg)],
        image=f"data:image/{kind};base64,{base64.b64encode(data).decode()}",
        caption=figure.caption,
        width=figure.drawn.get_figwidth(),
    )


def render_page(
    opening: str, sections: Sequence[Section], skipped: Mapping[str, str], closing: str
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
