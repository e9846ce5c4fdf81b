"""Loops over numbers, compiled."""

from __future__ import annotations

from collections.abc import Callable
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
        kept: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written
        kept = numba.njit(**options)(function)
    return kept
