"""Tables of scores, on synthetic runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisynet.reports.analysis import Analysis
from noisynet.reports.score_tables import (
    aggregates,
    comparison,
    noise_on_and_off,
    other_agents,
    raw_scores,
    relative_scores,
    table_1,
    table_2,
)

from .conftest import WriteRun, analyse, cell_texts, row_of


def test_table_1_has_measured_and_published_scores(pong_and_boxing: Analysis) -> None:
    table = table_1(pong_and_boxing)
    assert cell_texts(row_of(table, "DQN, measured")) == [
        *("DQN, measured", "150.0", "150.0", "205.0", "205.0", "37", "2"),
    ]
    assert [cell.best for cell in row_of(table, "DQN, measured")][1:5] == [False, False, True, True]
    # Published: 20 and 21 in Pong, 87 and 89 in Boxing.
    assert cell_texts(row_of(table, "DQN, published, same games"))[1:5] == [
        *("419.7", "419.7", "429.5", "429.5"),
    ]
    assert cell_texts(row_of(table, "DQN, printed"))[1:] == ["319", "83", "379", "123", "48", "57"]
    assert any("200,000,000 frames" in note for note in table.notes)


def test_table_2_requires_factorised_a3c(
    pong_and_boxing: Analysis, write_run: WriteRun, tmp_path: Path
) -> None:
    assert table_2(pong_and_boxing).rows == []
    write_run("a3c", "atari/pong", 0, [-20.0, 14.6])
    write_run("noisynet-a3c-factorised", "atari/pong", 0, [-20.0, 14.6])
    table = table_2(analyse(tmp_path))
    headings = [row[0].text for row in table.rows]
    assert "DQN, measured" in headings
    printed = row_of(table, "A3C and NoisyNet-A3C (factorised), printed")
    assert cell_texts(printed)[1:6] == ["293", "80", "276", "99", "24"]
    assert "A3C and NoisyNet-A3C (factorised), published, same games" not in headings


def test_agents_that_are_not_in_the_paper_have_a_table_of_their_own(
    pong_and_boxing: Analysis, write_run: WriteRun, tmp_path: Path
) -> None:
    assert other_agents(pong_and_boxing).rows == []
    for agent, score in (
        ("rainbow-without-noise", -3.05),
        ("rainbow", 14.6),
        ("c51", 0.0),
        ("noisynet-c51", 0.0),
    ):
        write_run(agent, "atari/pong", 0, [-20.0, score])
    analysis = analyse(tmp_path)
    for table in (table_1, table_2):
        assert not [row for row in table(analysis).rows if row[0].text.startswith(("C51", "Rain"))]
    others = other_agents(analysis)
    assert [row[0].text for row in others.rows] == [
        *("C51, measured", "Rainbow without noise, measured"),  # nothing is published
    ]
    row = row_of(others, "Rainbow without noise, measured")
    assert cell_texts(row)[1:] == ["50.0", "50.0", "100.0", "100.0", "100", "1"]
    assert others.title.startswith("Agents that are not in the paper: ")
    raw = raw_scores(analysis)
    assert raw.notes[-1] == "Not in the paper: C51, NoisyNet-C51, Rainbow without noise, Rainbow."
    assert dict(raw.groups)["Rainbow"] == 1  # no column of published scores
    assert not [note for note in raw_scores(pong_and_boxing).notes if "Not in the paper" in note]


def test_the_improvement_over_a_median_of_0_is_undefined(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [0.0, 0.0])
    write_run("noisynet-dqn", "gym/A", 0, [0.0, 5.0])
    row = row_of(table_1(analyse(tmp_path)), "DQN, measured")
    assert cell_texts(row)[1:6] == ["0.0", "0.0", "100.0", "100.0", "–"]


def test_agents_are_compared_on_common_environments(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [0.0, 5.0])
    write_run("dqn", "gym/B", 0, [0.0, 5.0])
    write_run("noisynet-dqn", "gym/A", 0, [0.0, 10.0])
    assert row_of(table_1(analyse(tmp_path)), "DQN, measured")[-1].text == "1"
    for task in ("C", "D"):
        write_run("dqn", f"gym/{task}", 0, [0.0, 5.0])
        write_run("noisynet-dqn", f"gym/{task}", 0, [0.0, 10.0])
    analysis = analyse(tmp_path)
    assert [row[-2].text for row in aggregates(analysis).rows] == ["4", "3"]
    assert any("do not compare these rows" in note for note in aggregates(analysis).notes)


def test_table_3_has_mean_and_deviation_and_published_scores(pong_and_boxing: Analysis) -> None:
    table = raw_scores(pong_and_boxing)
    assert cell_texts(row_of(table, "pong")) == [
        *("pong", "14.6", "−20.7", "14.6 ± 1.0", "20 ± 0", "18.1 ± 1.0", "21 ± 0"),
    ]
    assert [cell.best for cell in row_of(table, "pong")][3:] == [False, False, True, False]


def test_a_score_of_fewer_seeds_shows_their_number(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in range(3):
        write_run("dqn", "gym/A", seed, [1.0, 100.0 + seed])
    write_run("noisynet-dqn", "gym/A", 0, [200.0, 2.0])
    row = row_of(raw_scores(analyse(tmp_path)), "gym/A")
    assert cell_texts(row)[3:] == ["101 ± 1", "200 (1)"]


def test_relative_scores_are_measured_and_published(pong_and_boxing: Analysis) -> None:
    table = relative_scores(pong_and_boxing)
    # Pong: 3.53 of 35.3 points; published 1 of 40.7.
    assert cell_texts(row_of(table, "pong")) == ["pong", "10.0", "2.5"]
    assert cell_texts(row_of(table, "boxing")) == ["boxing", "50.0", "2.3"]


@pytest.fixture
def three_games(pong_and_boxing: Analysis, write_run: WriteRun, tmp_path: Path) -> Analysis:
    """Pong, Boxing, and Freeway, in which 0 is random and 29.6 human."""
    assert len(pong_and_boxing.study.tasks) == 2
    for seed, shift in enumerate((-1.0, 1.0)):
        write_run("dqn", "atari/freeway", seed, [0.0, 29.6 + shift])
        write_run("noisynet-dqn", "atari/freeway", seed, [0.0, 59.2 + shift])
    return analyse(tmp_path)


def test_the_comparison_counts_wins_and_improvements(three_games: Analysis) -> None:
    (row,) = comparison(three_games).rows
    assert cell_texts(row)[:3] == ["NoisyNet-DQN over DQN", "3/0/0", "3/0/0"]
    assert row[3].value == 1.0
    assert row[3].bounds == (1.0, 1.0)


def test_aggregates_have_intervals(three_games: Analysis) -> None:
    row = row_of(aggregates(three_games), "DQN")
    mean = (100 + 200 + 100) / 3
    assert row[1].value == pytest.approx(mean)
    assert row[1].bounds is not None
    assert row[1].bounds[0] < mean < row[1].bounds[1]
    assert cell_texts(row)[-2:] == ["3", "6"]


def test_two_environments_are_compared_but_not_aggregated(pong_and_boxing: Analysis) -> None:
    (row,) = comparison(pong_and_boxing).rows
    assert cell_texts(row)[:4] == ["NoisyNet-DQN over DQN", "2/0/0", "2/0/0", "–"]
    assert aggregates(pong_and_boxing).rows == []


def test_noise_on_and_off_are_scores_of_the_same_weights(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("noisynet-dqn", "gym/A", 0, [0.0, 10.0], scores_off=[6.0, 1.0])
    write_run("dqn", "gym/A", 0, [0.0, 1.0])
    (row,) = noise_on_and_off(analyse(tmp_path)).rows
    assert cell_texts(row) == ["NoisyNet-DQN, gym/A", "10.0", "6.00", "4.00", "40.0"]
