"""Tables, and their rendering as text, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

TableFormat = Literal["text", "markdown", "csv", "latex"]

_MISSING: Final = "–"


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: as displayed.
        value: the unrounded number; None for text.
        spread: the unrounded standard deviation, displayed after ±; None without one.
        best: whether it is marked, as bold numbers are in the paper.
        bounds: of its confidence interval; None without one.
    """

    text: str
    value: float | None = None
    spread: float | None = None
    best: bool = False
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
        name: of its files, as in "table-1".
        title: one line.
        columns: headings; the first is that of the row headings.
        rows: one cell for each column.
        notes: shown below the table, a sentence each.
        groups: headings of several columns, as (heading, number of columns); they cover all columns
            but the first, or there are none.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    groups: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        wrong = [len(row) for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"{self.name} has {len(self.columns)} columns, got rows of {wrong}")
        covered = sum(width for _, width in self.groups)
        if self.groups and covered != len(self.columns) - 1:
            raise ValueError(
                f"the groups of {self.name} cover {covered} columns, expected all but the first, "
                f"{len(self.columns) - 1}"
            )


# --- cells ---------------------------------------------------------------------------------------


def make_row(*cells: Cell | str | int) -> tuple[Cell, ...]:
    """A row of a table: strings become cells of text, integers cells of whole numbers."""
    made = (number_cell(cell, 0) if isinstance(cell, int) else cell for cell in cells)
    return tuple(Cell(cell) if isinstance(cell, str) else cell for cell in made)


def number_cell(
    value: float | None, digits: int | None = None, *, spread: float | None = None
) -> Cell:
    """A cell of a number; None and NaN are displayed as missing.

    Args:
        value: unrounded.
        digits: after the decimal point; None for three significant digits.
        spread: the standard deviation.
    """
    if value is None or math.isnan(value):
        return Cell(_MISSING)
    decimals = _decimals(value, spread) if digits is None else digits
    text = _rounded(value, decimals)
    if spread is not None:
        text += f" ± {_rounded(spread, decimals)}"
    return Cell(text, value, spread)


def interval_cell(value: float, bounds: tuple[float, float] | None, digits: int = 1) -> Cell:
    """A cell of a statistic with its confidence interval, if it has one."""
    text = _rounded(value, digits)
    if bounds is not None:
        text += f" [{_rounded(bounds[0], digits)}, {_rounded(bounds[1], digits)}]"
    return Cell(text, value, bounds=bounds)


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
    columns = _full_headings(table)
    body = [[cell.text + ("*" if cell.best else "") for cell in row] for row in table.rows]
    widths = [max(len(line[i]) for line in [columns, *body]) for i in range(len(columns))]
    left = [0, *(i for i in range(1, len(columns)) if _is_text(table, i))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    rule = "  ".join("─" * width for width in widths)
    lines = [table.title, "", line(columns), rule, *map(line, body)]
    if table.notes:
        lines += ["", *(line for note in table.notes for line in _wrapped(note))]
    return "\n".join(lines) + "\n"


def _wrapped(note: str) -> list[str]:
    return textwrap.wrap(note, 100, initial_indent="  · ", subsequent_indent="    ")


def _is_text(table: Table, column: int) -> bool:
    return all(row[column].value is None for row in table.rows)


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def cell_text(cell: Cell) -> str:
        text = _escape_markdown(cell.text)
        return f"**{text}**" if cell.best else text

    columns = [_escape_markdown(column) for column in _full_headings(table)]
    rules = ["---" if i == 0 or _is_text(table, i) else "--:" for i in range(len(columns))]
    body = [line([cell_text(cell) for cell in row]) for row in table.rows]
    notes = ["", *(f"- {_escape_markdown(note)}" for note in table.notes)] if table.notes else []
    title = f"**{_escape_markdown(table.title)}**"
    return "\n".join([title, "", line(columns), line(rules), *body, *notes]) + "\n"


def _escape_markdown(text: str) -> str:
    for character in "\\`*_|<>[]":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.splitlines())


def _csv(table: Table) -> str:
    """Unrounded numbers; spreads and intervals have columns of their own."""
    columns = range(len(table.columns))
    spread = [any(row[i].spread is not None for row in table.rows) for i in columns]
    bounds = [any(row[i].bounds is not None for row in table.rows) for i in columns]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    headings: list[str] = []
    for i, column in enumerate(_full_headings(table)):
        headings += [column, *([f"{column} ±"] if spread[i] else [])]
        headings += [f"{column} low", f"{column} high"] if bounds[i] else []
    writer.writerow(headings)
    for row in table.rows:
        values: list[str] = []
        for i, cell in enumerate(row):
            values += [_csv_value(cell), *([_csv_number(cell.spread)] if spread[i] else [])]
            if bounds[i]:
                values += [_csv_number(bound) for bound in cell.bounds or (None, None)]
        writer.writerow(values)
    return out.getvalue()


def _csv_number(value: float | None) -> str:
    return "" if value is None else repr(value)


def _csv_value(cell: Cell) -> str:
    if cell.value is not None:
        return repr(cell.value)
    return "" if cell.text == _MISSING else cell.text


def _latex(table: Table) -> str:
    """A booktabs table with the notes in its caption."""
    columns = [_escape_latex(column) for column in table.columns]
    shape = "".join("l" if i == 0 or _is_text(table, i) else "r" for i in range(len(columns)))
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{shape}}}", r"\toprule"]
    if table.groups:
        heads = [rf"\multicolumn{{{n}}}{{c}}{{{_escape_latex(head)}}}" for head, n in table.groups]
        lines.append(" & ".join(["", *heads]) + r" \\")
    lines += [" & ".join(columns) + r" \\", r"\midrule"]
    for row in table.rows:
        cells = (
            rf"\textbf{{{_escape_latex(cell.text)}}}" if cell.best else _escape_latex(cell.text)
            for cell in row
        )
        lines.append(" & ".join(cells) + r" \\")
    caption = " ".join([f"{table.title}.", *table.notes])
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_escape_latex(caption)}}}"]
    return "\n".join([*lines, rf"\label{{tab:{table.name}}}", r"\end{table}"]) + "\n"


_LATEX: Final = {
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
    "Σ̄": r"$\bar\Sigma$",
    "→": r"$\to$",
    "–": "--",
    "…": r"\dots{}",
    **{character: f"\\{character}" for character in "&%$#_"},
}


def _escape_latex(text: str) -> str:
    text = text.replace("Σ̄", "Σ")  # two code points: the letter and a combining bar
    table = {**_LATEX, "Σ": _LATEX["Σ̄"]}
    return "".join(table.get(character, character) for character in " ".join(text.splitlines()))


def _full_headings(table: Table) -> list[str]:
    """The headings of columns, each preceded by the heading of its group."""
    groups = [head for head, width in table.groups for _ in range(width)] or [""] * (
        len(table.columns) - 1
    )
    rest = [
        f"{group} {column}".strip() for group, column in zip(groups, table.columns[1:], strict=True)
    ]
    return [table.columns[0], *rest]


_FORMS: Final[dict[TableFormat, Callable[[Table], str]]] = {
    "text": _text,
    "markdown": _markdown,
    "csv": _csv,
    "latex": _latex,
}
