"""Tables, and their rendering as text, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from noisynet.reports.scores import Estimate

TableFormat = Literal["text", "markdown", "csv", "latex"]

_MISSING: Final = "–"


@dataclass(frozen=True)
class Cell:
    """One cell of a table: its text, and the unrounded numbers behind it.

    `spread` is displayed after ±; `best` cells are bold, as in the paper; the page links a cell to
    `link`.
    """

    text: str
    value: float | None = None
    spread: float | None = None
    best: bool = False
    bounds: tuple[float, float] | None = None
    link: str = ""


@dataclass
class Table:
    """A table of the report, filled by `add`.

    The first of `columns` heads the row headings; `groups` are (heading, number of columns) for all
    others. `notes` are sentences below the table. The page shows a `collapsed` table on demand.
    """

    name: str
    title: str
    columns: Sequence[str]
    notes: Sequence[str] = ()
    groups: Sequence[tuple[str, int]] = ()
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    collapsed: bool = False

    def __post_init__(self) -> None:
        covered = sum(width for _, width in self.groups)
        if self.groups and covered != len(self.columns) - 1:
            raise ValueError(
                f"the groups of {self.name} cover {covered} columns, expected all but the first, "
                f"{len(self.columns) - 1}"
            )

    def add(self, *cells: Cell | str | float | None) -> None:
        """Add a row: strings become cells of text, integers and other numbers cells of numbers."""
        if len(cells) != len(self.columns):
            raise ValueError(
                f"{self.name} has {len(self.columns)} columns, got a row of {len(cells)}"
            )
        self.rows.append(tuple(_make_cell(cell) for cell in cells))

    def numeric_columns(self) -> set[int]:
        """The columns of numbers, which are right-aligned."""
        columns = range(1, len(self.columns))
        return {i for i in columns if any(row[i].value is not None for row in self.rows)}

    def full_headings(self) -> list[str]:
        """The headings of columns, each preceded by the heading of its group."""
        groups = [heading for heading, width in self.groups for _ in range(width)]
        groups = ["", *(groups or [""] * (len(self.columns) - 1))]
        return [
            f"{group} {column}".strip() for group, column in zip(groups, self.columns, strict=True)
        ]


# --- cells ---------------------------------------------------------------------------------------


def number_cell(
    value: float | None, digits: int | None = None, *, spread: float | None = None
) -> Cell:
    """A cell of a number; None and NaN are displayed as missing.

    Without `digits` after the decimal point it has three significant ones.
    """
    if value is None or math.isnan(value):
        return Cell(_MISSING)
    decimals = _decimals(value, spread) if digits is None else digits
    text = _rounded(value, decimals)
    if spread is not None:
        text += f" ± {_rounded(spread, decimals)}"
    return Cell(text, value, spread)


def interval_cell(found: Estimate, digits: int = 1) -> Cell:
    """A cell of a statistic with its confidence interval, if it has one."""
    value, text = float(found.value), _rounded(float(found.value), digits)
    if found.interval is None:
        return Cell(text, value)
    low, high = map(float, found.interval)
    text += f" [{_rounded(low, digits)}, {_rounded(high, digits)}]"
    return Cell(text, value, bounds=(low, high))


def _make_cell(cell: Cell | str | float | None) -> Cell:
    if isinstance(cell, Cell):
        return cell
    if isinstance(cell, str):
        return Cell(cell)
    return number_cell(cell, 0 if isinstance(cell, int) else None)


def _decimals(value: float, spread: float | None) -> int:
    """Enough for three significant digits, at most four; none for 0."""
    size = max(abs(value), abs(spread or 0.0))
    return min(max(2 - math.floor(math.log10(size)), 0), 4) if size > 0 else 0


def _rounded(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    if not text.strip("-0."):
        text = text.lstrip("-")  # no minus sign before 0
    return text.replace("-", "−")


# --- rendering -----------------------------------------------------------------------------------


def render_table(table: Table, form: TableFormat) -> str:
    """Render a table; the last line ends with a line break."""
    return _FORMS[form](table)


def _text(table: Table) -> str:
    columns, numeric = table.full_headings(), table.numeric_columns()
    body = [[cell.text + ("*" if cell.best else "") for cell in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(columns, *body, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if i in numeric else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    rule = "  ".join("─" * width for width in widths)
    lines = [table.title, "", line(columns), rule, *map(line, body)]
    notes = [
        textwrap.fill(note, 100, initial_indent="  · ", subsequent_indent="    ")
        for note in table.notes
    ]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def cell_text(cell: Cell) -> str:
        text = _escape_markdown(cell.text)
        return f"**{text}**" if cell.best else text

    columns = [_escape_markdown(column) for column in table.full_headings()]
    numeric = table.numeric_columns()
    rules = ["--:" if i in numeric else "---" for i in range(len(columns))]
    body = [line([cell_text(cell) for cell in row]) for row in table.rows]
    notes = ["", *(f"- {_escape_markdown(note)}" for note in table.notes)] if table.notes else []
    title = f"**{_escape_markdown(table.title)}**"
    return "\n".join([title, "", line(columns), line(rules), *body, *notes]) + "\n"


_MARKDOWN: Final = str.maketrans({character: f"\\{character}" for character in "\\`*_|<>[]"})


def _escape_markdown(text: str) -> str:
    return " ".join(text.translate(_MARKDOWN).splitlines())


def _csv(table: Table) -> str:
    """Unrounded numbers; spreads and intervals have columns of their own."""
    headings: list[str] = []
    columns: list[Sequence[str | float | None]] = []
    for heading, cells in zip(table.full_headings(), zip(*table.rows, strict=True), strict=True):
        headings.append(heading)
        columns.append([_csv_value(cell) for cell in cells])
        if any(cell.spread is not None for cell in cells):
            headings.append(f"{heading} ±")
            columns.append([cell.spread for cell in cells])
        if any(cell.bounds is not None for cell in cells):
            headings += [f"{heading} low", f"{heading} high"]
            columns += zip(*(cell.bounds or (None, None) for cell in cells), strict=True)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([headings, *zip(*columns, strict=True)])
    return out.getvalue()


def _csv_value(cell: Cell) -> str | float:
    if cell.value is not None:
        return cell.value
    return "" if cell.text == _MISSING else cell.text


def _latex(table: Table) -> str:
    """A booktabs table with the notes in its caption."""
    numeric = table.numeric_columns()
    shape = "".join("r" if i in numeric else "l" for i in range(len(table.columns)))
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{shape}}}", r"\toprule"]
    if table.groups:
        heads = [rf"\multicolumn{{{n}}}{{c}}{{{_escape_latex(head)}}}" for head, n in table.groups]
        lines.append(" & ".join(["", *heads]) + r" \\")
    lines += [" & ".join(map(_escape_latex, table.columns)) + r" \\", r"\midrule"]
    for row in table.rows:
        cells = (
            rf"\textbf{{{_escape_latex(cell.text)}}}" if cell.best else _escape_latex(cell.text)
            for cell in row
        )
        lines.append(" & ".join(cells) + r" \\")
    caption = " ".join([f"{table.title}.", *table.notes])
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_escape_latex(caption)}}}"]
    return "\n".join([*lines, rf"\label{{tab:{table.name}}}", r"\end{table}"]) + "\n"


_LATEX: Final = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "−": "$-$",
        "±": r"$\pm$",
        "≠": r"$\neq$",
        "≈": r"$\approx$",
        "×": r"$\times$",
        "Σ": r"$\bar\Sigma$",
        "→": r"$\to$",
        "–": "--",
        "…": r"\dots{}",
        **{character: f"\\{character}" for character in "&%$#_"},
    }
)


def _escape_latex(text: str) -> str:
    text = text.replace("Σ̄", "Σ")  # two code points: the letter and a combining bar
    return " ".join(text.splitlines()).translate(_LATEX)


_FORMS: Final[dict[TableFormat, Callable[[Table], str]]] = {
    "text": _text,
    "markdown": _markdown,
    "csv": _csv,
    "latex": _latex,
}
