"""Damaged files and full or read-only disks: no result is lost, no run starts again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loops.conftest import ACT, CHECKPOINT
from noisynet.runs import RunFolder, read_metrics

if TYPE_CHECKING:
    from loops.conftest import Bench


def _generations(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("[0-9]" * 12 + ".safetensors"))


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[2 * len(data) // 3] ^= 4
    path.write_bytes(data)


def _flip_all(path: Path) -> None:
    path.write_bytes(bytes(value ^ 4 for value in path.read_bytes()))


# --- rewards --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "clip", "message", "within"),
    [
        ("Nan-v0", "false", "expected a finite reward from {name}, got nan; fix ", 0),
        ("Nan-v0", "true", "expected a finite reward from {name}, got nan; fix ", 0),
        ("Infinite-v0", "false", "expected a finite reward from {name}, got inf; fix ", 0),
        ("Infinite-v0", "true", "expected a finite reward from {name}, got inf; fix ", 0),
        # Each can be stored, but the sum over a batch with four of them is infinite.
        ("Huge-v0", "false", "expected a finite loss at update ", 30),
    ],
)
def test_invalid_rewards_stop_the_run_and_keep_a_finite_checkpoint(
    fault: str,
    clip: str,
    message: str,
    within: int,
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)  # the forked process has it from its script
    name = f"gym/faulty_environments:{fault}"
    command = bench.command("deep_sea", tmp_path, "--set", f"learning.clip_rewards={clip}")
    command[command.index("deep_sea/4")] = name
    command += ["--set", "evaluation.period_frames=1000"]
    command += ["--set", 'environment_options.arguments={"from_step": 150}']
    for _ in range(2):  # and again from that checkpoint
        ended = bench.run(command)
        assert ended.status == 1, ended.said
        assert message.format(name=name) in ended.said
        assert "Traceback" not in ended.said
        status = RunFolder(tmp_path / "run").read_status()
        assert status is not None
        assert status["state"] == "failed"
        assert message.format(name=name) in status["reason"]
        assert 149 <= status["frames"] <= 149 + within
        checkpoint = bench.newest(tmp_path / "run")
        assert 100 <= checkpoint.step <= status["frames"]
        assert all(bool(tensor.isfinite().all()) for tensor in checkpoint.tensors.values())


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [_truncate, _empty, _flip_a_bit])
def test_a_damaged_newest_checkpoint_is_renamed_and_the_previous_one_used(
    damage: Callable[[Path], None], bench: Bench, run: Path
) -> None:
    before, newest = _generations(run)
    damage(newest)
    ended = bench.run(bench.command("deep_sea", run.parent))
    assert ended.status == 0, ended.said
    assert (
        f"checkpoint {int(newest.stem)} is damaged and was renamed to {newest.name}.corrupt: it "
        "does not match its SHA-256"
    ) in ended.said
    assert f"resuming from frame {int(before.stem)}" in ended.said
    assert newest.with_name(f"{newest.name}.corrupt").exists()
    assert bench.remains(run) == bench.reference("deep_sea")


def test_a_run_with_damaged_checkpoints_only_never_starts_again(bench: Bench, run: Path) -> None:
    for generation in _generations(run):
        _truncate(generation)
    rows = (run / "metrics.jsonl").read_bytes()
    for _ in range(2):  # nor the second time
        ended = bench.run(bench.command("deep_sea", run.parent))
        assert ended.status == 1
        assert "has checkpoints, but none is usable" in ended.said
        assert "Traceback" not in ended.said
        assert (run / "metrics.jsonl").read_bytes() == rows


def test_a_run_without_its_checkpoints_never_starts_again(bench: Bench, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    rows = (run / "metrics.jsonl").read_bytes()
    ended = bench.run(bench.command("deep_sea", run.parent))
    assert ended.status == 1
    assert "has metrics but no checkpoints" in ended.said
    assert (run / "metrics.jsonl").read_bytes() == rows


@pytest.mark.parametrize(
    ("damage", "name", "message"),
    [
        (_flip_all, "frames.bin", "do not match their SHA-256"),
        (_flip_all, "serials.bin", "are not all stored"),
        (_empty, "rewards.bin", "rewards.bin should have"),
        (Path.unlink, "frames.bin", "frames.bin should have"),
        (_empty, "layout.json", "layout.json should describe the replay files"),
    ],
)
def test_a_damaged_replay_is_detected(
    damage: Callable[[Path], None], name: str, message: str, bench: Bench, run: Path
) -> None:
    damage(run / "replay" / name)
    ended = bench.run(bench.command("deep_sea", run.parent))
    assert ended.status == 1
    assert message in ended.said
    assert str(run / "replay") in ended.said
    assert "Traceback" not in ended.said
    assert len(_generations(run)) == 2


def test_missing_rows_of_metrics_are_detected(bench: Bench, run: Path) -> None:
    _truncate(run / "metrics.jsonl")
    ended = bench.run(bench.command("deep_sea", run.parent))
    assert ended.status == 1
    assert "metrics.jsonl" in ended.said
    assert "rows are missing" in ended.said


# --- disks ----------------------------------------------------------------------------------------


def _mount(*arguments: str) -> None:
    try:
        made = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if made.returncode != 0:
        pytest.skip(f"mounting needs root: {made.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    path = tmp_path / "disk"
    path.mkdir()
    _mount("-t", "tmpfs", "-o", "size=2m", "noisynet-test", str(path))
    yield path
    subprocess.run(["umount", str(path)], check=True)


def _fill(disk: Path, leave: int) -> Path:
    """Fill `disk` up to `leave` bytes."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    os.truncate(filler, filler.stat().st_size - leave)
    return filler


