"""Package attributes that are imported on first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def lazy_attributes(
    package: str, submodules: Mapping[str, Sequence[str]]
) -> Callable[[str], object]:
    """The `__getattr__` of a package whose submodules are imported on first use.

    Args:
        package: its `__name__`.
        submodules: by name, relative to the package, each with the attributes it defines.
    """
    homes = {name: submodule for submodule, names in submodules.items() for name in names}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    return load
