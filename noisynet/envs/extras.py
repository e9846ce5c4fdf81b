"""Packages that only some environments need."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_extra(module: str, extra: str) -> ModuleType:
    """Import `module`, or say which line installs it.

    Args:
        module: what to import, for instance "ale_py.vector_env".
        extra: the optional part of this package that brings it.

    Raises:
        ImportError: if the package is not installed; the message names the pip line.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = (
            f"this environment needs the module {module!r}, which could not be imported "
            f'({error}). Install it with: pip install "noisynet[{extra}]"'
        )
        raise ImportError(message, name=error.name) from error
