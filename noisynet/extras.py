"""Optional dependencies: imported on first use; errors name the pip line."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
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
