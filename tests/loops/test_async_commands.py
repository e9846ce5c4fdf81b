"""The commands for runs with workers: what they refuse, show and leave."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from noisynet.cli import app
from noisynet.loops import Health, Phase
from noisynet.loops.terminal import Terminal, workers_line
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


# --- bad commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
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
        (["a3c", "deep_sea/4", "--set", "network.torso=nature"], "36×36"),
    ],
)
def test_bad_commands_are_refused_and_nothing_is_created(
    arguments: list[str], told: str, tmp_path: Path
) -> None:
    ended = invoke("train", *arguments, "--out", str(tmp_path / "out"))
    assert ended.exit_code == 2, ended.output
    assert told in ended.output
    assert not (tmp_path / "out").exists()


# --- a run ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A short run of one worker made by the command, and what that printed."""
    out = tmp_path_factory.mktemp("runs")
    ended = bench.run([*SHORT, "--workers", "1", "--out", str(out)])
    assert ended.status == 0, ended.said
    return out / "deep_sea/4/noisynet-a3c-factorised/seed-0", ended.said


def test_a_run_that_nobody_watches_prints_its_evaluations(trained: tuple[Path, str]) -> None:
    run, said = trained
    lines = said.splitlines()
    pattern = r"frame (10\d|200): score -?\d+\.\d\d with noise (on|off), 10 episodes"
    assert lines[0] == "noisynet-a3c-factorised on deep_sea/4: device cpu, compute auto"
    assert [bool(re.fullmatch(pattern, line)) for line in lines[1:]] == [True] * 4 + [False]
    assert re.fullmatch(rf"finished: 200 frames, score -?\d+\.\d\d, in {run}", lines[-1])


def test_evaluate_plays_the_games_of_the_last_evaluation_again(trained: tuple[Path, str]) -> None:
    run, said = trained
    before = {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
    ended = invoke("evaluate", str(run), "--frames", "40")
    assert ended.exit_code == 0, ended.output
    assert "noisynet-a3c-factorised on deep_sea/4 after 200 frames" in ended.output
    shown = re.findall(r"^noise (?:on|off) +score +(\S+)", ended.output, re.M)
    assert re.findall(r"frame 200: score (\S+)", said) == shown
    assert {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))} == before


def test_list_shows_the_run(trained: tuple[Path, str]) -> None:
    run = trained[0]
    ended = invoke("list", "--out", str(run.parents[3]))
    assert re.fullmatch(rf"finished +200 of 200 frames +score \S+ +{run}\n", ended.output)


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
    assert {"evaluation/noise_on", "evaluation/noise_off"} <= tags


def test_rows_of_training_have_what_a_rollout_taught(trained: tuple[Path, str]) -> None:
    rows = [row for row in read_metrics(trained[0] / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["steps"] // 50 for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert row["loss"] == pytest.approx(row["policy_loss"] + row["value_loss"])  # no bonus
        assert 0 <= row["entropy"] <= 0.6932
        assert set(row["sigma"]) == {"hidden.0", "policy", "value"}


def test_the_same_command_with_other_workers_is_refused_and_says_what_the_folder_has(
    trained: tuple[Path, str],
) -> None:
    out = trained[0].parents[3]
    ended = invoke(*SHORT, "--workers", "2", "--out", str(out))
    assert ended.exit_code == 1
    assert "workers: the folder has 1, this command has 2" in ended.output
    assert "give the command this folder was made with" in ended.output
    assert json.loads((trained[0] / "config.json").read_text())["workers"] == 1


# --- a terminal -----------------------------------------------------------------------------------


def test_the_line_of_workers_has_a_symbol_for_each_and_says_who_died() -> None:
    workers = [
        Health(Phase.RUNNING, 1200, 0),
        Health(Phase.STARTING, 900, 2),
        Health(Phase.RUNNING, 1100, 0),
        Health(Phase.STOPPED, 1000, 1),
    ]
    assert workers_line(workers) == (
        "workers ●◌●‖  ◌ 1 starting, ● 2 running, ‖ 1 stopped; 900 to 1,200 steps each; "
        "died: worker 1 ×2, worker 3 ×1"
    )


def test_a_terminal_shows_progress_and_below_it_the_workers() -> None:
    written = io.StringIO()
    terminal = Terminal(1000, Console(file=written, force_terminal=True, width=150))
    terminal.start()
    terminal.started(0)
    row = {"frames": 400, "score_last": 7.0, "loss": 0.5, "entropy": 1.25, "sigma": {"policy": 0.1}}
    terminal.logged(row, 123.4)
    terminal.watched([Health(Phase.RUNNING, 400, 0)])
    terminal.noted("worker 0 died [twice]")
    terminal.stop()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue())
    assert "400/1,000 frames" in shown
    assert "123 steps/s" in shown
    assert "return 7  loss 0.5  entropy 1.25  Σ̄ policy 0.1000" in shown
    assert "workers ●  ● 1 running; 400 to 400 steps each" in shown
    assert "worker 0 died [twice]" in shown
