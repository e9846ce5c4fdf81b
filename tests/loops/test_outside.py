"""Links in the place of a run's files: nothing outside the run folder is written or deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import noisynet
from loops.short_loops import configure
from noisynet.config import Config
from noisynet.loops import load_agent, open_run_folder, train
from noisynet.loops.hooks import TensorBoard
from noisynet.runs import RunDamaged, RunError, RunFolder, RunLocked

_FILES: Final = (
    *("config.json", "status.json", "run.owner", "run.lock", "metrics.jsonl", "timing.jsonl"),
    *("replay/layout.json", "replay/frames.bin", "replay/rewards.bin"),
)
_FOLDERS: Final = ("checkpoints", "traces", "replay", "tensorboard")


def _config(frames: int = 80) -> Config:
    return configure(
        *(f"frames={frames}", "checkpoint_period_frames=20", "replay.capacity_steps=30"),
        *("evaluation.period_frames=40", "evaluation.frames=8", "log_period_steps=20"),
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interrupted run, as a killed process leaves it."""
    path, stops = tmp_path_factory.mktemp("stopped") / "run", iter([False] * 50 + [True] * 9)
    with (folder := open_run_folder(path, _config())).lock():
        train(_config(), folder, stop=lambda: next(stops))
        shutil.copy(path / "run.owner", path.parent / "run.owner")
    shutil.move(path.parent / "run.owner", path / "run.owner")
    (path / "tensorboard").mkdir()
    return path


def _contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def _train(path: Path) -> RunError | None:
    try:
        with (folder := open_run_folder(path, _config())).lock():
            train(_config(), folder, observers=[TensorBoard(folder, _config())])
    except RunError as error:
        return error
    return None


@pytest.mark.parametrize("how", ["symbolic", "hard"])
@pytest.mark.parametrize("name", _FILES)
def test_a_file_that_is_a_link_is_refused_or_replaced(
    stopped: Path, tmp_path: Path, name: str, how: str
) -> None:
    run, outside = Path(shutil.copytree(stopped, tmp_path / "run")), tmp_path / "outside"
    outside.mkdir()
    (run / name).rename(outside / "file")
    if how == "symbolic":
        (run / name).symlink_to(outside / "file")
    else:
        os.link(outside / "file", run / name)
    before = _contents(outside)
    error = _train(run)
    assert _contents(outside) == before
    if error is not None:
        assert str(run / name) in str(error)
    # These are only read, or replaced as a whole.
    replaced = {"status.json", "run.owner"}
    replaced |= {"config.json", "replay/layout.json"} if how == "hard" else set()
    assert (error is None) == (name in replaced)


@pytest.mark.parametrize("name", _FOLDERS)
def test_a_folder_that_is_a_link_is_refused_and_foreign_files_stay(
    stopped: Path, tmp_path: Path, name: str
) -> None:
    run, outside = Path(shutil.copytree(stopped, tmp_path / "run")), tmp_path / "outside"
    (run / name).rename(outside)
    # Names that a run would remove: old checkpoints, traces without a row, unfinished files.
    for foreign in ("000000000001.safetensors", "000000000003-on.safetensors", "thesis.tex"):
        (outside / foreign).write_bytes(b"foreign")
    (outside / ".000000000009.safetensors.tmp-1").write_bytes(b"foreign")
    (run / name).symlink_to(outside)
    before = _contents(outside)
    error = _train(run)
    assert _contents(outside) == before
    if name == "tensorboard":  # an observer that fails is switched off
        assert error is None
    else:
        assert str(run / name) in str(error)


def test_only_names_of_ours_are_removed(stopped: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    foreign = [
        *(run / "thesis.tex", run / ".thesis.tex.tmp-1", run / "checkpoints" / ".a.tmp-1"),
        *(run / "traces" / "notes.txt", run / "replay" / "notes.txt"),
    ]
    for path in foreign:
        path.write_bytes(b"foreign")
    ours = run / "traces" / ".000000000009-on.safetensors.tmp-1"
    ours.write_bytes(b"half")
    assert _train(run) is None
    assert [path for path in foreign if not path.exists()] == []
    assert not ours.exists()
    assert not (run / "replay" / "frames.bin").exists()


def test_a_run_folder_may_be_given_by_a_link(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert _train(tmp_path / "link") is None
    assert (RunFolder(tmp_path / "run").read_status() or {})["state"] == "finished"


# --- checkpoints that cannot be read -------------------------------------------------------------


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize("make", [os.mkfifo, _endless, _sparse, Path.mkdir])
def test_a_checkpoint_that_is_no_file_is_skipped_at_once(
    stopped: Path, tmp_path: Path, make: object
) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    older, newest = sorted((run / "checkpoints").iterdir())
    newest.unlink()
    assert callable(make)
    make(newest)
    _, frames = load_agent(run)
    assert frames == int(older.stem)
    older.unlink()
    make(older)
    with pytest.raises(RunError, match=rf"none is usable:\n  {newest}: "):
        load_agent(run)


# --- the lock ------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [25, 60])
def test_a_process_whose_lock_file_was_replaced_stops_and_writes_nothing_more(
    tmp_path: Path, at: int
) -> None:
    """Another process may have the new lock."""
    folder = open_run_folder(tmp_path / "run", _config())
    calls = iter(range(10_000))
    before: dict[str, Any] = {}

    def replace_lock() -> bool:
        if next(calls) == at:
            (tmp_path / "run" / "run.lock").unlink()
            before["owner"] = open_run_folder(tmp_path / "run", _config()).lock()
            before["contents"] = _logs(folder)
        return False

    with folder.lock(), pytest.raises(RunLocked, match=r"run\.lock was deleted or replaced"):
        train(_config(), folder, stop=replace_lock)
    assert _logs(folder) == before["contents"]
    assert (tmp_path / "run" / "run.owner").exists()  # that of the second process
    before["owner"].release()


def _logs(folder: RunFolder) -> dict[str, bytes | None]:
    contents = _contents(folder.path)
    return {name: data for name, data in contents.items() if not name.startswith("replay")}


_SECOND: Final = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from loops.test_outside import _config
from noisynet.loops import open_run_folder, train
with (folder := open_run_folder(Path(sys.argv[1]), _config())).lock():
    train(_config(), folder)
"""


def test_two_processes_after_the_lock_file_was_deleted_end_with_one_intact_run(
    tmp_path: Path,
) -> None:
    whole = tmp_path / "whole"
    assert _train(whole) is None
    folder, calls = open_run_folder(tmp_path / "run", _config()), iter(range(10_000))

    def start_second() -> bool:
        if next(calls) == 45:
            (tmp_path / "run" / "run.lock").unlink()
            paths = [str(Path(__file__).parents[1]), str(Path(noisynet.__file__).parents[1])]
            subprocess.run(
                [sys.executable, "-c", _SECOND, str(tmp_path / "run"), *paths], check=True
            )
        return False

    with folder.lock(), pytest.raises(RunLocked):
        train(_config(), folder, stop=start_second)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (
        whole / "metrics.jsonl"
    ).read_bytes()
    assert (folder.read_status() or {})["state"] == "finished"


def test_a_folder_whose_files_are_all_links_is_not_a_run(tmp_path: Path, stopped: Path) -> None:
    (tmp_path / "run").mkdir()
    for path in stopped.iterdir():
        (tmp_path / "run" / path.name).symlink_to(path)
    before = _contents(stopped)
    assert isinstance(_train(tmp_path / "run"), RunDamaged)
    assert _contents(stopped) == before
