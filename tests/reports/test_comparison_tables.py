"""Aggregates and comparisons, on synthetic scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisynet.reports.analysis import Analysis
from noisynet.reports.comparison_tables import aggregates, comparison, noise_on_and_off

from .conftest import WriteRun, analyse, cell_texts, row_of


def test_the_comparison_counts_wins_and_improvements(pong_and_boxing: Analysis) -> None:
    (row,) = comparison(pong_and_boxing).rows
    assert cell_texts(row)[:3] == ["NoisyNet-DQN over DQN", "2/0/0", "2/0/0"]
    assert row[3].value == 1.0
    assert row[3].bounds == (1.0, 1.0)


def test_aggregates_have_intervals(pong_and_boxing: Analysis) -> None:
    row = row_of(aggregates(pong_and_boxing), "DQN")
    assert row[1].value == pytest.approx(150.0)
    assert row[1].bounds is not None
    assert row[1].bounds[0] < 150 < row[1].bounds[1]
    assert cell_texts(row)[-2:] == ["2", "4"]


def test_noise_on_and_off_are_scores_of_the_same_weights(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("noisynet-dqn", "gym/A", 0, [0.0, 10.0], scores_off=[6.0, 1.0])
    write_run("dqn", "gym/A", 0, [0.0, 1.0])
    (row,) = noise_on_and_off(analyse(tmp_path)).rows
    assert cell_texts(row) == ["NoisyNet-DQN, gym/A", "10.0", "6.00", "4.00", "40.0"]
