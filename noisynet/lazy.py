"""Package attributes that are imported on first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose submodules are imported on first use.

    Args:
        package: its `__name__`.
        homes: the submodule that defines each attribute, relative to the package.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    return load
