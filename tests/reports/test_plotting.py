"""The style of figures and their rendering."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from noisynet.reports.agents import STYLES, make_contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.paper_figures import paper_figures
from noisynet.reports.plotting import figure_style, line_style, render_figure, short_number

from .conftest import WriteRun, all_figures, analyse, draw, texts


def test_every_figure_has_labels_and_a_caption(analysis: Analysis) -> None:
    for figure in all_figures(analysis):
        with figure_style():
            drawn = figure.draw()
        names = [drawn.get_supxlabel(), drawn.get_supylabel()]
        for axes in drawn.axes:
            names += [axes.get_xlabel(), axes.get_ylabel()]
            names += [label.get_text() for label in (*axes.get_xticklabels(), axes.yaxis.label)]
        assert any(names), figure.name
        assert figure.caption, figure.name
        assert len(texts(drawn)) > 2, figure.name


def test_the_figures_of_a_study(analysis: Analysis) -> None:
    assert [figure.name for figure in all_figures(analysis)] == [
        *("figure-1a", "figure-2", "figure-3-noisynet-dqn", "figure-6"),
        *("aggregates", "improvement", "profiles", "noise"),
    ]


def test_the_figures_of_agents_that_are_not_in_the_paper_have_no_numbers(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for agent in ("c51", "noisynet-c51", "rainbow-without-noise", "rainbow"):
        for seed in range(2):
            write_run(agent, "atari/pong", seed, [-5.0, 3.0 + len(agent) + seed])
    found = analyse(tmp_path)
    figures = {figure.name: figure for figure in all_figures(found)}
    assert list(figures) == [
        *("relative-noisynet-c51", "relative-rainbow", "medians", "sigma-noisynet-c51"),
        *("sigma-rainbow", "curves-c51", "curves-rainbow"),
        *("aggregates", "improvement", "profiles", "noise"),
    ]
    assert not [figure for figure in figures.values() if "Figure" in figure.title]
    titles = {axes.get_title() for axes in draw(found, "sigma-rainbow").axes}
    assert titles == {f"head.{part}.{i}" for part in ("value", "advantage") for i in (0, 2)}
    for figure in figures.values():
        render_figure(figure)


def test_an_agent_has_one_colour_everywhere(analysis: Analysis) -> None:
    expected = {STYLES[agent].colour for agent in ("dqn", "noisynet-dqn")}
    for name in ("figure-2", "figure-6", "profiles"):
        figure = draw(analysis, name)
        lines = [
            line for axes in figure.axes for line in axes.lines if np.size(line.get_xdata()) > 1
        ]
        colours = {
            to_hex(line.get_color()).upper() for line in lines if line.get_linestyle() == "-"
        }
        assert colours == expected, name
    assert len({style.colour for style in STYLES.values()}) == len(STYLES)


def test_a_name_is_not_parsed_as_a_formula(write_run: WriteRun, tmp_path: Path) -> None:
    name = r"gym/$\frac{x<b>"
    write_run("dqn", name, 0, [1.0, 2.0], name="a")
    write_run("noisynet-dqn", name, 0, [1.0, 2.0], name="b")
    analysis = analyse(tmp_path)
    assert r"$\frac{x<b>" in texts(draw(analysis, "figure-6"))
    for figure in all_figures(analysis):
        render_figure(figure)  # matplotlib would fail on an invalid formula


def test_the_same_figure_is_the_same_bytes(analysis: Analysis) -> None:
    figure = next(paper_figures(analysis))
    first, second = render_figure(figure), render_figure(figure)
    assert (first.png, first.svg) == (second.png, second.svg)
    assert first.png.startswith(b"\x89PNG")
    assert b"<svg" in first.svg


def test_variants_share_their_agents_colour_and_differ_in_dashes() -> None:
    shown = [
        make_contender("dqn"),
        *(make_contender("noisynet-dqn", variant) for variant in ("", "a", "b")),
    ]
    styles = [line_style(contender, shown) for contender in shown]
    assert len({style["color"] for style in styles[1:]}) == 1
    assert len({str(style["linestyle"]) for style in styles[1:]}) == 3


@pytest.mark.parametrize(
    ("value", "text"), [(12_000.0, "12k"), (-1_500_000.0, "−1.5M"), (0.25, "0.25"), (0.0, "0")]
)
def test_numbers_of_small_panels_are_short(value: float, text: str) -> None:
    assert short_number(value) == text
