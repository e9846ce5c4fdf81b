"""Packages that import a submodule when one of its names is first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def lazy_attributes(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Make the `__getattr__` of a package.

    Args:
        package: the package's `__name__`.
        names: for each submodule, the names that it provides.
    """
    homes = {name: module for module, provided in names.items() for name in provided}

    def __getattr__(name: str) -> object:  # noqa: N807 - the hook of PEP 562
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
