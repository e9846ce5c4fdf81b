"""Prefixes of the names in a state dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def add_prefix(prefix: str, named: Mapping[str, Value]) -> dict[str, Value]:
    """Put `prefix` in front of every name."""
    return {f"{prefix}{name}": value for name, value in named.items()}


def strip_prefix(prefix: str, named: Mapping[str, Value]) -> dict[str, Value]:
    """Select the entries whose name starts with `prefix`, and remove it."""
    return {
        name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)
    }
