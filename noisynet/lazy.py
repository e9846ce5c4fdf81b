"""Modules that are imported when one of their names is first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType


def lazy_attributes(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Make the `__getattr__` of a package that imports its submodules when needed (PEP 562).

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


@contextmanager
def imported_when_used(module: str) -> Iterator[None]:
    """In this block, `import module` gives a stand-in that imports the module on first use.

    For libraries that import much for something that is rarely needed.
    """
    if module in sys.modules:
        yield
        return
    stand_in = sys.modules[module] = _StandIn(module)
    try:
        yield
    finally:
        stand_in.leave()


class _StandIn(ModuleType):
    def leave(self) -> None:
        """Make way for the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> object:
        self.leave()
        value: object = getattr(importlib.import_module(self.__name__), name)
        return value
