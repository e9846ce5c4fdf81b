"""Tables of a report, on hand-made scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from noisynet.reports.analysis import Analysis, normaliser_of
from noisynet.reports.comparison_tables import aggregates, comparison, noise_on_and_off
from noisynet.reports.load_runs import find_runs, read_runs
from noisynet.reports.measured_tables import raw_scores, relative_scores, table_1, table_2
from noisynet.reports.run_tables import cost, missing, runs
from noisynet.reports.study import make_studies
from noisynet.reports.table_formats import Cell, Table

from .conftest import WriteRun


def analyse(folder: Path) -> Analysis:
    (study,) = make_studies(read_runs(find_runs([folder / "runs"]))[0])
    return Analysis(study, normaliser_of(study))


def texts(row: Sequence[Cell]) -> list[str]:
    return [cell.text for cell in row]


def row_of(table: Table, heading: str) -> tuple[Cell, ...]:
    (row,) = (row for row in table.rows if row[0].text == heading)
    return row


@pytest.fixture
def pong_and_boxing(write_run: WriteRun, tmp_path: Path) -> Analysis:
    """Two games, two agents, two seeds; Pong is normalised from −20.7 to 14.6."""
    for seed, shift in enumerate((-1.0, 1.0)):
        write_run("dqn", "atari/pong", seed, [-20.0, 14.6 + shift])
        write_run("noisynet-dqn", "atari/pong", seed, [-20.0, 18.13 + shift])
        write_run("dqn", "atari/boxing", seed, [0.0, 24.1 + shift])
        write_run("noisynet-dqn", "atari/boxing", seed, [0.0, 36.1 + shift])
    return analyse(tmp_path)


def test_table_1_is_the_papers_with_the_published_beside(pong_and_boxing: Analysis) -> None:
    table = table_1(pong_and_boxing)
    assert texts(row_of(table, "DQN, measured")) == [
        *("DQN, measured", "150.0", "150.0", "205.0", "205.0", "37", "2"),
    ]
    assert [cell.best for cell in row_of(table, "DQN, measured")][1:5] == [False, False, True, True]
    # Published: 20 and 21 in Pong, 87 and 89 in Boxing.
    assert texts(row_of(table, "DQN, published, same games"))[1:5] == [
        *("419.7", "419.7", "429.5", "429.5"),
    ]
    assert texts(row_of(table, "DQN, printed"))[1:] == ["319", "83", "379", "123", "48", "57"]
    assert any("200,000,000 frames" in note for note in table.notes)


def test_table_2_is_there_with_factorised_a3c_only(
    pong_and_boxing: Analysis, write_run: WriteRun, tmp_path: Path
) -> None:
    assert table_2(pong_and_boxing).rows == ()
    write_run("a3c", "atari/pong", 0, [-20.0, 14.6])
    write_run("noisynet-a3c-factorised", "atari/pong", 0, [-20.0, 14.6])
    table = table_2(analyse(tmp_path))
    headings = [row[0].text for row in table.rows]
    assert "DQN, measured" in headings
    printed = row_of(table, "A3C and NoisyNet-A3C (factorised), printed")
    assert texts(printed)[1:6] == ["293", "80", "276", "99", "24"]
    assert "A3C and NoisyNet-A3C (factorised), published, same games" not in headings


def test_no_improvement_is_claimed_over_a_median_of_nothing(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [0.0, 0.0])
    write_run("noisynet-dqn", "gym/A", 0, [0.0, 5.0])
    row = row_of(table_1(analyse(tmp_path)), "DQN, measured")
    assert texts(row)[1:6] == ["0.0", "0.0", "100.0", "100.0", "–"]


def test_agents_are_compared_on_the_environments_that_both_have(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [0.0, 5.0])
    write_run("dqn", "gym/B", 0, [0.0, 5.0])
    write_run("noisynet-dqn", "gym/A", 0, [0.0, 10.0])
    analysis = analyse(tmp_path)
    assert row_of(table_1(analysis), "DQN, measured")[-1].text == "1"
    assert [row[-2].text for row in aggregates(analysis).rows] == ["2", "1"]
    assert any("must not be compared" in note for note in aggregates(analysis).notes)


def test_table_3_has_mean_and_spread_beside_the_published(pong_and_boxing: Analysis) -> None:
    table = raw_scores(pong_and_boxing)
    assert texts(row_of(table, "pong")) == [
        *("pong", "14.6", "−20.7", "14.6 ± 1.0", "20 ± 0", "18.1 ± 1.0", "21 ± 0"),
    ]
    assert [cell.best for cell in row_of(table, "pong")][3:] == [False, False, True, False]


def test_a_score_of_fewer_seeds_says_how_many(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in range(3):
        write_run("dqn", "gym/A", seed, [1.0, 100.0 + seed])
    write_run("noisynet-dqn", "gym/A", 0, [200.0, 2.0])
    row = row_of(raw_scores(analyse(tmp_path)), "gym/A")
    assert texts(row)[3:] == ["101 ± 1", "200 (1)"]


def test_relative_scores_are_measured_and_published(pong_and_boxing: Analysis) -> None:
    table = relative_scores(pong_and_boxing)
    # Pong: 3.53 of 35.3 points; published 1 of 40.7.
    assert texts(row_of(table, "pong")) == ["pong", "10.0", "2.5"]
    assert texts(row_of(table, "boxing")) == ["boxing", "50.0", "2.3"]


def test_the_comparison_counts_wins_and_improvements(pong_and_boxing: Analysis) -> None:
    (row,) = comparison(pong_and_boxing).rows
    assert texts(row)[:3] == ["NoisyNet-DQN over DQN", "2/0/0", "2/0/0"]
    assert row[3].value == 1.0
    assert row[3].bounds == (1.0, 1.0)


def test_aggregates_have_intervals(pong_and_boxing: Analysis) -> None:
    row = row_of(aggregates(pong_and_boxing), "DQN")
    assert row[1].value == pytest.approx(150.0)
    assert row[1].bounds is not None
    assert row[1].bounds[0] < 150 < row[1].bounds[1]
    assert texts(row)[-2:] == ["2", "4"]


def test_noise_on_and_off_are_scores_of_the_same_weights(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("noisynet-dqn", "gym/A", 0, [0.0, 10.0], scores_off=[6.0, 1.0])
    write_run("dqn", "gym/A", 0, [0.0, 1.0])
    (row,) = noise_on_and_off(analyse(tmp_path)).rows
    assert texts(row) == ["NoisyNet-DQN, gym/A", "10.0", "6.00", "4.00", "40.0"]


def test_cost_is_what_was_timed(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in range(2):  # 100 and 110 steps per second
        write_run("dqn", "gym/A", seed, [1.0, 2.0])
    (row,) = cost(analyse(tmp_path)).rows
    assert texts(row)[:4] == ["DQN", "105", "100", "110"]
    assert row[5].value == pytest.approx(4 * 36 / 3600)
    assert row[6].value == pytest.approx(4 * 4 / 3600)


def test_what_is_missing_is_listed_and_nothing_is_invented(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 2.0])
    write_run("dqn", "gym/B", 1, [1.0], settings={"frames": 200}, state="running")
    analysis = analyse(tmp_path)
    assert [texts(row) for row in missing(analysis).rows] == [
        ["DQN", "gym/A", "1", "–"],
        ["DQN", "gym/B", "0", "1 (running)"],
    ]
    assert table_1(analysis).rows == ()
    assert [row[0].text for row in raw_scores(analysis).rows] == ["gym/A"]
    states = {row[2].text: row[4].text for row in runs(analysis).rows}
    assert states == {"gym/A": "finished", "gym/B": "running, not complete"}
