"""The command line for runs with workers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from noisynet.cli import app
from noisynet.runs import read_metrics

if TYPE_CHECKING:
    from loops.conftest import Bench

SHORT = [
    *("train", "noisynet-a3c-factorised", "deep_sea/4", "--frames", "200"),
    *("--set", "envs_per_worker=1", "--set", "learning.rollout_steps=5"),
    *("--set", "network.hidden=[16]", "--set", "log_period_steps=50"),
    *("--set", "evaluation.period_frames=100", "--set", "evaluation.frames=40"),
]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


# --- invalid commands ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["dqn", "deep_sea/4", "--workers", "4"],
            "--workers is for a3c, noisynet-a3c, noisynet-a3c-factorised; dqn learns in one "
            "process: leave it out, or use several environments with --set num_envs=N",
        ),
        (["noisynet-dueling", "deep_sea/4", "--patience", "9"], "--patience is for a3c"),
        (["a3c", "deep_sea/4", "--workers", "0"], "--workers expected a number above 0, got 0"),
        (["a3c", "deep_sea/4", "--patience", "nan"], "--patience expected a number above 0"),
        (["a3c", "deep_sea/4", "--set", "workers=0"], "workers: "),
        (["a3c", "deep_sea/4", "--set", "num_envs=2"], "unknown key 'num_envs'"),
        (["a3c", "deep_sea/4", "--set", "network.torso=nature"], "at least 36 pixels a side"),
    ],
)
def test_invalid_commands_fail_and_create_nothing(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    ended = invoke("train", *arguments, "--out", str(tmp_path / "out"))
    assert ended.exit_code == 2, ended.output
    assert message in ended.output
    assert not (tmp_path / "out").exists()


# --- a run ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A short run with one worker, and the output of its command."""
    out = tmp_path_factory.mktemp("runs")
    ended = bench.run([*SHORT, "--workers", "1", "--out", str(out)])
    assert ended.status == 0, ended.said
    return out / "deep_sea/4/noisynet-a3c-factorised/seed-0", ended.said


def test_a_run_without_a_terminal_prints_its_settings_and_evaluations(
    trained: tuple[Path, str],
) -> None:
    run, said = trained
    first, *lines = said.splitlines()
    assert first == (
        "noisynet-a3c-factorised on deep_sea/4: device cpu, compute kernels, 1 thread, 200 frames, "
        f"in {run}, 0.0 MB on disk"
    )
    pattern = r"frame (10\d|200): score -?\d+\.\d\d with noise (on|off), 10 episodes"
    assert [bool(re.fullmatch(pattern, line)) for line in lines] == [True] * 4 + [False]
    assert re.fullmatch(rf"finished: 200 frames, score -?\d+\.\d\d, in {run}", lines[-1])


def test_evaluate_repeats_the_last_evaluation(trained: tuple[Path, str]) -> None:
    run, said = trained
    before = {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
    ended = invoke("evaluate", str(run), "--frames", "40")
    assert ended.exit_code == 0, ended.output
    assert "noisynet-a3c-factorised on deep_sea/4 after 200 frames" in ended.output
    shown = re.findall(r"^noise (?:on|off) +score +(\S+)", ended.output, re.M)
    assert re.findall(r"frame 200: score (\S+)", said) == shown
    assert {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))} == before


def test_runs_show_the_run(trained: tuple[Path, str]) -> None:
    run = trained[0]
    _, row = invoke("runs", "--out", str(run.parents[3])).output.splitlines()
    assert re.fullmatch(rf"finished +200 +200 +-?\d+\.\d\d +\S+ +{run}", row)


def test_watch_renders_an_episode_of_the_run(trained: tuple[Path, str], tmp_path: Path) -> None:
    pytest.importorskip("av")
    ended = invoke("watch", str(trained[0]), "-o", str(tmp_path / "game.mp4"))
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "game.mp4").stat().st_size > 0


def test_tensorboard_has_the_curves_of_an_actor_critic(trained: tuple[Path, str]) -> None:
    events: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = events.EventAccumulator(str(trained[0] / "tensorboard"))
    accumulator.Reload()
    tags = set(accumulator.Tags()["scalars"])
    assert {f"train/{name}" for name in ("loss", "policy_loss", "value_loss", "entropy")} <= tags
    assert {"train/dropped_updates", "train/worker_deaths", "sigma/policy"} <= tags
    assert {"evaluation/score", "evaluation/score_noise_on", "evaluation/score_noise_off"} <= tags


def test_rows_have_the_measures_of_rollouts(trained: tuple[Path, str]) -> None:
    rows = [row for row in read_metrics(trained[0] / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["steps"] // 50 for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert row["loss"] == pytest.approx(row["policy_loss"] + row["value_loss"])  # no bonus
        assert 0 <= row["entropy"] <= 0.6932
        assert set(row["sigma"]) == {"hidden.0", "policy", "value"}


def test_the_same_command_with_another_number_of_workers_fails(
    trained: tuple[Path, str],
) -> None:
    out = trained[0].parents[3]
    ended = invoke(*SHORT, "--workers", "2", "--out", str(out))
    assert ended.exit_code == 1
    assert "workers: the folder has 1, this command has 2" in ended.output
    assert "give the command that the run was started with" in ended.output
    assert json.loads((trained[0] / "config.json").read_text())["workers"] == 1
