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

    The machine code is cached next to Python's bytecode, or else in the user's cache folder, so
    that a machine compiles once and not in every process. Where nothing can be written, or the
    cache is damaged, every process compiles. Sums may be reassociated, which vector instructions
    need.
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
    _tolerate_errors(dispatcher._cache)
    # Numba checks the file of a function for changes, but not the files of the functions it calls.
    file = dispatcher._cache._cache_file
    file._source_stamp = file._source_stamp, _sources(Path(function.__code__.co_filename).parent)
    return dispatcher  # type: ignore[no-any-return]


def _tolerate_errors(cached: Any) -> None:
    """Compile where a cache cannot be read, and go on where it cannot be written.

    Numba syncs nothing: after a power loss, files of the cache may be empty.
    """
    load, save = cached.load_overload, cached.save_overload

    def load_or_none(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception:  # what is unpickled may raise anything
            with suppress(OSError):
                cached.flush()
            return None

    def try_to_save(*arguments: Any) -> None:
        with suppress(OSError):
            save(*arguments)

    cached.load_overload, cached.save_overload = load_or_none, try_to_save


@cache
def _sources(folder: Path) -> str:
    """A hash of all Python sources in a folder."""
    contents = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"".join(contents)).hexdigest()
