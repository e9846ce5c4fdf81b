"""Following run folders: appended rows, logs cut back, states, and what is refused."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from noisynet.dashboard import read_runs
from noisynet.dashboard.read_runs import POINTS, LogReader, Runs, Samples, WatchedRun
from noisynet.runs import RunDamaged, RunError
from noisynet.runs.lock import process_start

from .conftest import WriteRun


def only(runs: Runs) -> WatchedRun:
    runs.refresh()
    (run,) = runs.by_key.values()
    return run


def append(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def train_row(frames: int, **more: Any) -> dict[str, Any]:
    return {"kind": "train", "frames": frames, "score_mean_100": 1.0, "loss": 0.5, **more}


# --- logs ----------------------------------------------------------------------------------------


def test_a_log_is_read_from_where_the_last_look_ended(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = LogReader(path)
    assert reader.read() == (False, [])
    path.write_bytes(b"one\ntw")
    assert reader.read() == (False, [(1, b"one")])
    assert reader.read() == (False, [])
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert reader.read() == (False, [(2, b"two"), (3, b"three")])


@pytest.mark.parametrize("content", [b"one\n", b"other\n" * 100])
def test_a_log_that_was_cut_back_or_rewritten_is_read_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    reader = LogReader(path)
    reader.read()
    path.write_bytes(content)
    assert reader.read() == (True, list(enumerate(content.split(b"\n")[:-1], start=1)))


def test_a_long_log_is_read_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_runs, "_CHUNK_BYTES", 10)
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthree\n")
    reader = LogReader(path)
    assert (reader.read(), reader.behind) == ((False, [(1, b"one"), (2, b"two")]), True)
    assert (reader.read(), reader.behind) == ((False, [(3, b"three")]), False)
    path.write_bytes(b"a line without an end")
    with pytest.raises(RunDamaged, match="a line of more than 10 bytes"):
        reader.read()


@pytest.mark.parametrize("batch", [1, 7, 4000, 20_000])
def test_samples_stay_bounded_and_keep_every_nth_row(batch: int) -> None:
    samples = Samples()
    for start in range(0, 20_000, batch):
        for frames in samples.pick(range(start, start + batch)):
            samples.add(frames, {"value": 2 * frames})
    assert POINTS <= len(samples.x) <= 2 * POINTS
    step = samples.x[1] - samples.x[0]
    assert list(samples.x) == [step * index for index in range(len(samples.x))]
    assert list(samples.columns["value"]) == [2 * x for x in samples.x]


def test_a_value_that_comes_later_is_missing_before() -> None:
    samples = Samples()
    samples.add(1, {"a": 1})
    samples.add(2, {"b": None})
    samples.add(3, {"b": 3})
    assert samples.columns["a"][0] == 1
    assert [math.isnan(value) for value in samples.columns["b"]] == [True, True, False]


# --- runs ----------------------------------------------------------------------------------------


def test_only_appended_rows_are_read_and_added(
    tmp_path: Path, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", "noisynet-dqn", "gym/A", 0, [1.0, 2.0])
    runs = Runs([tmp_path])
    run = only(runs)
    assert list(run.evaluations["on"].columns["score"]) == [1.0, 2.0]
    assert run.seconds == 80.0
    read: list[int] = []
    pread = os.pread

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        read.append(len(data := pread(descriptor, size, offset)))
        return data

    monkeypatch.setattr(os, "pread", counting)
    before = run.version
    runs.refresh()
    assert (read, run.version) == ([], before)  # nothing has changed
    row = {"kind": "evaluation", "frames": 300, "noise": "on", "score": 5.0}
    append(folder / "metrics.jsonl", train_row(300), row)
    runs.refresh()
    assert list(run.evaluations["on"].columns["score"]) == [1.0, 2.0, 5.0]
    assert run.frames == 300
    assert run.version > before
    assert sum(read) < 500  # a few bytes to recognise the file, and the new rows


def test_a_resumed_run_that_cut_its_log_back_loses_the_dropped_rows(
    tmp_path: Path, write_run: WriteRun
) -> None:
    folder = write_run(tmp_path / "run", "dqn", "gym/A", 0, [1.0, 2.0, 3.0])
    runs = Runs([tmp_path])
    run = only(runs)
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_bytes(b"".join(lines[:2]))
    append(folder / "timing.jsonl", {"kind": "train", "frames": 150, "seconds": 10.0})
    runs.refresh()
    assert list(run.evaluations["off"].columns["score"]) == [1.0]
    assert list(run.clock.x) == [100.0, 150.0]  # frames are repeated, and the time goes on
    assert run.seconds == 130.0


@pytest.mark.parametrize("state", ["finished", "failed", "interrupted"])
def test_the_state_is_that_of_the_status(tmp_path: Path, write_run: WriteRun, state: str) -> None:
    write_run(tmp_path / "run", "dqn", "gym/A", 0, [1.0], state=state)
    assert only(Runs([tmp_path])).state == state


def test_a_running_run_is_killed_when_its_process_is_gone_and_stalled_when_it_is_silent(
    tmp_path: Path, write_run: WriteRun
) -> None:
    folder = write_run(tmp_path / "run", "dqn", "gym/A", 0, [1.0], state="running")
    with subprocess.Popen(["sleep", "20"]) as process:
        owner = {"pid": process.pid, "host": socket.gethostname(), "since": "now"}
        owner["started"] = process_start(process.pid)
        (folder / "run.owner").write_text(json.dumps(owner))
        runs = Runs([tmp_path])
        run = only(runs)
        assert run.state == "running"
        assert run.owner is not None
        assert run.owner.pid == process.pid
        run.poll(time.time() + 3600, follow=True)
        assert run.state == "stalled"
        process.kill()
    runs.refresh()
    assert run.state == "killed"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("config.json", "{", "is not JSON"),
        ("config.json", "[]", "not an object"),
        ("config.json", '{"agent": []}', "agent: Input should be a valid string"),
        ("config.json", "[" * 100_000, "recursion"),
        ("config.json", '{"made_by": 3}', "agent: Field required"),
        ("status.json", '{"frames": 1' + 400 * "0" + "}", "an integer that is not within"),
        ("status.json", '{"frames": "many"}', "frames: Input should be a valid integer"),
        ("status.json", '{"state": "running", "frames": 1e99}', "frames: "),
        ("metrics.jsonl", '{"kind":"train"!}\n', "line 1 of "),
        ("metrics.jsonl", '{"kind":"train","frames":1,"loss":1e308}\n', "loss: "),
        ("metrics.jsonl", '{"kind":"episode"}\n{"kind":"x"}\n', "line 2 of "),
        ("timing.jsonl", "3\n", "is not a row: Input should be an object"),
    ],
)
def test_a_damaged_run_says_why_and_hides_no_other(
    tmp_path: Path, write_run: WriteRun, name: str, content: str, told: str
) -> None:
    folder = write_run(tmp_path / "bad", "dqn", "gym/A", 0, [1.0])
    write_run(tmp_path / "good", "dqn", "gym/A", 1, [1.0])
    whole = (folder / name).read_text()
    (folder / name).write_text(content)
    runs = Runs([tmp_path])
    for _ in range(3):  # it stays so
        runs.refresh()
        bad, good = runs.by_key.values()
        assert (bad.state, good.state) == ("unreadable", "finished")
        assert told in bad.error
    (folder / name).write_text(whole)
    runs.refresh()
    assert (bad.state, bad.error) == ("finished", "")
    assert list(bad.evaluations["off"].columns["score"]) == [1.0]
    assert bad.seconds == 40.0


def test_symbolic_links_are_not_followed(tmp_path: Path, write_run: WriteRun) -> None:
    outside = write_run(tmp_path / "outside", "dqn", "gym/A", 0, [1.0])
    inside = write_run(tmp_path / "runs" / "run", "dqn", "gym/A", 1, [1.0])
    (tmp_path / "runs" / "linked").symlink_to(outside)
    (tmp_path / "runs" / "run.log").symlink_to(outside / "config.json")
    runs = Runs([tmp_path / "runs"])
    run = only(runs)
    assert run.name == "run"
    with pytest.raises(RunError, match="symbolic link"):
        run.log_tail()
    for name in ("metrics.jsonl", "status.json", "config.json"):
        (inside / name).unlink()
        (inside / name).symlink_to(outside / name)
        runs.refresh()
        assert run.state == "unreadable"
        assert "symbolic link" in run.error


def test_a_log_outside_of_the_given_folder_is_not_shown(
    tmp_path: Path, write_run: WriteRun
) -> None:
    folder = write_run(tmp_path / "run", "dqn", "gym/A", 0, [1.0])
    (tmp_path / "run.log").write_text("words")
    assert only(Runs([tmp_path])).log_tail() == "words"
    assert only(Runs([folder])).log_tail() == ""


def test_a_pipe_does_not_block(tmp_path: Path, write_run: WriteRun) -> None:
    folder = write_run(tmp_path / "run", "dqn", "gym/A", 0, [1.0])
    (folder / "metrics.jsonl").unlink()
    os.mkfifo(folder / "metrics.jsonl")
    assert "expected a regular file" in only(Runs([tmp_path])).error


def test_new_runs_appear_and_removed_ones_disappear(
    tmp_path: Path, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_runs, "_SEARCH_SECONDS", 0.0)
    runs = Runs([tmp_path])
    runs.refresh()
    assert (runs.by_key, runs.behind) == ({}, False)
    folder = write_run(tmp_path / "run", "dqn", "gym/A", 0, [1.0])
    versions = [runs.version]
    time.sleep(0.05)  # a search is not repeated at once
    assert only(runs).name == "run"
    versions.append(runs.version)
    folder.rename(tmp_path / "other")
    time.sleep(0.05)
    assert only(runs).name == "other"
    versions.append(runs.version)
    assert versions == sorted(set(versions))


def test_without_time_the_logs_are_left_for_the_next_look(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for seed in range(3):
        write_run(tmp_path / f"run-{seed}", "dqn", "gym/A", seed, [1.0])
    runs = Runs([tmp_path])
    runs.refresh(seconds=0.0)
    assert runs.behind
    assert [run.state for run in runs.by_key.values()] == ["finished"] * 3
    assert not any(run.evaluations for run in runs.by_key.values())
    last = list(runs.by_key)[-1]
    runs.refresh(first=last, seconds=0.0)
    assert [key for key, run in runs.by_key.items() if run.evaluations] == [last]
    runs.refresh(seconds=10.0)
    assert not runs.behind
    assert all(run.evaluations for run in runs.by_key.values())
