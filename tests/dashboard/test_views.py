"""What the page shows: rows, charts, and the mean and range over seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noisynet.dashboard.read_runs import Runs
from noisynet.dashboard.views import compare_view, run_view, runs_view

from .conftest import WriteRun


def look(folder: Path) -> Runs:
    runs = Runs([folder])
    runs.refresh(seconds=60.0)
    return runs


@pytest.fixture
def compared(tmp_path: Path, write_run: WriteRun) -> Runs:
    write_run(tmp_path / "a", "noisynet-dqn", "gym/A", 0, [1.0, 3.0], scores_off=[5.0, 6.0])
    write_run(tmp_path / "b", "noisynet-dqn", "gym/A", 1, [3.0], scores_off=[5.0])
    write_run(tmp_path / "c", "dqn", "gym/A", 0, [2.0, 2.0])
    slow = {"optimiser.learning_rate": 0.5}
    write_run(tmp_path / "d", "dqn", "gym/A", 1, [0.0], settings=slow)
    write_run(tmp_path / "e", "dqn", "gym/B", 0, [9.0])
    return look(tmp_path)


def test_a_row_has_the_identity_and_the_progress_of_a_run(
    tmp_path: Path, write_run: WriteRun
) -> None:
    folder = write_run(tmp_path / "run", "dqn", "gym/A", 7, [1.0, 2.5], state="failed")
    status = {"state": "failed", "frames": 200, "reason": "the disk is full"}
    (folder / "status.json").write_text(json.dumps(status))
    (row,) = runs_view(look(tmp_path)).values()
    wanted = {"agent": "dqn", "environment": "gym/A", "seed": 7, "state": "failed", "of": 200}
    wanted |= {"reason": "the disk is full", "frames": 200, "speed": None, "left": None}
    wanted |= {"score": 2.5}  # of the newest evaluation: the status has none
    assert row | wanted == row
    assert row["disk"] > 0


def test_speed_and_time_left_are_those_of_the_later_half(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run(tmp_path / "run", "dqn", "gym/A", 0, [1.0, 2.0], settings={"frames": 1000})
    runs = look(tmp_path)
    (run,) = runs.by_key.values()
    run.state = "running"
    (row,) = runs_view(runs).values()
    assert row["speed"] == 100.0
    assert row["left"] == 320  # 36 s of training and 4 s of evaluation for every 100 frames


def test_the_charts_of_a_run_have_scores_of_both_modes_and_every_layer(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run(tmp_path / "run", "noisynet-dqn", "gym/A", 0, [1.0, 2.0], scores_off=[3.0, 4.0])
    (tmp_path / "run.log").write_bytes(b"last words \xff")
    (run,) = look(tmp_path).by_key.values()
    parts = run_view(run)
    assert parts["score"]["x"] == [100.0, 200.0]
    assert [(line["name"], line["y"]) for line in parts["score"]["lines"]] == [
        ("noise on", [1.0, 2.0]),
        ("noise off", [3.0, 4.0]),
    ]
    layers = [line["name"] for line in parts["sigma"]["lines"]]
    assert layers == ["Σ̄ head.q.0", "Σ̄ head.q.2"]
    assert parts["loss"]["lines"][0]["y"] == [0.1, 0.1]
    assert parts["return"]["lines"] == []
    assert ["seed", "0"] in parts["settings"]
    assert parts["log"] == "last words �"
    json.dumps(parts, allow_nan=False)


def test_agents_are_compared_by_mean_and_range_over_seeds(compared: Runs) -> None:
    parts = compare_view(compared, "gym/A", "on", "frames")
    assert (parts["environments"], parts["chosen"]) == (["gym/A", "gym/B"], "gym/A")
    assert parts["chart"]["x"] == [100.0, 200.0]
    drawn = parts["chart"]["lines"]
    lines = {line["name"]: line for line in drawn if "faint" not in line}
    assert list(lines) == ["DQN", "DQN [optimiser.learning_rate=0.5]", "NoisyNet-DQN"]
    noisy = lines["NoisyNet-DQN"]
    assert (noisy["y"], noisy["low"], noisy["high"]) == ([2.0, None], [1.0, None], [3.0, None])
    (ahead,) = [line for line in drawn if "faint" in line]  # the seed that is ahead of the other
    assert (ahead["name"], ahead["y"]) == ("NoisyNet-DQN", [2.0, 3.0])
    assert lines["DQN"]["y"] == [2.0, 2.0]
    assert "low" not in lines["DQN"]  # a single seed has no range
    other = lines["DQN [optimiser.learning_rate=0.5]"]
    assert (other["y"], other["colour"], other["dash"]) == ([0.0, None], lines["DQN"]["colour"], 1)
    (row,) = [row for row in parts["table"] if row["name"] == "NoisyNet-DQN"]
    assert (row["seeds"], row["frames"], row["last"], row["best"]) == (2, 100, 3.0, 3.0)


def test_noise_off_shows_mean_weights_and_agents_without_noise_as_they_are(compared: Runs) -> None:
    parts = compare_view(compared, "gym/A", "off", "frames")
    lines = {line["name"]: line["y"] for line in parts["chart"]["lines"]}  # the seed ahead is last
    assert lines["NoisyNet-DQN"] == [5.0, 6.0]
    assert lines["DQN"] == [2.0, 2.0]


def test_against_hours_a_seed_counts_only_within_its_own_time(compared: Runs) -> None:
    parts = compare_view(compared, "gym/A", "on", "hours")
    x, lines = parts["chart"]["x"], parts["chart"]["lines"]
    assert parts["chart"]["unit"] == "hours"
    assert x[-1] == pytest.approx(76 / 3600, rel=1e-3)  # the second evaluation, when it begins
    noisy, ahead = [line["y"] for line in lines if line["name"] == "NoisyNet-DQN"]
    assert (noisy[0], noisy[-1]) == (None, None)
    assert (ahead[0], ahead[-1]) == (None, 3.0)


def test_an_unknown_environment_shows_the_first_and_no_runs_show_nothing(
    compared: Runs, tmp_path: Path
) -> None:
    assert compare_view(compared, "<b>", "on", "frames")["chosen"] == "gym/A"
    (tmp_path / "empty").mkdir()
    parts = compare_view(look(tmp_path / "empty"), "", "on", "hours")
    assert (parts["environments"], parts["chart"]["lines"], parts["table"]) == ([], [], [])