@pytest.mark.parametrize("leave", [0, 3 * 4096])
def test_a_full_disk_stops_the_run_and_loses_nothing(
    leave: int, bench: Bench, small_disk: Path
) -> None:
    command, run = bench.command("deep_sea", small_disk), small_disk / "run"
    started = bench.start(command, ACT, 200)
    started.until_stopped()
    filler = _fill(small_disk, leave)
    started.go_on()
    ended = started.wait()
    assert ended.status == 1, ended.said
    assert "No space left on device (errno 28); free some space on that disk" in ended.said
    assert "to resume from the last good checkpoint" in ended.said
    assert "Traceback" not in ended.said
    assert 0 < bench.newest(run).step <= 200  # intact, and nothing else is corrupt
    assert read_metrics(run / "metrics.jsonl")
    filler.unlink()
    ended = bench.run(command)
    assert ended.status == 0, ended.said
    assert bench.remains(run) == bench.reference("deep_sea")


def test_a_disk_that_is_full_at_one_checkpoint_does_not_stop_the_run(
    bench: Bench, small_disk: Path
) -> None:
    command, run = bench.command("deep_sea", small_disk), small_disk / "run"
    started = bench.start(command, CHECKPOINT, 3, 4)
    started.until_stopped()
    before = bench.newest(run).step
    filler = _fill(small_disk, leave=2 * 4096)
    started.go_on()
    said = started.until_stopped()
    assert "cannot write the checkpoint" in said
    assert "the previous checkpoint is kept and training continues" in said
    assert bench.newest(run).step == before
    filler.unlink()
    started.go_on()
    ended = started.wait()
    assert ended.status == 0, ended.said
    assert bench.remains(run) == bench.reference("deep_sea")


def test_a_run_never_finishes_without_its_last_checkpoint(bench: Bench, small_disk: Path) -> None:
    """The one after the last evaluation fails, and so does the second attempt."""
    budget = ("--frames", "300")
    command, run = bench.command("deep_sea", small_disk, *budget), small_disk / "run"
    reference = bench.reference("deep_sea", *budget)
    assert bench.run(command, (ACT, 290), signal.SIGTERM).status == 143
    assert bench.newest(run).step == 290
    started = bench.start(command, CHECKPOINT, 1)
    started.until_stopped()
    filler = _fill(small_disk, leave=2 * 4096)
    started.go_on()
    ended = started.wait()
    assert ended.status == 1, ended.said
    assert "finished" not in ended.said
    assert bench.newest(run).step == 290
    filler.unlink()
    assert bench.run(command).status == 0
    assert bench.remains(run) == reference


