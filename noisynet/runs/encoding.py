"""JSON that is the same bytes for the same values, and that refuses what it cannot give back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["decode", "decode_state", "encode", "encode_state"]

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any, *, indent: int | None = None) -> bytes:
    """Standard JSON in ASCII, keys in insertion order; `decode` gives the values back.

    JSON has no word for a non-finite number, so these are written as the texts "nan", "inf" and
    "-inf"; the same three as texts are refused, or reading could not tell them apart.

    Raises:
        TypeError: A value or key that JSON would refuse or change, with its place.
        ValueError: One of the three reserved texts, with its place.
    """
    return _dump(_spell_non_finite(_plain(value, "")), indent)


def decode(data: bytes | str) -> Any:
    """Inverse of `encode`; raises `ValueError` when `data` is not JSON."""
    return _restore_non_finite(json.loads(data))


def encode_state(value: Any) -> bytes:
    """JSON with Python's own NaN and Infinity, for files only this package reads.

    Any text may occur, and integers keep all their digits (a PCG64 state has 128 bits).

    Raises:
        TypeError: A value or key that JSON would refuse or change, with its place.
    """
    return _dump(_plain(value, ""), None)


def decode_state(data: bytes | str) -> Any:
    """Inverse of `encode_state`; raises `ValueError` when `data` is not JSON."""
    return json.loads(data)


def _dump(value: Any, indent: int | None) -> bytes:
    # ASCII escapes keep any text, even a file name that is not valid UTF-8, on one line.
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=True, indent=indent, separators=separators).encode()


def _plain(value: Any, where: str) -> Any:
    """Copies `value` as dicts, lists and Python scalars; tuples become lists."""
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):  # json would turn 1 into "1" and never turn it back
                raise TypeError(f"{_place(where)}: keys must be text, got {key!r}; use str(key)")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TypeError(
        f"{_place(where)}: expected None, text, numbers, lists and mappings, got "
        f"{type(value).__name__}; convert it first (arrays and tensors belong in a tensor file)"
    )


def _spell_non_finite(value: Any, where: str = "") -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str) and value in _NON_FINITE:
        raise ValueError(
            f"{_place(where)}: the text {value!r} is reserved for the number; "
            "pass the float, or another text"
        )
    if isinstance(value, dict):
        return {key: _spell_non_finite(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_spell_non_finite(item, f"{where}[{index}]") for index, item in enumerate(value)]
    return value


def _restore_non_finite(value: Any) -> Any:
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: _restore_non_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restore_non_finite(item) for item in value]
    return value


def _place(where: str) -> str:
    return where.removeprefix(".") or "value"
