"""Aggregates, probability of improvement, profiles and noise modes: what they show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noisynet.reports.agents import make_contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.interval_figures import interval_figures
from noisynet.reports.scores import mean_score

from .conftest import WriteRun, analyse, draw, texts


def test_aggregates_show_estimates_with_their_intervals(analysis: Analysis) -> None:
    mean = next(axes for axes in draw(analysis, "aggregates").axes if axes.get_title() == "mean")
    dqn = make_contender("dqn")
    expected = analysis.estimate(mean_score, dqn, analysis.tasks(dqn))
    assert expected.interval is not None
    lines = [np.asarray(line.get_xdata(), float).tolist() for line in mean.lines]
    assert lines[:2] == [list(expected.interval), [expected.value]]


def test_the_probability_of_improvement_is_drawn_for_every_pair(analysis: Analysis) -> None:
    figure = draw(analysis, "improvement")
    assert "NoisyNet-DQN over DQN" in texts(figure)
    (pair,) = analysis.study.pairs
    values = [np.asarray(line.get_xdata(), float).tolist() for line in figure.axes[0].lines]
    assert [analysis.improvement(*pair).value] in values


@pytest.mark.parametrize(("highest", "scale"), [(100.0, "linear"), (2_000.0, "symlog")])
def test_profiles_of_high_scores_have_a_logarithmic_axis(
    write_run: WriteRun, tmp_path: Path, highest: float, scale: str
) -> None:
    human, random = 14.6, -20.7  # Pong
    for seed in range(2):
        score = random + highest / 100 * (human - random)
        write_run("dqn", "atari/pong", seed, [score])
    (axes,) = draw(analyse(tmp_path), "profiles").axes
    assert axes.get_xscale() == scale


def test_noise_modes_are_drawn_as_two_curves(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("noisynet-dqn", "gym/A", 0, [0.0, 10.0], scores_off=[6.0, 1.0])
    (axes,) = draw(analyse(tmp_path), "noise").axes
    curves = [np.asarray(line.get_ydata(), float).tolist() for line in axes.lines]
    assert curves == [[0.0, 100.0], [60.0, 10.0]]


def test_without_noisy_agents_there_is_no_comparison(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [0.0, 1.0])
    names = [figure.name for figure in interval_figures(analyse(tmp_path))]
    assert names == ["aggregates", "profiles"]
