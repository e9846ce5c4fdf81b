"""Figures over training: what they show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noisynet.reports.agents import Contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.curve_figures import choose_games, short_number
from noisynet.reports.load_runs import find_runs, read_runs
from noisynet.reports.study import make_studies

from .conftest import WriteRun, all_figures, analyse, draw


def test_unfinished_runs_are_drawn_to_their_last_evaluation(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 2.0, 3.0])
    write_run("dqn", "gym/A", 1, [5.0, 4.0], settings={"frames": 300}, state="running")
    (axes,) = draw(analyse(tmp_path), "figure-6").axes
    lengths = sorted(np.size(line.get_xdata()) for line in axes.lines)
    assert lengths == [2, 3]


def test_published_scores_are_drawn_only_for_budgets_near_the_papers(
    write_run: WriteRun, tmp_path: Path, analysis: Analysis
) -> None:
    assert not any("Dotted" in figure.caption for figure in all_figures(analysis))
    long = {"frames": 200_000_000, "evaluation.period_frames": 100_000_000}
    write_run("dqn", "atari/qbert", 0, [1.0, 2.0], name="../long/a", settings=long)
    (study,) = make_studies(read_runs(find_runs([tmp_path / "long"]))[0])
    figure = next(one for one in all_figures(Analysis(study)) if one.name == "figure-6")
    assert "Dotted: the published maximal score" in figure.caption
    levels = [line.get_ydata()[0] for line in figure.drawn.axes[0].lines]  # type: ignore[index]
    assert 11_241 in levels


def test_the_median_curve_is_drawn_over_frames(analysis: Analysis) -> None:
    (axes,) = draw(analysis, "figure-2").axes
    assert axes.get_xlabel() == "training frames"
    assert axes.get_ylabel() == "median human-normalised score (%)"
    x, y = (np.asarray(data, float) for data in axes.lines[0].get_data())
    np.testing.assert_array_equal(x, [100.0, 200.0])
    tasks = analysis.tasks(*analysis.study.contenders)
    np.testing.assert_allclose(y, analysis.median_curve(Contender("dqn"), tasks))


def test_noise_modes_are_drawn_as_two_curves(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("noisynet-dqn", "gym/A", 0, [0.0, 10.0], scores_off=[6.0, 1.0])
    (axes,) = draw(analyse(tmp_path), "noise").axes
    curves = [np.asarray(line.get_ydata(), float).tolist() for line in axes.lines]
    assert curves == [[0.0, 100.0], [60.0, 10.0]]


def test_sigma_has_error_bars_over_seeds(analysis: Analysis) -> None:
    figure = draw(analysis, "figure-3-noisynet-dqn")
    assert [axes.get_title() for axes in figure.axes] == ["head.q.0", "head.q.2"]
    assert all(len(axes.containers) == 3 for axes in figure.axes)  # one for each game


def test_five_of_many_games_are_chosen_with_pong_and_beam_rider() -> None:
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
