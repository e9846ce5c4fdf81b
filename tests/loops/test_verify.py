"""Checking every file of a run; test_bit_flips.py damages all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from loops.short_loops import configure
from noisynet.loops import open_run_folder, train
from noisynet.loops.verify import verify_run
from noisynet.runs import list_traces


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = configure("frames=60", "evaluation.period_frames=30", "evaluation.frames=8")
    path = tmp_path_factory.mktemp("finished") / "run"
    with (folder := open_run_folder(path, config)).lock():
        train(config, folder, keep_replay=True)
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_an_intact_run_has_no_problems_and_is_not_changed(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    count = sum(path.is_file() for path in before)
    assert verify_run(run) == (count, [])
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_traces_are_those_of_their_evaluation(run: Path) -> None:
    first, *_, last = list_traces(run / "traces")
    shutil.copy(first.path, last.path)
    (problem,) = verify_run(run)[1]
    assert f"{last.path} is not an intact file of traces (it is not the one that its" in problem
    last.path.unlink()
    (problem,) = verify_run(run)[1]
    assert f"no file of the evaluation at {last.evaluation}, noise {last.noise}" in problem


def test_every_damaged_file_is_named(run: Path) -> None:
    damaged = [max((run / "checkpoints").iterdir()), run / "timing.jsonl", run / "link"]
    for path in damaged[:2]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    (run / "link").symlink_to("/dev/zero")
    problems = verify_run(run)[1]
    assert len(problems) == 3
    assert [path for path in damaged if not any(str(path) in text for text in problems)] == []


def test_a_replay_that_the_newest_checkpoint_refers_to_is_checked(run: Path) -> None:
    path = run / "replay" / "rewards.bin"
    data = bytearray(path.read_bytes())
    data[4 * 50] ^= 1
    path.write_bytes(data)
    (problem,) = verify_run(run)[1]
    assert "the rows do not match their SHA-256" in problem
    shutil.rmtree(path.parent)
    assert verify_run(run)[1] != []
