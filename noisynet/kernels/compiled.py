"""Compilation of kernels by numba, cached on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function of arrays and numbers at its first call; it releases the GIL.

    The machine code is cached next to Python's bytecode or in the user's cache folder. Where
    neither can be written, every process compiles. Sums may be reassociated, which vector
    instructions need.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    options["fastmath"] = {"reassoc", "contract", "nsz"}
    try:
        dispatcher: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no cache directory is writable
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    # A full disk or a damaged file, which numba does not sync, must not stop a kernel: it compiles.
    dispatcher._cache._guard_against_spurious_io_errors = lambda: suppress(Exception)
    # Numba checks the file of a function for changes, but not the files of the functions it calls.
    file = dispatcher._cache._cache_file
    file._source_stamp = file._source_stamp, _sources(Path(function.__code__.co_filename).parent)
    return dispatcher  # type: ignore[no-any-return]


@cache
def _sources(folder: Path) -> str:
    """A hash of all Python sources in a folder."""
    contents = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    return hashlib.sha256(contents).hexdigest()
