"""Cost, missing runs and all runs of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noisynet.reports.run_tables import configuration, cost, missing, runs_table, versions
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
    states = {row[2].text: row[4].text for row in runs_table(analysis, tmp_path).rows}
    assert states == {"gym/A": "finished", "gym/B": "running, incomplete"}


def test_the_configuration_of_every_agent_is_listed(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [1.0])
    write_run("dqn", "gym/B", 0, [1.0], settings={"learning.n_step": 3})
    write_run("noisynet-dqn", "gym/A", 0, [1.0])
    rows = {row[0].text: cell_texts(row[1:]) for row in configuration(analyse(tmp_path)).rows}
    assert rows["learning.n_step"] == ["1; 3", "1"]
    assert rows["exploration.kind"] == ["epsilon-greedy", "noisy-weights"]
    assert rows["exploration.sigma0"] == ["–", "0.5"]
    assert "seed" not in rows


def test_versions_are_listed_with_the_number_of_their_runs(
    write_run: WriteRun, tmp_path: Path
) -> None:
    made: dict[str, Any] = {
        "versions": {"python": "3.12", "torch": "2.13"},
        "commit": None,
        "machine": "here",
    }
    made |= {"processor": "fast", "cores": 2, "system": "Linux", "device": "cpu"}
    for seed in range(2):
        write_run("dqn", "gym/A", seed, [1.0], settings={"made_by": [made]})
    write_run("dqn", "gym/A", 2, [1.0])  # of an older version
    (row,) = versions(analyse(tmp_path)).rows
    assert cell_texts(row) == [
        "python 3.12, torch 2.13; commit unknown; cpu of here, fast, 2 cores, Linux",
        "2",
    ]


def test_a_link_is_relative_and_escaped(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [1.0], name="javascript:a b")
    (row,) = runs_table(analyse(tmp_path), tmp_path / "report").rows
    assert row[0].link == "./../runs/javascript%3Aa%20b/"
