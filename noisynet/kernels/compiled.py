"""Compilation of kernels by numba, cached on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function of arrays and numbers at its first call; it releases the GIL.

    The machine code is cached next to Python's bytecode, so that a machine compiles once and not in
    every process; where nothing can be written, every process compiles. Sums may be reassociated,
    which vector instructions need.
    """
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": {"reassoc", "contract", "nsz"},
    }
    try:
        dispatcher: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no cache directory is writable
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    # Numba checks the file of a function for changes, but not the files of the functions it calls.
    file = dispatcher._cache._cache_file
    file._source_stamp = file._source_stamp, _sources(Path(function.__code__.co_filename).parent)
    return dispatcher  # type: ignore[no-any-return]


@cache
def _sources(folder: Path) -> str:
    """A hash of all Python sources in a folder."""
    contents = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"".join(contents)).hexdigest()
