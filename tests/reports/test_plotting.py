"""The style of figures and their rendering."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.colors import to_hex

from noisynet.reports.agents import STYLES, Contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.plotting import line_style

from .conftest import WriteRun, all_figures, analyse, draw, texts


def test_every_figure_has_labels_and_a_caption(analysis: Analysis) -> None:
    for figure in all_figures(analysis):
        drawn = figure.drawn
        names = [drawn.get_supxlabel(), drawn.get_supylabel()]
        for axes in drawn.axes:
            names += [axes.get_xlabel(), axes.get_ylabel()]
            names += [label.get_text() for label in (*axes.get_xticklabels(), axes.yaxis.label)]
        assert any(names), figure.name
        assert figure.caption, figure.name
        assert len(texts(drawn)) > 2, figure.name


def test_the_figures_of_a_study(analysis: Analysis) -> None:
    assert [figure.name for figure in all_figures(analysis)] == [
        *("figure-1a", "aggregates", "improvement", "profiles", "figure-6", "figure-2", "noise"),
        "figure-3-noisynet-dqn",
    ]


def test_the_figures_of_agents_that_are_not_in_the_paper_have_no_numbers(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for agent in ("c51", "noisynet-c51", "rainbow-without-noise", "rainbow"):
        for seed in range(2):
            for game in ("pong", "boxing", "enduro"):
                write_run(agent, f"atari/{game}", seed, [-5.0, 3.0 + len(agent) + seed])
    found = analyse(tmp_path)
    figures = {figure.name: figure for figure in all_figures(found)}
    assert list(figures) == [
        *("relative-noisynet-c51", "relative-rainbow", "aggregates", "improvement", "profiles"),
        *("curves-c51", "curves-rainbow", "medians", "noise"),
        *("sigma-noisynet-c51", "sigma-rainbow"),
    ]
    assert not [figure for figure in figures.values() if "Figure" in figure.title]
    titles = {axes.get_title() for axes in draw(found, "sigma-rainbow").axes}
    assert titles == {f"head.{part}.{i}" for part in ("value", "advantage") for i in (0, 2)}
    for figure in figures.values():
        figure.render()


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
        figure.render()  # matplotlib would fail on an invalid formula


def test_the_same_figure_is_the_same_bytes(analysis: Analysis) -> None:
    first, second = (all_figures(analysis)[0].render() for _ in range(2))
    assert first == second
    assert first[0].startswith(b"\x89PNG")
    assert b"<svg" in first[1]


def test_variants_share_their_agents_colour_and_differ_in_dashes() -> None:
    shown = [
        Contender("dqn"),
        *(Contender("noisynet-dqn", variant) for variant in ("", "a", "b")),
    ]
    styles = [line_style(contender, shown) for contender in shown]
    assert len({style["color"] for style in styles[1:]}) == 1
    assert len({str(style["linestyle"]) for style in styles[1:]}) == 3
