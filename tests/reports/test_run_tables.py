"""Cost, missing runs and all runs of a study."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisynet.reports.run_tables import cost, missing, runs_table
from noisynet.reports.score_tables import raw_scores, table_1

from .conftest import WriteRun, analyse, cell_texts


def test_cost_has_throughput_and_hours(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in range(2):  # 100 and 110 steps per second
        write_run("dqn", "gym/A", seed, [1.0, 2.0])
    (row,) = cost(analyse(tmp_path)).rows
    assert cell_texts(row)[:4] == ["DQN", "105", "100", "110"]
    assert row[5].value == pytest.approx(4 * 36 / 3600)
    assert row[6].value == pytest.approx(4 * 4 / 3600)


def test_missing_runs_are_listed_and_count_nowhere(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 2.0])
    write_run("dqn", "gym/B", 1, [1.0], settings={"frames": 200}, state="running")
    analysis = analyse(tmp_path)
    assert [cell_texts(row) for row in missing(analysis).rows] == [
        ["DQN", "gym/A", "1", "–"],
        ["DQN", "gym/B", "0", "1 (running)"],
    ]
    assert table_1(analysis).rows == []
    assert [row[0].text for row in raw_scores(analysis).rows] == ["gym/A"]
    states = {row[2].text: row[4].text for row in runs_table(analysis).rows}
    assert states == {"gym/A": "finished", "gym/B": "running, incomplete"}
