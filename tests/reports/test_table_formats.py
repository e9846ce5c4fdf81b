"""Tables as text, Markdown, CSV and LaTeX."""

from __future__ import annotations

import numpy as np
import pytest

from noisynet.reports.scores import Estimate
from noisynet.reports.table_formats import (
    Cell,
    Table,
    interval_cell,
    number_cell,
    render_table,
)

TABLE = Table(
    "table-x",
    "Scores",
    ("game", "mean", "mean", "remark"),
    ("A note.",),
    (("DQN", 1), ("A3C", 1), ("", 1)),
)
TABLE.add("a_b|<i>", number_cell(1234.5678, spread=12.25), Cell("7", 7.0, best=True), "")
TABLE.add("c", number_cell(-0.04, 1), None, "50 % & more")


def test_text_aligns_numbers_and_marks_the_best() -> None:
    assert render_table(TABLE, "text").splitlines() == [
        "Scores",
        "",
        "game      DQN mean  A3C mean  remark",
        "───────  ─────────  ────────  ───────────",
        "a_b|<i>  1235 ± 12        7*",
        "c              0.0         –  50 % & more",
        "",
        "  · A note.",
    ]


def test_csv_has_every_digit_and_empty_cells_for_missing_numbers() -> None:
    assert render_table(TABLE, "csv").splitlines() == [
        "game,DQN mean,DQN mean ±,A3C mean,remark",
        "a_b|<i>,1234.5678,12.25,7.0,",
        "c,-0.04,,,50 % & more",
    ]


def test_markdown_escapes_special_characters() -> None:
    lines = render_table(TABLE, "markdown").splitlines()
    assert lines[2] == "| game | DQN mean | A3C mean | remark |"
    assert lines[4] == r"| a\_b\|\<i\> | 1235 ± 12 | **7** |  |"
    assert lines[-1] == "- A note."


def test_latex_escapes_its_special_characters_and_groups_headings() -> None:
    text = render_table(TABLE, "latex")
    assert r"a\_b|\textless{}i\textgreater{} & 1235 $\pm$ 12 & \textbf{7} &  \\" in text
    assert r"50 \% \& more" in text
    assert r" & \multicolumn{1}{c}{DQN} & \multicolumn{1}{c}{A3C} & " in text
    assert r"\caption{Scores. A note.}" in text
    assert r"\label{tab:table-x}" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1234"),
        (0.0456, "0.0456"),
        (1e-9, "0.0000"),
        (0.0, "0"),
        (99.4, "99.4"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (-3.0, "−3.00"),
    ],
)
def test_larger_numbers_have_fewer_digits(value: float, text: str) -> None:
    assert number_cell(value).text == text


def test_missing_numbers_are_shown_as_a_dash() -> None:
    assert number_cell(None).text == number_cell(float("nan")).text == "–"


def test_an_interval_is_shown_in_brackets() -> None:
    value = np.array(12.34)
    assert interval_cell(Estimate(value, np.array([10.0, 15.06]))).text == "12.3 [10.0, 15.1]"
    assert interval_cell(Estimate(value, None)).text == "12.3"


def test_rows_and_groups_must_match_the_columns() -> None:
    with pytest.raises(ValueError, match=r"t has 2 columns, got a row of 1"):
        Table("t", "T", ("a", "b")).add("x")
    with pytest.raises(ValueError, match="cover 2 columns, expected all but the first, 1"):
        Table("t", "T", ("a", "b"), groups=(("g", 2),))


def test_a_row_of_strings_integers_and_cells() -> None:
    cell = number_cell(0.5)
    table = Table("t", "T", ("a", "b", "c", "d", "e"))
    table.add("a", 7, cell, 0.5, None)
    assert table.rows == [(Cell("a"), Cell("7", 7), cell, cell, Cell("–"))]
