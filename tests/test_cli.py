"""The commands as a user gives them: what they refuse, print and leave."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from noisynet import cli
from noisynet.cli import app

PONG = ["noisynet-dqn", "atari/pong"]
SHORT = [
    *("train", "noisynet-dqn", "deep_sea/4", "--frames", "200"),
    *("--set", "learning.starts_steps=60", "--set", "network.hidden=[16]"),
    *("--set", "learning.update_period_steps=4", "--set", "log_period_steps=50"),
    *("--set", "evaluation.period_frames=100", "--set", "evaluation.frames=40"),
]


def command(*arguments: str, interpreter: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`noisynet …` in a process of its own, where nobody watches."""
    return subprocess.run(
        [sys.executable, *interpreter, "-m", "noisynet", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )


def invoke(*arguments: str) -> Result:
    """The same in this process, which has torch already."""
    return CliRunner().invoke(app, arguments)


# --- bad commands ---------------------------------------------------------------------------------

BAD_COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "everything at once": (
        [
            *("noisynet-dqnn", "atari/pongg", "--preset", "papper", "--frames", "many"),
            *("--set", "learning.discont=0.9", "--set", "learning.batch_size=big"),
            *("--set", "learning.discount=1.5", "--set", "network"),
        ],
        [
            "unknown agent 'noisynet-dqnn'.*did you mean 'noisynet-dqn'",
            "atari has no game 'pongg'.*'atari/pong'",
            "unknown preset 'papper'.*did you mean 'paper'",
            "--frames expected a positive whole number.*'many'",
            "unknown key 'learning.discont'; did you mean 'learning.discount'",
            "learning.batch_size: .*integer.*'big'",
            "learning.discount: .*less than 1.*1.5",
            "--set expected key=value, got 'network'",
        ],
    ),
    "another family": (["dqn", "minatr/breakout"], ["'minatr/breakout'.*'minatar/breakout'"]),
    "no family": (["dqn", "breakout"], ["'breakout'.*Did you mean '(atari|minatar)/breakout'"]),
    "out of range": (
        [*PONG, "--seed=-1", "--frames", "0", "--set", "num_envs=0"],
        ["seed: .*greater than or equal to 0.*-1", "--frames .*'0'", "num_envs: .*got 0"],
    ),
    "wrong types": (
        [*PONG, "--set", "network.hidden=wide", "--set", "learning.double_q=perhaps"],
        ["network.hidden: .*'wide'", "learning.double_q: .*'perhaps'"],
    ),
    "a noisy agent with ε": (
        [*PONG, "--set", "exploration.final=0.1"],
        ["unknown key 'exploration.final'"],
    ),
    "a noisy agent that is greedy": (
        [*PONG, "--set", "exploration.kind=epsilon-greedy"],
        ["noisynet-dqn does not explore by epsilon-greedy"],
    ),
    "a replay that is too small": (
        [*PONG, "--set", "replay.capacity_steps=10"],
        [r"replay.capacity_steps \(10\) is below learning.batch_size \(32\)", "starts_steps"],
    ),
    "noise of one episode for several environments": (
        [*PONG, "--set", "exploration.redraw=episode", "--set", "num_envs=4"],
        ["exploration.redraw=episode expects num_envs=1, got 4.*set num_envs=1, or"],
    ),
    "a kind that is not": (
        [*PONG, "--set", "replay.kind=prioritized"],
        ["replay.*'prioritized'; did you mean 'prioritised'"],
    ),
    "a contradiction beside a wrong choice": (
        [*PONG, "--set", "replay.capacity_steps=10", "--set", "exploration.noise=factorized"],
        [
            r"replay.capacity_steps \(10\) is below learning.batch_size \(32\)",
            "exploration.noise: .*'factorized'; did you mean 'factorised'",
        ],
    ),
}


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_a_bad_command_lists_every_error_without_torch_and_creates_nothing(
    name: str, tmp_path: Path
) -> None:
    arguments, expected = BAD_COMMANDS[name]
    out = tmp_path / "out"
    ended = command("train", *arguments, "--out", str(out), interpreter=("-X", "importtime"))
    told = [line for line in ended.stderr.splitlines() if not line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert ended.returncode == 2, told
    for pattern in expected:
        assert any(re.search(pattern, line) for line in told), f"{pattern} is not in {told}"
    assert "Traceback" not in ended.stderr
    assert "noisynet.config" in imported
    assert not imported & {"torch", "scipy", "gymnasium", "ale_py"}
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "dqn", "gym/CartPole-v9"], "CartPole-v9"),
        (["train", "dqn", "deep_sea/4", "--set", "environment_options.bogus=1"], "bogus"),
        (["train", "dqn", "deep_sea/4", "--set", "network.torso=nature"], "36×36"),
        (["train", "dqn", "deep_sea/4", "--device", "quantum"], "--device"),
    ],
)
def test_what_only_shows_when_it_is_made_is_refused_before_anything_is_created(
    arguments: list[str], told: str, tmp_path: Path
) -> None:
    ended = invoke(*arguments, "--out", str(tmp_path / "out"))
    assert ended.exit_code == 2, ended.output
    assert told in ended.output
    assert isinstance(ended.exception, SystemExit)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments", [["trian"], ["train", "dqn"], ["train", *PONG, "--seed", "x"], ["evaluate"]]
)
def test_a_command_that_cannot_be_parsed_exits_2(arguments: list[str]) -> None:
    ended = invoke(*arguments)
    assert ended.exit_code == 2
    assert isinstance(ended.exception, SystemExit)


