"""Imports that may fail: optional dependencies, and modules of your own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Imports in this block need the extra `name` of this package.

    Raises:
        ImportError: an import failed; the message names the pip line.
    """
    try:
        yield
    except ImportError as error:
        missing = f'{error}; install it with: pip install "noisynet[{name}]"'
        raise ImportError(missing, name=error.name) from error


def import_extra(module: str, name: str) -> ModuleType:
    """Import `module`, which the extra `name` installs.

    Raises:
        ImportError: it is missing; the message names the pip line.
    """
    with extra(name):
        return importlib.import_module(module)


def import_own(module: str, expected: str, given: str) -> ModuleType:
    """Import a module of the current folder, or an installed one, that the user named in `given`.

    The folder is searched whichever way Python was started. It comes last on the path, so that a
    file there hides nothing that is installed. Messages say which form of `given` was expected.

    Raises:
        ValueError: the module does not exist.
        ImportError: it exists and fails.
    """
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ImportError(f"the module of {given} needs another: {error}") from error
        raise ValueError(
            f"expected {expected} with a module in {folder} or installed, got {given!r} ({error})"
        ) from error
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        raise ImportError(f"the module of {given} cannot be imported: {failure}") from error
