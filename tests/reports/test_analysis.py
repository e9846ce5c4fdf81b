"""Normalisation and comparison, on synthetic scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noisynet.reports.agents import Contender
from noisynet.reports.analysis import Analysis
from noisynet.reports.load_runs import find_runs, read_runs
from noisynet.reports.published import ReferenceName
from noisynet.reports.scores import Reference, mean_score
from noisynet.reports.study import make_studies

from .conftest import WriteRun

DQN, NOISY = Contender("dqn"), Contender("noisynet-dqn")


def analyse(folder: Path, references: ReferenceName = "unrounded") -> Analysis:
    (study,) = make_studies(read_runs(find_runs([folder / "runs"]))[0])
    return Analysis(study, references)


def test_without_human_scores_0_and_100_are_the_measured_range(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [10.0, 30.0])
    write_run("noisynet-dqn", "gym/A", 0, [20.0, 50.0])
    analysis = analyse(tmp_path)
    assert analysis.references == {"gym/A": Reference(10.0, 50.0)}
    assert "0 is the lowest and 100 the highest evaluation of any run" in analysis.normalisation
    assert [scores.tolist() for scores in analysis.normalised(DQN, ["gym/A"])] == [[50.0]]
    assert analysis.relative(NOISY, DQN) == {"gym/A": 50.0}


def test_an_environment_with_equal_scores_is_in_no_aggregate(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [0.0, 1.0])
    write_run("dqn", "gym/Flat", 0, [3.0, 3.0])
    analysis = analyse(tmp_path)
    assert analysis.study.tasks == ("gym/A", "gym/Flat")
    assert list(analysis.references) == ["gym/A"]
    assert analysis.tasks(DQN) == ["gym/A"]


@pytest.mark.parametrize(
    ("references", "expected"), [("unrounded", 430_000 / 17_667.9), ("printed", 413_743 / 1_411)]
)
def test_atari_is_normalised_by_either_set_of_references(
    write_run: WriteRun, tmp_path: Path, references: ReferenceName, expected: float
) -> None:
    write_run("dqn", "atari/video_pinball", 0, [430_000.0])
    analysis = analyse(tmp_path, references)
    found = float(mean_score(analysis.normalised(DQN, ["atari/video_pinball"])))
    assert found == pytest.approx(100 * expected)


def test_a_median_curve_averages_seeds_first_and_takes_the_median_over_tasks(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for task, scores in (("A", [0.0, 4.0]), ("B", [0.0, 10.0]), ("C", [10.0, 0.0])):
        write_run("dqn", f"gym/{task}", 0, scores)
        write_run("dqn", f"gym/{task}", 1, [0.0, 10.0])
    analysis = analyse(tmp_path)
    # seeds averaged: A 0, 7; B 0, 10; C 5, 5; every environment runs from 0 to 10
    np.testing.assert_allclose(analysis.median_curve(DQN, analysis.tasks(DQN)), [0.0, 70.0])


def test_wins_are_counted_by_mean_scores(write_run: WriteRun, tmp_path: Path) -> None:
    for task, noisy, plain in (("A", 5.0, 1.0), ("B", 2.0, 2.0), ("C", 1.0, 3.0), ("D", 9.0, 8.0)):
        write_run("noisynet-dqn", f"gym/{task}", 0, [0.0, noisy])
        write_run("dqn", f"gym/{task}", 0, [0.0, plain])
    analysis = analyse(tmp_path)
    assert analysis.tally(NOISY, DQN) == "2/1/1"
    assert analysis.improvement(NOISY, DQN).value == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert analysis.improvement(NOISY, DQN).interval is None  # one seed


def test_published_scores_belong_to_contenders_without_variant(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for seed in range(2):
        write_run("noisynet-dqn", "atari/pong", seed, [1.0])
    quiet = {"exploration.sigma0": 0.1}
    write_run("noisynet-dqn", "atari/pong", 0, [1.0], name="quiet", settings=quiet)
    analysis = analyse(tmp_path)
    common, variant = analysis.study.contenders
    score = analysis.published(common, "atari/pong")
    assert score is not None
    assert score.mean == 21
    assert analysis.published(variant, "atari/pong") is None
    assert analysis.published(Contender("noisynet-a3c-factorised"), "atari/pong") is None
    (published,) = analysis.normalised(common, ["atari/pong"], published=True)
    assert published.item() == pytest.approx(100 * 41.7 / 35.3)


def test_published_scores_are_not_shown_for_other_environment_options(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "atari/pong", 0, [1.0])
    write_run("dqn", "atari/pong", 1, [1.0], settings={"environment_options": {"colour": True}})
    analysis = analyse(tmp_path)
    with_options = 'atari/pong {"colour": true}'
    assert set(analysis.study.tasks) == {"atari/pong", with_options}
    assert analysis.references[with_options].low == -20.7
    assert [analysis.published(DQN, task) is None for task in analysis.study.tasks] == [False, True]


def test_an_agent_is_compared_with_its_noisy_versions(write_run: WriteRun, tmp_path: Path) -> None:
    for agent in ("dqn", "a3c", "noisynet-a3c", "noisynet-a3c-factorised"):
        write_run(agent, "gym/A", 0, [0.0, 1.0])
    analysis = analyse(tmp_path)
    both = [Contender(agent) for agent in ("a3c", "noisynet-a3c")]
    factorised = Contender("noisynet-a3c-factorised")
    assert analysis.compared_with("a3c") == both
    assert analysis.compared_with("a3c", factorised_a3c=True) == [*both, factorised]
    assert analysis.compared_with("dueling") == []
