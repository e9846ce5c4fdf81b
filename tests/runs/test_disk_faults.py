"""Disks that are full, read-only or limited by the operating system."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from noisynet.runs.checkpoint import Checkpoint, load_newest, save_checkpoint
from noisynet.runs.files import StorageError, write_atomically
from noisynet.runs.metrics import MetricsLog, read_metrics
from noisynet.runs.store import RunFolder
from noisynet.runs.traces import Trace, list_traces, read_traces, write_traces


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "noisynet-test", str(path)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if made.returncode != 0:
        pytest.skip(f"mounting needs root: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def _fill(disk: Path, leave: int) -> Path:
    """Fill `disk` up to `leave` bytes."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    os.truncate(filler, filler.stat().st_size - leave)
    return filler


def _read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def _save(folder: Path, step: int) -> None:
    tensors = {"w": torch.full((64, 64), float(step))}  # 16 KiB
    checkpoint = Checkpoint(step, tensors, {"step": step, "padding": [step] * 3000})
    save_checkpoint(folder, checkpoint, schema="1", identity={})


def _step(folder: Path) -> int:
    checkpoint, skipped = load_newest(folder, schema="1", identity={})
    assert checkpoint is not None
    assert skipped == []
    assert torch.equal(checkpoint.tensors["w"], torch.full((64, 64), float(checkpoint.step)))
    return checkpoint.step


def test_a_checkpoint_on_a_full_disk(small_disk: Path) -> None:
    folder = small_disk / "checkpoints"
    _save(folder, 1)
    _save(folder, 2)
    saved, failures = 2, []
    for pages in range(12):  # full at the directory, each file, or not at all
        filler = _fill(small_disk, leave=4096 * pages)
        try:
            _save(folder, saved + 1)
            saved += 1
        except StorageError as error:
            failures.append(error)
        names = sorted(path.name for path in folder.iterdir())
        assert names == [f"{step:012d}.safetensors" for step in (saved - 1, saved)]
        assert _step(folder) == saved
        filler.unlink()
    assert len(failures) >= 5
    for failure in failures:
        assert failure.errno == errno.ENOSPC
        assert "No space left on device (errno 28); free some space" in str(failure)
    assert saved > 2


def test_logging_on_a_full_disk(small_disk: Path) -> None:
    path = small_disk / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append({"row": 0})
        filler = _fill(small_disk, leave=0)
        rows = 1
        with suppress(StorageError):
            while rows < 10_000:  # the page the file already has takes some rows more
                log.append({"row": rows, "text": "x" * 100})
                rows += 1
        with pytest.raises(StorageError, match=r"add a row to .*metrics\.jsonl: No space left"):
            log.append({"row": rows, "text": "x" * 100})
        assert path.stat().st_size == log.offset()
        assert [row["row"] for row in read_metrics(path)] == list(range(rows))
        filler.unlink()
        log.append({"row": rows, "text": "y" * 8000})  # space is found: logging goes on
    assert [row["row"] for row in read_metrics(path)] == list(range(rows + 1))


def test_status_and_traces_on_a_full_disk_keep_what_was_there(small_disk: Path) -> None:
    run = RunFolder.create_or_open(small_disk / "run", {"agent": "dqn"}, must_match=["agent"])
    run.write_status("running", frames=1)
    actions = np.zeros(20_000, np.uint8)
    trace = Trace("atari/pong", 1, actions, 0.0, 0, 0, "on")
    path, _ = write_traces(run.traces_path, 0, [trace], noise="on")
    filler = _fill(small_disk, leave=0)
    with pytest.raises(StorageError, match=r"status\.json"):
        run.write_status("finished", frames=2)
    with pytest.raises(StorageError, match="safetensors"):
        write_traces(run.traces_path, 0, [trace, trace], noise="on")
    filler.unlink()
    status = run.read_status()
    assert status is not None
    assert status["frames"] == 1
    assert len(read_traces(path)) == 1
    assert [file.path for file in list_traces(run.traces_path)] == [path]
    assert not list(small_disk.rglob("*.tmp-*"))


def test_a_read_only_disk(small_disk: Path) -> None:
    run = RunFolder.create_or_open(small_disk / "run", {"agent": "dqn"}, must_match=["agent"])
    folder = run.checkpoints_path
    _save(folder, 1)
    _save(folder, 2)
    with MetricsLog(run.metrics_path) as log:
        log.append({"row": 0})
    (folder / "000000000002.safetensors").write_bytes(b"")
    (folder / ".000000000003.safetensors.tmp-9").write_bytes(b"")
    _read_only(small_disk)

    for attempt in (
        lambda: _save(folder, 3),
        lambda: MetricsLog(run.metrics_path),
        lambda: run.write_status("running"),
        lambda: run.lock(),
        lambda: write_traces(run.traces_path, 0, [], noise="on"),
        lambda: RunFolder.create_or_open(small_disk / "new", {"a": 1}, must_match=["a"]),
    ):
        with pytest.raises(StorageError, match=r"Read-only file system.*remount") as caught:
            attempt()
        assert caught.value.errno == errno.EROFS

    # All can still be read; the corrupt one is skipped and not renamed.
    RunFolder.create_or_open(run.path, {"agent": "dqn"}, must_match=["agent"])
    assert read_metrics(run.metrics_path) == [{"row": 0}]
    checkpoint, skipped = load_newest(folder, schema="1", identity={})
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert [entry.path.name for entry in skipped] == ["000000000002.safetensors"]


def _in_child(body: Callable[[], None]) -> None:
    """Run `body` in a child process, because limits cannot be raised again."""
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_size_limit_needs_no_root(tmp_path: Path) -> None:
    folder, path = tmp_path / "checkpoints", tmp_path / "metrics.jsonl"
    _save(folder, 1)
    write_atomically(tmp_path / "status.json", b"old")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        with pytest.raises(StorageError, match=r"File too large.*ulimit"):
            _save(folder, 2)
        with pytest.raises(StorageError, match="File too large"):
            write_atomically(tmp_path / "status.json", b"x" * 20_000)
        with MetricsLog(path) as log:
            log.append({"row": 0, "text": "x" * 9_000})
            with pytest.raises(StorageError, match="File too large"):
                log.append({"row": 1, "text": "x" * 9_000})
            log.append({"row": 2})

    _in_child(limited)
    assert _step(folder) == 1
    assert [p.name for p in folder.iterdir()] == ["000000000001.safetensors"]
    assert (tmp_path / "status.json").read_bytes() == b"old"
    assert [row["row"] for row in read_metrics(path)] == [0, 2]


def test_too_many_open_files_are_a_storage_error_and_not_damage(tmp_path: Path) -> None:
    _save(tmp_path, 1)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(7)[1]))
        with pytest.raises(StorageError, match="Too many open files"):
            load_newest(tmp_path, schema="1", identity={})

    _in_child(limited)
    assert _step(tmp_path) == 1
