"""Figures of a report: what is in them, not how they look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from noisynet.reports.agents import STYLES, contender
from noisynet.reports.analysis import Analysis, normaliser_of
from noisynet.reports.curve_figures import grid_figures
from noisynet.reports.interval_figures import interval_figures
from noisynet.reports.load_runs import find_runs, read_runs
from noisynet.reports.paper_figures import paper_figures
from noisynet.reports.plotting import Drawing, figure_style, line_style, render, short_number
from noisynet.reports.sigma_figures import choose_games, sigma_figures
from noisynet.reports.study import make_studies

from .conftest import WriteRun


def analyse(folder: Path) -> Analysis:
    (study,) = make_studies(read_runs(find_runs([folder / "runs"]))[0])
    return Analysis(study, normaliser_of(study))


def all_drawings(analysis: Analysis) -> Iterator[Drawing]:
    for make in (paper_figures, sigma_figures, grid_figures, interval_figures):
        yield from make(analysis)


def draw(analysis: Analysis, name: str) -> Figure:
    (drawing,) = (one for one in all_drawings(analysis) if one.name == name)
    with figure_style():
        return drawing.draw()


def texts(figure: Figure) -> list[str]:
    found: list[Any] = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return [artist.get_text() for artist in found]


@pytest.fixture
def analysis(write_run: WriteRun, tmp_path: Path) -> Analysis:
    """Two agents on three games, two seeds; NoisyNet is far ahead in Pong and behind in Boxing."""
    for seed in range(2):
        for game, plain, noisy in (
            ("pong", 0.0, 180.0),
            ("boxing", 9.0, 3.0),
            ("enduro", 5.0, 9.0),
        ):
            write_run("dqn", f"atari/{game}", seed, [-5.0, plain + seed])
            write_run("noisynet-dqn", f"atari/{game}", seed, [-5.0, noisy + seed])
    return analyse(tmp_path)


def test_every_figure_has_named_axes_and_a_legend_or_a_title(analysis: Analysis) -> None:
    for drawing in all_drawings(analysis):
        with figure_style():
            figure = drawing.draw()
        names = [figure.get_supxlabel(), figure.get_supylabel()]
        for axes in figure.axes:
            names += [axes.get_xlabel(), axes.get_ylabel()]
            names += [label.get_text() for label in (*axes.get_xticklabels(), axes.yaxis.label)]
        assert any(names), drawing.name
        assert drawing.caption, drawing.name
        assert len(texts(figure)) > 2, drawing.name


def test_the_figures_of_a_study_are_the_papers_and_more(analysis: Analysis) -> None:
    assert [drawing.name for drawing in all_drawings(analysis)] == [
        *("figure-1a", "figure-2", "figure-3-noisynet-dqn", "figure-6"),
        *("aggregates", "improvement", "profiles", "noise"),
    ]


def test_bars_are_cut_at_250_per_cent_and_say_how_far_they_would_go(analysis: Analysis) -> None:
    figure = draw(analysis, "figure-1a")
    patches: list[Any] = list(figure.axes[0].patches)
    bars = {round(bar.get_height(), 1): to_hex(bar.get_facecolor()) for bar in patches}
    assert max(bars) == 250.0
    assert bars[250.0].upper() == STYLES["noisynet-dqn"].colour
    assert bars[min(bars)].upper() == STYLES["dqn"].colour
    assert "510" in texts(figure)  # 180 points of the 35.3 from random to human
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["pong", "enduro", "boxing"]  # the best first
    assert "published" in texts(figure)


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


def test_the_median_curve_is_drawn_over_frames(analysis: Analysis) -> None:
    (axes,) = draw(analysis, "figure-2").axes
    assert axes.get_xlabel() == "training frames"
    assert axes.get_ylabel() == "median human-normalised score (%)"
    x, y = (np.asarray(data, float) for data in axes.lines[0].get_data())
    np.testing.assert_array_equal(x, [100.0, 200.0])
    tasks = analysis.tasks(*analysis.study.contenders)
    np.testing.assert_allclose(y, analysis.median_curve(contender("dqn"), tasks))


def test_sigma_has_error_bars_over_seeds(analysis: Analysis) -> None:
    figure = draw(analysis, "figure-3-noisynet-dqn")
    assert [axes.get_title() for axes in figure.axes] == ["head.q.0", "head.q.2"]
    assert all(len(axes.containers) == 3 for axes in figure.axes)  # one for each game


def test_unfinished_runs_are_drawn_as_far_as_they_go(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 2.0, 3.0])
    write_run("dqn", "gym/A", 1, [5.0, 4.0], settings={"frames": 300}, state="running")
    (axes,) = draw(analyse(tmp_path), "figure-6").axes
    lengths = sorted(np.size(line.get_xdata()) for line in axes.lines)
    assert lengths == [2, 3]


def test_published_levels_are_drawn_for_budgets_like_the_papers_only(
    write_run: WriteRun, tmp_path: Path, analysis: Analysis
) -> None:
    assert not any("Dotted" in drawing.caption for drawing in grid_figures(analysis))
    long = {"frames": 200_000_000, "evaluation.period_frames": 100_000_000}
    write_run("dqn", "atari/qbert", 0, [1.0, 2.0], name="../long/a", settings=long)
    (study,) = make_studies(read_runs(find_runs([tmp_path / "long"]))[0])
    (drawing,) = grid_figures(Analysis(study, normaliser_of(study)))
    assert "Dotted: the published maximal score" in drawing.caption
    with figure_style():
        levels = [line.get_ydata()[0] for line in drawing.draw().axes[0].lines]  # type: ignore[index]
    assert 11_241 in levels


def test_a_name_is_drawn_as_it_stands(write_run: WriteRun, tmp_path: Path) -> None:
    name = r"gym/$\frac{x<b>"
    write_run("dqn", name, 0, [1.0, 2.0], name="a")
    write_run("noisynet-dqn", name, 0, [1.0, 2.0], name="b")
    analysis = analyse(tmp_path)
    assert r"$\frac{x<b>" in texts(draw(analysis, "figure-6"))
    for drawing in all_drawings(analysis):
        render(drawing)  # no formula, no failure


def test_the_same_figure_is_the_same_bytes(analysis: Analysis) -> None:
    drawing = next(paper_figures(analysis))
    first, second = render(drawing), render(drawing)
    assert (first.png, first.svg) == (second.png, second.svg)
    assert first.png.startswith(b"\x89PNG")
    assert b"<svg" in first.svg


def test_variants_share_their_agents_colour_and_have_dashes_of_their_own() -> None:
    shown = [contender("dqn"), *(contender("noisynet-dqn", variant) for variant in ("", "a", "b"))]
    styles = [line_style(who, shown) for who in shown]
    assert len({style["color"] for style in styles[1:]}) == 1
    assert len({str(style["linestyle"]) for style in styles[1:]}) == 3


def test_of_many_games_five_are_chosen_pong_and_beam_rider_among_them() -> None:
    tasks = [f"atari/{name}" for name in ("a", "b", "beam_rider", "c", "d", "e", "pong", "q", "z")]
    chosen = choose_games(tasks)
    assert len(chosen) == 5
    assert {"atari/beam_rider", "atari/pong", "atari/a", "atari/z"} <= set(chosen)
    assert choose_games(tasks[:3]) == tasks[:3]


@pytest.mark.parametrize(
    ("value", "text"), [(12_000.0, "12k"), (-1_500_000.0, "−1.5M"), (0.25, "0.25"), (0.0, "0")]
)
def test_numbers_of_small_panels_are_short(value: float, text: str) -> None:
    assert short_number(value) == text
