"""A power loss at any moment: whatever was not synced is lost, and the run goes on."""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from loops.conftest import remains
from noisynet.config import build_config
from noisynet.loops import open_run_folder, train
from noisynet.loops.launch import open_run
from noisynet.replay.columns import Columns

CONFIG = build_config(
    "noisynet-dqn",
    "deep_sea/4",
    settings=[
        *("frames=160", "learning.starts_steps=40", "replay.capacity_steps=50", "threads=1"),
        *("learning.batch_size=4", "network.hidden=[8]", "log_period_steps=20"),
        *("evaluation.period_frames=80", "evaluation.frames=12", "checkpoint_period_frames=30"),
    ],
)

Inode: TypeAlias = tuple[int, int, bool]
"""Its number, how often that was used before, and whether it is a folder."""


class Disk:
    """Follows what of a folder is on the disk for certain, and what only in the system's memory.

    A file's content is certain after `fsync` or `msync`, the names in a folder after its `fsync`.

    Attributes:
        states: for each moment of a change, two extremes: no name that was not synced is on the
            disk, or all are; in both, contents that were not synced are lost. Each has the step of
            the newest checkpoint that is certain by then.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.deleted: Counter[int] = Counter()  # how often an inode was: its number is used again
        self.contents: dict[Inode, bytes] = {}
        self.names: dict[Inode, dict[str, Inode]] = {}  # in folders
        self.states: list[tuple[dict[str, bytes], int]] = []
        for name in ("rename", "unlink"):
            self._patch(monkeypatch, os, name, self._deletes)
        self._patch(monkeypatch, os, "fsync", self._synced)
        self._patch(monkeypatch, Columns, "flush", self._flushed)

    def _patch(
        self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: Callable[..., None]
    ) -> None:
        original = getattr(owner, name)

        def patched(*arguments: Any, **keywords: Any) -> Any:
            self.crash()
            inodes = self._inodes()
            result = original(*arguments, **keywords)
            after(*arguments) if after != self._deletes else self._deletes(inodes)
            self.crash()
            return result

        monkeypatch.setattr(owner, name, patched)

    def inode(self, found: os.stat_result) -> Inode:
        return found.st_ino, self.deleted[found.st_ino], stat.S_ISDIR(found.st_mode)

    def _inodes(self) -> set[int]:
        return {path.stat().st_ino for path in self.root.rglob("*")}

    def _deletes(self, before: set[int]) -> None:
        self.deleted.update(before - self._inodes())

    def _synced(self, descriptor: int) -> None:
        path, inode = (
            Path(f"/proc/self/fd/{descriptor}").readlink(),
            self.inode(os.fstat(descriptor)),
        )
        if path.is_dir():
            self.names[inode] = {entry.name: self.inode(entry.stat()) for entry in path.iterdir()}
        else:
            self.contents[inode] = path.read_bytes()

    def _flushed(self, _: object) -> None:
        for path in (self.root / "replay").glob("*.bin"):
            self.contents[self.inode(path.stat())] = path.read_bytes()

    def crash(self) -> None:
        """Add what the disk would have after a power loss at this moment."""
        if not self.root.exists():
            return
        certain = self._certain(self.inode(self.root.stat()), "")
        present = {
            path.relative_to(self.root).as_posix(): self.contents.get(self.inode(path.stat()), b"")
            for path in self.root.rglob("*")
            if path.is_file()
        }
        saved = [int(Path(name).stem) for name in certain if name.startswith("checkpoints/0")]
        for state in (certain, present):
            if not self.states or self.states[-1][0] != state:
                self.states.append((state, max(saved, default=-1)))

    def _certain(self, folder: Inode, prefix: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name, inode in self.names.get(folder, {}).items():
            if inode[2]:
                found |= self._certain(inode, f"{prefix}{name}/")
            else:
                found[prefix + name] = self.contents.get(inode, b"")
        return found


def write_state(state: dict[str, bytes], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in state.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def run(path: Path) -> None:
    folder = open_run_folder(path, CONFIG)
    with folder.lock():
        assert train(CONFIG, folder, keep_replay=True).finished


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_after_a_power_loss_the_newest_certain_checkpoint_is_resumed(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        disk = Disk(tmp_path / "run", patches)
        run(tmp_path / "run")
    expected, crashed = remains(tmp_path / "run"), tmp_path / "crashed"
    distinct = [state for n, state in enumerate(disk.states) if state not in disk.states[:n]]
    assert len(distinct) > 50
    assert max(step for _, step in distinct) == 160
    for number, (state, step) in list(enumerate(distinct))[::every]:
        write_state(state, crashed)
        folder = open_run_folder(crashed, CONFIG)
        with folder.lock(), open_run(CONFIG, folder, keep_replay=True) as resumed:
            assert resumed.steps >= max(0, step), (number, sorted(state))
        if number % 12 == 0:  # to the end
            run(crashed)
            assert remains(crashed) == expected, (number, step)
