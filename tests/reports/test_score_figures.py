"""Figures of scores: what they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from noisynet.reports.agents import STYLES, Contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.published import atari_references
from noisynet.reports.scores import estimate, mean_score

from .conftest import WriteRun, all_figures, analyse, draw, texts


def test_bars_are_truncated_at_250_per_cent_with_their_value_above(analysis: Analysis) -> None:
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


def test_aggregates_show_estimates_with_their_intervals(analysis: Analysis) -> None:
    mean = next(axes for axes in draw(analysis, "aggregates").axes if axes.get_title() == "mean")
    dqn = Contender("dqn")
    expected = estimate(mean_score, analysis.normalised(dqn, analysis.tasks(dqn)))
    assert expected.interval is not None
    lines = [np.asarray(line.get_xdata(), float).tolist() for line in mean.lines]
    assert lines[:2] == [expected.interval.tolist(), [expected.value]]


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
    for game in ("pong", "boxing", "enduro"):
        reference = atari_references("unrounded")[game]
        score = reference.low + highest / 100 * (reference.high - reference.low)
        for seed in range(2):
            write_run("dqn", f"atari/{game}", seed, [score])
    (axes,) = draw(analyse(tmp_path), "profiles").axes
    assert axes.get_xscale() == scale


def test_without_noisy_agents_there_is_no_comparison(write_run: WriteRun, tmp_path: Path) -> None:
    for task in ("A", "B", "C"):
        write_run("dqn", f"gym/{task}", 0, [0.0, 1.0])
    names = [figure.name for figure in all_figures(analyse(tmp_path))]
    assert names == ["aggregates", "profiles", "figure-6", "figure-2"]


def test_fewer_than_three_environments_are_not_aggregated(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for task in ("A", "B"):
        write_run("dqn", f"gym/{task}", 0, [0.0, 1.0])
        write_run("noisynet-dqn", f"gym/{task}", 0, [0.0, 2.0])
    names = {figure.name for figure in all_figures(analyse(tmp_path))}
    assert not names & {"aggregates", "improvement", "profiles"}
    assert {"figure-1a", "figure-2", "figure-6"} <= names
