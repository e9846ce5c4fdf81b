"""Figures 6 to 8: what they show."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from noisynet.reports.analysis import Analysis, make_normaliser
from noisynet.reports.curve_figures import curve_figures
from noisynet.reports.load_runs import find_runs, read_runs
from noisynet.reports.plotting import figure_style
from noisynet.reports.study import make_studies

from .conftest import WriteRun, analyse, draw


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
    assert not any("Dotted" in figure.caption for figure in curve_figures(analysis))
    long = {"frames": 200_000_000, "evaluation.period_frames": 100_000_000}
    write_run("dqn", "atari/qbert", 0, [1.0, 2.0], name="../long/a", settings=long)
    (study,) = make_studies(read_runs(find_runs([tmp_path / "long"]))[0])
    (figure,) = curve_figures(Analysis(study, make_normaliser(study)))
    assert "Dotted: the published maximal score" in figure.caption
    with figure_style():
        levels = [line.get_ydata()[0] for line in figure.draw().axes[0].lines]  # type: ignore[index]
    assert 11_241 in levels
