"""The style of figures and their rendering."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.colors import to_hex

from noisynet.reports.agents import STYLES, Contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.plotting import line_style, line_values

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


def test_the_values_of_lines_are_those_of_their_panels(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 2.0, 3.0])
    write_run("dqn", "gym/A", 1, [5.0, 4.0], settings={"frames": 300}, state="running")
    write_run("noisynet-dqn", "gym/B", 0, [7.123456, 8.0, 9.0])
    figure = draw(analyse(tmp_path), "figure-6")
    found = line_values(figure)
    assert found["x"] == [100, 200, 300]
    first, second = found["panels"]
    assert [(line["name"], line["y"]) for line in first["lines"]] == [
        ("DQN", [1.0, 2.0, 3.0]),
        ("DQN, unfinished", [5.0, 4.0, None]),
    ]
    assert second["lines"][0] == {"name": "NoisyNet-DQN", "colour": "#d55e00", "y": [7.123, 8, 9]}
    assert (second["title"], second["range"]) == ("B", [0, 300])
    left, top, width, height = second["box"]
    assert first["box"][0] + first["box"][2] < left < left + width <= 1
    assert 0 < top < top + height < 1


def test_a_legend_of_long_labels_fits_into_its_figure(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 2.0])
    for name, value in (("a", 0.1), ("b", 0.2), ("c", 0.3)):
        settings = {"exploration.sigma0": value, "exploration.learn_sigma": False}
        write_run("noisynet-dqn", "gym/A", 0, [1.0, 2.0], name=name, settings=settings)
    write_run("noisynet-dqn", "gym/A", 0, [1.0, 2.0], name="d")
    figure = draw(analyse(tmp_path), "figure-6")
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert box.y0 >= figure.axes[0].get_window_extent().y1  # above the panels
