"""Deterministic JSON: equal values are equal bytes, and everything decodes to what it was."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

NON_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""The non-finite numbers by their texts in JSON, which are those of Python."""


def encode(value: Any, *, indent: int | None = None) -> bytes:
    """Encode as standard JSON in ASCII, with keys in insertion order.

    JSON has no non-finite numbers. They are written as the strings "nan", "inf" and "-inf"; these
    three strings themselves are therefore rejected.

    Raises:
        TypeError: JSON would reject or change a value or key; the message has its path.
        ValueError: A value is one of the reserved strings; the message has its path.
    """
    return _dump(_plain(value, "", standard=True), indent)


def decode(data: bytes | str) -> Any:
    """Inverse of `encode`; raises `ValueError` when `data` is not JSON."""
    return restore_non_finite(json.loads(data))


def encode_state(value: Any) -> bytes:
    """Encode as JSON with Python's NaN and Infinity, for files that only this package reads.

    Any string is allowed, and integers keep all digits (a PCG64 state has 128 bits).

    Raises:
        TypeError: JSON would reject or change a value or key; the message has its path.
    """
    return _dump(_plain(value, "", standard=False), None)


def decode_state(data: bytes | str) -> Any:
    """Inverse of `encode_state`; raises `ValueError` when `data` is not JSON."""
    return json.loads(data)


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by dotted key; an empty mapping is a leaf."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= flatten(item, f"{prefix}.{key}" if prefix else key)
    return flat


def _dump(value: Any, indent: int | None) -> bytes:
    # ASCII escapes keep any string on one line, even a file name that is not valid UTF-8.
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=True, indent=indent, separators=separators).encode()


def _plain(value: Any, where: str, *, standard: bool) -> Any:
    """Copy `value` as dicts, lists and Python scalars; tuples become lists."""
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if standard and isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if standard and isinstance(value, str) and value in NON_FINITE:
        raise ValueError(
            f"{_path(where)}: the string {value!r} is reserved for the number; pass the float, or "
            "another string"
        )
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):  # json would turn 1 into "1" and never turn it back
                raise TypeError(f"{_path(where)}: keys must be strings, got {key!r}; use str(key)")
        return {k: _plain(item, f"{where}.{k}", standard=standard) for k, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]", standard=standard) for i, item in enumerate(value)]
    raise TypeError(
        f"{_path(where)}: expected None, strings, numbers, lists and mappings, got "
        f"{type(value).__name__}; convert it first, or store it as a tensor"
    )


def restore_non_finite(value: Any) -> Any:
    """Replace the texts of non-finite numbers by the numbers."""
    if isinstance(value, str):
        return NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: restore_non_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restore_non_finite(item) for item in value]
    return value


def _path(where: str) -> str:
    return where.removeprefix(".") or "value"
