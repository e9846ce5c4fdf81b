"""Packages that import a submodule when one of its names is first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Make the `__getattr__` of a package.

    Args:
        package: the package's `__name__`.
        modules: for each public name, the submodule that defines it.
    """

    def __getattr__(name: str) -> object:  # noqa: N807 - the hook of PEP 562
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