def test_help_does_not_import_torch() -> None:
    ended = command("--help", interpreter=("-X", "importtime"))
    assert ended.returncode == 0
    for name in ("train", "evaluate", "watch", "audit", "list", "doctor"):
        assert re.search(rf"^\s*{name}\b", ended.stdout, re.MULTILINE)
    assert not re.search(r"\| +torch$", ended.stderr, re.MULTILINE)


# --- a run ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A short run made by the command, and what that printed."""
    out = tmp_path_factory.mktemp("runs")
    ended = command(*SHORT, "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    return out / "deep_sea/4/noisynet-dqn/seed-0", ended.stderr


def test_a_run_that_nobody_watches_prints_its_evaluations_and_no_progress(
    trained: tuple[Path, str],
) -> None:
    run, said = trained
    first, *lines = said.splitlines()
    assert first == "noisynet-dqn on deep_sea/4: device cpu, compute torch, 1 thread"
    pattern = r"frame (100|200): score -?\d+\.\d\d with noise (on|off), 10 episodes"
    assert [bool(re.fullmatch(pattern, line)) for line in lines] == [True] * 4 + [False]
    assert re.fullmatch(r"finished: 200 frames, score -?\d+\.\d\d, in .*seed-0", lines[-1])
    assert lines[-1].endswith(str(run))
    assert "\x1b" not in said
    assert "\r" not in said


def test_tensorboard_events_can_be_read(trained: tuple[Path, str]) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = events.EventAccumulator(str(trained[0] / "tensorboard"))
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    assert {"train/loss", "train/score_last", "train/score_mean_100"} <= set(tags)
    assert {"evaluation/noise_on", "evaluation/noise_off", "sigma/head.q.0"} <= set(tags)
    assert [event.step for event in accumulator.Scalars("evaluation/noise_on")] == [100, 200]
    assert [event.step for event in accumulator.Scalars("sigma/head.q.0")] == [50, 100, 150, 200]


def test_no_tensorboard_writes_none(tmp_path: Path) -> None:
    ended = invoke(*SHORT, "--out", str(tmp_path), "--name", "run", "--no-tensorboard")
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "run" / "status.json").exists()
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_evaluate_shows_noise_on_and_off_and_leaves_the_run_alone(
    trained: tuple[Path, str],
) -> None:
    run = trained[0]
    before = {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
    ended = invoke("evaluate", str(run), "--frames", "40")
    assert ended.exit_code == 0, ended.output
    assert "noisynet-dqn on deep_sea/4 after 200 frames" in ended.output
    shown = re.findall(
        r"^noise (on|off) +score +(\S+) +best +\S+ +episodes 10$", ended.output, re.M
    )
    assert [noise for noise, _ in shown] == ["on", "off"]
    # The training's own last evaluation played the same games with the same noise.
    assert re.findall(r"frame 200: score (\S+)", trained[1]) == [score for _, score in shown]
    assert {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))} == before


def test_evaluate_of_no_run_says_what_was_expected(tmp_path: Path) -> None:
    ended = invoke("evaluate", str(tmp_path / "nothing"))
    assert ended.exit_code == 1
    assert "expected a run folder with a config.json" in ended.output
    assert not (tmp_path / "nothing").exists()


def test_list_shows_every_run_with_its_state(trained: tuple[Path, str]) -> None:
    run = trained[0]
    ended = invoke("list", "--out", str(run.parents[3]))
    assert ended.exit_code == 0
    assert re.fullmatch(rf"finished +200 of 200 frames +score \S+ +{run}\n", ended.output)


def test_list_without_runs_says_how_to_start_one(tmp_path: Path) -> None:
    ended = invoke("list", "--out", str(tmp_path))
    assert ended.exit_code == 0
    assert "noisynet train noisynet-dqn minatar/breakout" in ended.output


# --- audit and doctor -----------------------------------------------------------------------------


def test_audit_of_a_noisy_agent_passes() -> None:
    ended = invoke("audit", "noisynet-dqn", "deep_sea/4")
    assert ended.exit_code == 0, ended.output
    assert "FAIL" not in ended.output


def test_audit_of_a_plain_agent_is_refused() -> None:
    ended = invoke("audit", "dqn", "deep_sea/4")
    assert ended.exit_code == 2
    assert "expected a noisy agent, got dqn, which explores by epsilon-greedy" in ended.output


def test_the_doctor_finds_this_installation_well() -> None:
    ended = invoke("doctor")
    assert ended.exit_code == 0, ended.output
    assert "FAIL" not in ended.output
    assert "trained, stopped and continued on deep_sea/5" in ended.output
    assert "2 workers started and trained" in ended.output


def test_watch_says_what_the_video_does_not_show(trained: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    for trace in (run / "traces").glob("*-on.safetensors"):
        trace.unlink()
    video = tmp_path / "game.mp4"
    ended = invoke("watch", str(run), "-o", str(video), "--noise", "on")
    assert ended.exit_code == 0, ended.output
    assert "noise off" in ended.output
    assert video.stat().st_size > 0


def test_only_a_second_ctrl_c_ends_a_run_at_once() -> None:
    with cli._stopping() as stop:
        assert not stop()
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
            assert stop()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
