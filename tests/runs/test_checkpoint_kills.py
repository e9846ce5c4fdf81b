"""SIGKILL in the middle of saving, in real processes."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from noisynet.runs.checkpoint import Checkpoint, load_newest, save_checkpoint
from noisynet.runs.sealed import unseal

_IDENTITY = {"agent": "dqn"}


def _save(folder: Path, step: int, content: int | None = None) -> None:
    value = step if content is None else content
    tensors = {"w": torch.full((64, 33), value), "v": torch.full((9,), float(value))}
    checkpoint = Checkpoint(step, tensors, {"step": step, "padding": [value] * 2000})
    save_checkpoint(folder, checkpoint, schema="1", identity=_IDENTITY)


def _load(folder: Path, *, repair: bool = True) -> tuple[int, int]:
    """Step and content of the newest checkpoint, which must be whole; 0 when there is none."""
    checkpoint, skipped = load_newest(folder, schema="1", identity=_IDENTITY, repair=repair)
    assert skipped == []  # a kill leaves nothing corrupt, not even to be skipped
    if checkpoint is None:
        return 0, 0
    value = int(checkpoint.tensors["v"][0])
    assert torch.equal(checkpoint.tensors["w"], torch.full((64, 33), value))
    assert checkpoint.state == {"step": checkpoint.step, "padding": [value] * 2000}
    return checkpoint.step, value


def _fork(body: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        body()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _killed(child: int) -> bool:
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGKILL
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def test_kills_at_random_times_lose_no_saved_checkpoint(tmp_path: Path) -> None:
    stream = random.Random(0)
    step = 0
    for turn in range(20):
        read_end, write_end = os.pipe()

        def save_forever(begin: int = step, report: int = write_end) -> None:
            for now in range(begin + 1, begin + 10**6):
                _save(tmp_path, now)
                os.write(report, struct.pack("<q", now))

        child = _fork(save_forever)
        os.close(write_end)
        reports = os.read(read_end, 8) if turn % 2 else b""  # every other turn gets somewhere
        time.sleep(stream.uniform(0.0, 0.08))
        os.kill(child, signal.SIGKILL)
        assert _killed(child)
        with os.fdopen(read_end, "rb") as pipe:
            reports += pipe.read()
        reported = struct.unpack("<q", reports[-8:])[0] if reports else step
        loaded, content = _load(tmp_path)
        assert loaded in (reported, reported + 1)
        assert content == loaded
        step = loaded
    assert step >= 10


def test_a_concurrent_reader_finds_complete_checkpoints(tmp_path: Path) -> None:
    _save(tmp_path, 1)

    def save_forever() -> None:
        for step in range(2, 10**6):
            _save(tmp_path, step)

    child = _fork(save_forever)
    try:
        seen = [_load(tmp_path, repair=False)[0]]
        while len(set(seen)) < 10:  # however slow the disk is
            seen.append(_load(tmp_path, repair=False)[0])
    finally:
        os.kill(child, signal.SIGKILL)
        assert _killed(child)
    assert seen == sorted(seen)


def test_a_reader_whose_checkpoint_is_pruned_loads_the_newer_one(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    _save(tmp_path, 2)

    def read() -> None:
        pruned = False

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal pruned
            if event == "open" and "000000000002" in str(arguments[0]) and not pruned:
                pruned = True  # the writer saves twice between the reader's listing and opening
                _save(tmp_path, 3)
                _save(tmp_path, 4)

        sys.addaudithook(hook)
        assert _load(tmp_path, repair=False) == (4, 4)
        assert pruned

    assert not _killed(_fork(read))


_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


def _kill_self_before_event(number: int) -> None:
    """Makes this process kill itself before its `number`th operation on the file system."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _EVENTS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _kill_at_every_event(folder: Path, prepare: Callable[[], None], step: int, value: int) -> int:
    """Saves (step, value) in children killed before their 1st, 2nd, … operation, until one ends.

    Returns how many were killed.
    """
    for number in range(1, 1000):
        shutil.rmtree(folder, ignore_errors=True)
        prepare()
        before = _load(folder)

        def save_and_die(number: int = number) -> None:
            _kill_self_before_event(number)
            _save(folder, step, value)

        finished = not _killed(_fork(save_and_die))
        for path in folder.glob("[0-9]*"):  # a file with a final name is complete
            unseal(path.read_bytes())
        allowed = [(step, value)] if finished else [before, (step, value)]
        assert _load(folder) in allowed, f"killed before operation {number}"
        _save(folder, step + 1)  # and the run goes on, with nothing left over
        assert _load(folder) == (step + 1, step + 1)
        names = sorted(path.name for path in folder.iterdir())
        assert len(names) == 2 or (len(names) == 1 and before == (0, 0))
        assert all(re.fullmatch(r"\d{12}\.safetensors", name) for name in names)
        if finished:
            return number - 1
    raise AssertionError("saving takes more than 1000 operations")


def test_kills_before_every_operation_of_a_first_save(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    assert _kill_at_every_event(folder, lambda: None, 30, 30) > 5


def test_kills_before_every_operation_of_a_save_that_prunes(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"

    def prepare() -> None:
        _save(folder, 10)
        _save(folder, 20)

    assert _kill_at_every_event(folder, prepare, 30, 30) > 8


def test_kills_before_every_operation_of_a_save_that_replaces(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"

    def prepare() -> None:
        _save(folder, 10)
        _save(folder, 20)

    assert _kill_at_every_event(folder, prepare, 20, 21) > 7
