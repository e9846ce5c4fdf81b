"""Grouping of runs into studies, and missing runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisynet.reports.agents import Contender
from noisynet.reports.load_runs import ReportError, find_runs, read_runs
from noisynet.reports.study import Study, count, figure_label, make_studies, table_label, task_game

from .conftest import WriteRun

DQN, NOISY = Contender("dqn"), Contender("noisynet-dqn")


def studies(folder: Path, **more: Any) -> list[Study]:
    runs, skipped = read_runs(find_runs([folder / "runs"]))
    assert not skipped
    return make_studies(runs, **more)


def test_the_score_of_a_run_is_the_maximum_of_its_curve(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 5.0, 2.0])
    write_run("dqn", "gym/A", 1, [4.0, 3.0, 3.0])
    (study,) = studies(tmp_path)
    assert study.scores(DQN, "gym/A").tolist() == [5.0, 4.0]
    assert study.curves(DQN, study.complete(DQN, "gym/A")).tolist() == [
        [1.0, 5.0, 2.0],
        [4.0, 3.0, 3.0],
    ]
    assert study.frames(DQN).tolist() == [100.0, 200.0, 300.0]


def test_an_unfinished_run_counts_in_its_own_curve_only(
    write_run: WriteRun, tmp_path: Path
) -> None:
    budget = {"frames": 300}
    write_run("dqn", "gym/A", 0, [1.0, 5.0, 2.0])
    write_run("dqn", "gym/A", 1, [9.0], settings=budget, state="interrupted")
    (study,) = studies(tmp_path)
    assert study.scores(DQN, "gym/A").tolist() == [5.0]
    (run,) = study.unfinished(DQN, "gym/A")
    assert (run.seed, run.state) == (1, "interrupted")
    np.testing.assert_array_equal(study.curves(DQN, [run]), [[9.0, np.nan, np.nan]])
    assert study.absent(DQN, "gym/A") == []


def test_at_fewer_frames_unfinished_runs_are_complete(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 2.0, 9.0])
    write_run("dqn", "gym/A", 1, [3.0, 2.0], settings={"frames": 300}, state="running")
    (study,) = studies(tmp_path, at_frames=200)
    assert study.scores(DQN, "gym/A").tolist() == [2.0, 3.0]
    assert study.unfinished(DQN, "gym/A") == []


def test_seeds_that_other_agents_have_are_missing(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in range(2):
        write_run("dqn", "gym/A", seed, [1.0])
        write_run("dqn", "gym/B", seed, [1.0])
    write_run("noisynet-dqn", "gym/A", 1, [1.0])
    (study,) = studies(tmp_path)
    absent = {task: study.absent(NOISY, task) for task in study.tasks}
    assert absent == {"gym/A": [0], "gym/B": [0, 1]}
    assert not any(study.absent(DQN, task) for task in study.tasks)
    assert study.tasks_of(DQN, NOISY) == ["gym/A"]
    assert study.pairs == [(NOISY, DQN)]


def test_games_of_the_paper_without_a_run_are_missing(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "atari/pong", 0, [1.0])
    (study,) = studies(tmp_path)
    assert len(study.missing_games()) == 56
    assert "pong" not in study.missing_games()


def test_runs_of_different_budgets_are_separate_studies_with_a_note(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for seed in range(2):
        write_run("dqn", "gym/A", seed, [1.0, 2.0])
    write_run("noisynet-dqn", "gym/A", 0, [1.0, 2.0, 3.0])
    first, second = studies(tmp_path)
    assert (first.name, first.contenders) == ("gym-200-frames", (DQN,))
    assert (second.name, second.contenders) == ("gym-300-frames", (NOISY,))
    assert "2 different budgets or evaluation protocols" in first.notes[0]
    assert "only: 200 frames of training" in first.notes[0]
    assert "limit: no limit: 2 runs; 300 frames of training" in first.notes[0]
    assert first.notes[0].endswith(": 1 run.")


@pytest.mark.parametrize(
    ("setting", "titles"),
    [
        ({"evaluation.frames": 70}, ["evaluated for 50", "evaluated for 70"]),
        ({"evaluation.period_frames": 50}, ["evaluated every 100", "evaluated every 50"]),
        ({"max_episode_frames": 9}, ["episode limit 9", "no episode limit"]),
    ],
)
def test_runs_of_different_protocols_are_separated_and_named_by_the_difference(
    write_run: WriteRun, tmp_path: Path, setting: dict[str, Any], titles: list[str]
) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 2.0])
    write_run("dqn", "gym/A", 1, [1.0, 2.0], settings=setting)
    found = sorted(study.title for study in studies(tmp_path))
    assert found == [f"Gymnasium, {title}" for title in titles]


def test_studies_are_named_by_no_more_than_tells_them_apart(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for size in (5, 10):
        scaled = {"frames": 100 * size, "evaluation.period_frames": 10 * size}
        write_run("dqn", f"deep_sea/{size}", 0, [0.0] * 10, settings=scaled)
    assert {study.title for study in studies(tmp_path)} == {
        "Deep Sea, 500 frames",
        "Deep Sea, 1,000 frames",
    }


@pytest.mark.parametrize(("number", "text"), [(0, "0 runs"), (1, "1 run"), (1_200, "1,200 runs")])
def test_counts_have_a_plural(number: int, text: str) -> None:
    assert count(number, "run") == text


def test_a3c_may_have_another_budget_as_in_the_paper(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [1.0, 2.0])
    write_run("a3c", "gym/A", 0, [1.0, 2.0, 3.0])
    (study,) = studies(tmp_path)
    assert [study.points(contender) for contender in study.contenders] == [2, 3]
    assert study.notes == ()


def test_families_of_environments_are_separate_studies(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("dqn", "gym/A", 0, [1.0])
    write_run("dqn", "minatar/breakout", 0, [1.0])
    assert {study.family for study in studies(tmp_path)} == {"gym", "minatar"}


def test_different_settings_of_an_agent_are_different_contenders(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [1.0])
    for seed in range(2):
        write_run("noisynet-dqn", "gym/A", seed, [2.0])
    quiet = {"exploration.sigma0": 0.1}
    write_run("noisynet-dqn", "gym/A", 0, [3.0], name="quiet", settings=quiet)
    (study,) = studies(tmp_path)
    assert [contender.title for contender in study.contenders] == [
        "DQN",
        "NoisyNet-DQN",
        "NoisyNet-DQN [exploration.sigma0=0.1]",
    ]
    assert study.scores(study.contenders[2], "gym/A").tolist() == [3.0]
    assert [noisy.variant for noisy, _ in study.pairs] == ["", "exploration.sigma0=0.1"]
    assert "compared as different agents: exploration.sigma0=0.1" in study.notes[0]


def test_of_equally_common_settings_those_of_the_first_folder_have_no_variant(
    write_run: WriteRun, tmp_path: Path
) -> None:
    held = {"exploration.redraw": "episode"}
    write_run("noisynet-dqn", "gym/A", 0, [1.0], name="noisynet-dqn")
    write_run("noisynet-dqn", "gym/A", 0, [1.0], name="noisynet-dqn+held", settings=held)
    (study,) = studies(tmp_path)
    assert [one.variant for one in study.contenders] == ["", "exploration.redraw=episode"]


def test_environments_are_sorted_by_the_value_of_their_numbers(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for task in ("gym/B-v1", "gym/A10", "gym/A9", "gym/A"):
        write_run("dqn", task, 0, [1.0])
    (study,) = studies(tmp_path)
    assert study.tasks == ("gym/A", "gym/A9", "gym/A10", "gym/B-v1")


def test_settings_that_differ_between_environments_only_are_one_contender(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [1.0])
    write_run("dqn", "gym/A", 1, [1.0])
    write_run("dqn", "gym/B", 0, [1.0], settings={"learning.n_step": 3})
    (study,) = studies(tmp_path)
    assert study.contenders == (DQN,)
    assert study.notes == ("The settings of dqn differ between environments: learning.n_step=3.",)


def test_an_environment_with_other_options_is_another_task(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("dqn", "gym/A", 0, [1.0])
    write_run("noisynet-dqn", "gym/A", 0, [1.0])
    write_run("dqn", "gym/A", 1, [1.0], settings={"environment_options": {"wind": 1}})
    (study,) = studies(tmp_path)
    assert study.tasks == ("gym/A", 'gym/A {"wind": 1}')
    assert "Runs on gym/A have different options" in study.notes[0]


def test_the_same_seed_twice_is_refused_with_both_folders(
    write_run: WriteRun, tmp_path: Path
) -> None:
    first = write_run("dqn", "gym/A", 0, [1.0])
    second = write_run("dqn", "gym/A", 0, [2.0], name="copy")
    with pytest.raises(ReportError) as refused:
        studies(tmp_path)
    message = str(refused.value)
    assert "DQN on gym/A, seed 0" in message
    assert str(first) in message
    assert str(second) in message
    assert "leave out or move away all but one of each" in message


@pytest.mark.parametrize(
    ("task", "game", "in_tables", "in_figures"),
    [
        ("atari/beam_rider", ("atari", "beam_rider"), "beam_rider", "beam rider"),
        ("deep_sea/10", ("deep_sea", "10"), "deep_sea/10", "deep sea 10"),
        ("gym/CartPole-v1", ("gym", "CartPole-v1"), "gym/CartPole-v1", "CartPole-v1"),
        ('gym/A {"wind": 1}', ("gym", "A"), 'gym/A {"wind": 1}', 'A {"wind": 1}'),
    ],
)
def test_labels_of_tasks(task: str, game: tuple[str, str], in_tables: str, in_figures: str) -> None:
    assert task_game(task) == game
    assert (table_label(task), figure_label(task)) == (in_tables, in_figures)
