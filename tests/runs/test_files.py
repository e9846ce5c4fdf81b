from __future__ import annotations

import copy
import errno
import os
from pathlib import Path

import pytest

from noisynet.runs.files import (
    RunDamaged,
    StorageError,
    list_folder,
    open_file,
    read_file,
    remove_file,
    remove_temporaries,
    storage_errors,
    temporary_name,
    write_atomically,
)


def test_write_atomically_makes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_failed_write_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*No such file.*same command") as caught:
        write_atomically(tmp_path / "missing" / "a.json", b"one")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.path == tmp_path / "missing" / "a.json"


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.mkdir()  # a file cannot be renamed onto a directory
    with pytest.raises(StorageError):
        write_atomically(path, b"one")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_storage_errors_can_be_passed_between_processes() -> None:
    with pytest.raises(StorageError) as caught, storage_errors("write", Path("x")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    copied = copy.copy(caught.value)  # rebuilt from its arguments, as multiprocessing does
    assert (str(copied), copied.errno) == (str(caught.value), errno.ENOSPC)
    assert "No space left on device (errno 28); free some space" in str(copied)


def test_temporary_files_are_removed_and_nothing_else(tmp_path: Path) -> None:
    temporary_name(tmp_path / "status.json").write_bytes(b"half")
    kept = [".hidden", ".thesis.tex.tmp-1", ".status.json.tmp-x", "status.json.tmp-1"]
    for name in kept:
        (tmp_path / name).write_bytes(b"")
    remove_temporaries(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(kept)
    remove_temporaries(tmp_path / "missing")


def _kinds(folder: Path) -> dict[str, Path]:
    """One path of each kind that is no regular file."""
    made = {name: folder / name for name in ("FIFO", "folder", "symbolic link", "endless")}
    os.mkfifo(made["FIFO"])
    made["folder"].mkdir()
    (folder / "file").write_bytes(b"outside")
    made["symbolic link"].symlink_to("file")
    made["endless"].symlink_to("/dev/zero")
    return made


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_WRONLY])
def test_only_regular_files_are_opened(tmp_path: Path, flags: int) -> None:
    for path in _kinds(tmp_path).values():
        with pytest.raises(RunDamaged, match=rf"expected a regular file at {path}, got a "):
            open_file(path, flags)
    os.close(open_file(tmp_path / "file", flags))


def test_a_file_with_another_name_is_read_but_not_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    os.link(tmp_path / "file", tmp_path / "other")
    assert read_file(tmp_path / "file", 4) == b"data"
    with pytest.raises(RunDamaged, match=r"has 2 names \(hard links\)"):
        open_file(tmp_path / "file", os.O_RDWR)


def test_a_folder_that_is_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"data")
    (tmp_path / "link").symlink_to("real")
    inside = tmp_path / "link" / "file"
    for attempt in (
        lambda: open_file(inside),
        lambda: read_file(inside, 9),
        lambda: remove_file(inside),
        lambda: write_atomically(inside, b"new"),
        lambda: remove_temporaries(inside.parent),
        lambda: list_folder(inside.parent),
    ):
        with pytest.raises(RunDamaged, match=f"expected a folder at {inside.parent}, got a symb"):
            attempt()
    assert inside.read_bytes() == b"data"
    assert list_folder(tmp_path / "missing") == []


def test_a_small_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file", 5) == b"12345"
    with pytest.raises(RunDamaged, match="has 5 bytes, expected at most 4"):
        read_file(tmp_path / "file", 4)
