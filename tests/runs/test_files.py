from __future__ import annotations

import copy
import errno
import os
from pathlib import Path

import pytest

from noisynet.runs.files import (
    StorageError,
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
