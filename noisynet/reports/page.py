"""Renders the report as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from noisynet.reports.plotting import ReportFigure, line_values
from noisynet.reports.table_formats import Table, TableFormat, render_table

_SVG_BYTES: Final = 400_000
"""Larger figures are embedded as PNG: fifty vector panels make a page slow."""
_PIXELS_PER_INCH: Final = 140
"""Larger than on paper: seven inches fill the page."""
_TABLE_FILES: Final[tuple[tuple[str, TableFormat, str], ...]] = (
    ("Markdown", "markdown", "md"),
    ("CSV", "csv", "csv"),
    ("LaTeX", "latex", "tex"),
)


def table_item(table: Table, study: str) -> dict[str, Any]:
    """A table for the template of the page; its files have a label, a path and content each."""
    files = [
        (label, f"tables/{study}/{table.name}.{extension}", render_table(table, form).encode())
        for label, form, extension in _TABLE_FILES
    ]
    return {"name": table.name, "title": table.title, "files": files, "table": table}


def figure_item(figure: ReportFigure, study: str) -> dict[str, Any]:
    """A figure for the template of the page; its files have a label, a path and content each."""
    png, svg = figure.render()
    kind, data = ("svg+xml", svg) if len(svg) < _SVG_BYTES else ("png", png)
    path = f"figures/{study}/{figure.name}"
    return {
        "name": figure.name,
        "title": figure.title,
        "files": [("PNG", f"{path}.png", png), ("SVG", f"{path}.svg", svg)],
        "image": f"data:image/{kind};base64,{base64.b64encode(data).decode()}",
        "caption": figure.caption,
        "width": round(figure.drawn.get_figwidth() * _PIXELS_PER_INCH),
        "curves": json.dumps(line_values(figure.drawn)) if figure.over_frames else "",
    }


def render_page(**content: Any) -> str:
    """Render the page as HTML, with everything that comes from runs escaped.

    The content security policy allows only the page's own script and style and no requests, in case
    a name gets past the escaping.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = _resource("components.js") + _resource("page.js")
    for name, text in (("style", _resource("page.css")), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        content |= {name: Markup(text), f"{name}_hash": f"sha256-{digest}"}  # not from runs
    return environment.from_string(_resource("page.html")).render(content)


def _resource(name: str) -> str:
    return (files("noisynet") / "reports" / name).read_text(encoding="utf-8")
