"""Loops over numbers, compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function of arrays and numbers at its first call; it runs beside other threads.

    What the compiler made is kept next to Python's bytecode, so that it is made once on a machine,
    not in every process; where nothing can be kept it is made anew. A reduction may add in any
    order, as a processor that adds eight numbers at once does.
    """
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": {"reassoc", "contract", "nsz"},
    }
    try:
        kept: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    # Numba looks for changes in the file of a function, not in those of the functions it calls.
    file = kept._cache._cache_file
    file._source_stamp = file._source_stamp, _sources(Path(function.__code__.co_filename).parent)
    return kept  # type: ignore[no-any-return]


@cache
def _sources(folder: Path) -> str:
    """What changes with any of a folder's sources."""
    contents = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"".join(contents)).hexdigest()
