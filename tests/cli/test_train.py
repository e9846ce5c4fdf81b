"""`noisynet train`: what it prints and writes."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from noisynet.runs import EXIT_LOCKED, RunFolder

from .calling import SHORT, invoke


def test_without_a_terminal_a_run_prints_its_evaluations_and_no_progress(
    trained: tuple[Path, str],
) -> None:
    run, said = trained
    lines = said.splitlines()
    pattern = r"frame (100|200): score -?\d+\.\d\d with noise (on|off), 10 episodes"
    assert lines[0] == (
        "noisynet-dqn on deep_sea/4: device cpu, compute kernels, 1 thread, 200 frames, in "
        f"{run}, 0.1 MB on disk"
    )
    assert all(re.fullmatch(pattern, line) for line in lines[1:-1])
    assert len(lines[1:-1]) == 4
    assert re.fullmatch(r"finished: 200 frames, score -?\d+\.\d\d, in .*seed-0", lines[-1])
    assert lines[-1].endswith(str(run))
    assert "\x1b" not in said
    assert "\r" not in said


def test_tensorboard_events_can_be_read(trained: tuple[Path, str]) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = events.EventAccumulator(str(trained[0] / "tensorboard"))
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    assert {"train/loss", "train/return", "train/return_mean_100"} <= set(tags)
    assert {"train/length_mean_100", "train/steps_per_second", "sigma/head.q.0"} <= set(tags)
    assert {"evaluation/score_noise_on", "evaluation/score_noise_off"} <= set(tags)
    assert [event.step for event in accumulator.Scalars("evaluation/score")] == [100, 200]
    assert [event.step for event in accumulator.Scalars("sigma/head.q.0")] == [50, 100, 150, 200]


def test_no_tensorboard_writes_none(tmp_path: Path) -> None:
    ended = invoke(*SHORT, "--out", str(tmp_path), "--name", "run", "--no-tensorboard")
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "run" / "status.json").exists()
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_run_locked_by_another_process_has_its_own_exit_code(trained: tuple[Path, str]) -> None:
    run = trained[0]
    with RunFolder(run).lock():
        ended = invoke(*SHORT, "--out", str(run.parents[3]))
    assert ended.exit_code == EXIT_LOCKED
    assert f"process {os.getpid()}" in ended.output


def test_without_the_package_a_run_trains_without_tensorboard_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    ended = invoke(*SHORT, "--out", str(tmp_path), "--name", "run")
    assert ended.exit_code == 0, ended.output
    assert ended.output.count("training without TensorBoard") == 1
    assert 'pip install "noisynet[tensorboard]"' in ended.output
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_the_number_of_threads_is_that_of_the_run_unless_another_is_given(tmp_path: Path) -> None:
    run = [*SHORT, "--out", str(tmp_path), "--name", "run", "--no-tensorboard"]
    assert invoke(*run, "--set", "threads=1").exit_code == 0
    resumed = invoke(*run)
    assert resumed.exit_code == 0, resumed.output
    assert json.loads((tmp_path / "run" / "config.json").read_text())["threads"] == 1
    other = invoke(*run, "--set", "threads=2")
    assert other.exit_code == 0, other.output
    assert "was started with 1 threads and now uses 2: results may differ" in other.output


def test_an_unknown_tracker_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    ended = invoke(*SHORT, "--out", str(tmp_path / "runs"), "--track", "aim:mine")
    assert ended.exit_code == 2
    assert "--track expected wandb, trackio or mlflow, got 'aim'" in ended.output
    assert not list(tmp_path.iterdir())


def test_a_tracker_whose_package_is_missing_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    ended = invoke(*SHORT, "--out", str(tmp_path / "runs"), "--track", "trackio")
    assert ended.exit_code == 2
    assert 'pip install "noisynet[trackio]"' in ended.output
    assert not list(tmp_path.iterdir())