def test_a_disk_without_space_for_the_first_checkpoint_stops_the_run_at_once(
    bench: Bench, small_disk: Path
) -> None:
    command, run = bench.command("deep_sea", small_disk), small_disk / "run"
    started = bench.start(command, CHECKPOINT, 1)
    started.until_stopped()
    filler = _fill(small_disk, leave=4096)
    started.go_on()
    ended = started.wait()
    assert ended.status == 1
    assert "cannot write the checkpoint" in ended.said
    assert "Traceback" not in ended.said
    assert _generations(run) == []
    filler.unlink()
    assert bench.run(command).status == 0
    assert bench.remains(run) == bench.reference("deep_sea")


def test_a_disk_too_small_for_the_replay_fails_and_leaves_nothing(
    bench: Bench, small_disk: Path
) -> None:
    command = bench.command("deep_sea", small_disk / "runs")
    ended = bench.run([*command, "--set", "replay.capacity_steps=1M", "--frames", "1M"])
    assert ended.status == 1
    assert "the replay needs " in ended.said
    assert " are free" in ended.said
    assert "Traceback" not in ended.said
    assert list(small_disk.iterdir()) == []
    assert bench.run(command).status == 0  # as the message advises
    assert bench.remains(small_disk / "runs" / "run") == bench.reference("deep_sea")


def test_an_existing_folder_is_kept_if_the_disk_has_no_space_for_the_replay(
    bench: Bench, small_disk: Path
) -> None:
    command, run = bench.command("deep_sea", small_disk), small_disk / "run"
    assert bench.run(command, ("files /replay/", 1)).status == -signal.SIGKILL
    config = (run / "config.json").read_bytes()
    filler = _fill(small_disk, leave=4 * 4096)
    ended = bench.run(command)
    assert ended.status == 1
    assert "the replay needs " in ended.said
    assert (run / "config.json").read_bytes() == config
    filler.unlink()
    assert bench.run(command).status == 0
    assert bench.remains(run) == bench.reference("deep_sea")


def test_a_checkpoint_folder_that_became_read_only_stops_the_run_and_stays_readable(
    bench: Bench, run: Path
) -> None:
    checkpoints = run / "checkpoints"
    _mount("--bind", str(checkpoints), str(checkpoints))
    try:
        command = bench.command("deep_sea", run.parent)
        started = bench.start(command, CHECKPOINT, 1)
        started.until_stopped()
        before = bench.newest(run).step
        _mount("-o", "remount,bind,ro", str(checkpoints))
        started.go_on()
        ended = started.wait()
        assert ended.status == 1, ended.said
        assert "the previous checkpoint is kept and training continues" in ended.said
        assert "Read-only file system (errno 30); remount that disk writable" in ended.said
        assert "Traceback" not in ended.said
        status = RunFolder(run).read_status()
        assert status is not None
        assert status["state"] == "failed"
        assert "Read-only file system" in status["reason"]
        assert bench.newest(run).step == before
    finally:
        subprocess.run(["umount", str(checkpoints)], check=True)
    assert bench.run(command).status == 0
    assert bench.remains(run) == bench.reference("deep_sea")


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_full_or_read_only_tensorboard_folder_does_not_stop_the_run(
    fault: str, bench: Bench, run: Path
) -> None:
    """TensorBoard writes in a thread, which must not print a traceback either."""
    events = run / "tensorboard"
    events.mkdir()
    _mount("-t", "tmpfs", "-o", "size=16k", "noisynet-test", str(events))
    try:
        if fault == "full":
            _fill(events, leave=0)
        else:
            _mount("-o", "remount,ro", str(events))
        ended = bench.run([*bench.command("deep_sea", run.parent), "--tensorboard"])
    finally:
        subprocess.run(["umount", str(events)], check=True)
    assert ended.status == 0, ended.said
    assert "TensorBoard is switched off" in ended.said
    assert "Traceback" not in ended.said
    assert bench.remains(run) == bench.reference("deep_sea")


def test_a_read_only_disk_fails_with_advice(bench: Bench, small_disk: Path) -> None:
    command = bench.command("deep_sea", small_disk)
    _mount("-o", "remount,ro", str(small_disk))
    ended = bench.run(command)
    assert ended.status == 1
    assert "Read-only file system (errno 30); remount that disk writable" in ended.said
    assert "Traceback" not in ended.said
