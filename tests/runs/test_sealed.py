"""Sealed files: equal bytes, every damage detected."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load, save

from noisynet.runs.sealed import read_sealed, seal, unseal

HEADER = {"step": 3, "state": {"zeros": "0" * 64, "best": -math.inf, "text": 'a "b" \\ σ'}}
ARRAYS: dict[str, NDArray[Any]] = {
    "w": np.arange(6, dtype=np.float32),
    "zeros": np.frombuffer(b"0" * 64, np.uint8),
}


def test_a_file_has_its_header_and_its_arrays() -> None:
    data = seal(save, ARRAYS, HEADER)
    assert unseal(data) == HEADER
    assert load(data)["w"].tolist() == [0, 1, 2, 3, 4, 5]
    assert load(data)["zeros"].tobytes() == b"0" * 64
    assert seal(save, ARRAYS, HEADER) == data


def test_every_flipped_bit_and_every_other_length_is_detected() -> None:
    data = seal(save, ARRAYS, HEADER)
    for position in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(ValueError, match="does not match its SHA-256"):
            unseal(bytes(flipped))
    for other in (b"", data[:8], data[:-1], data + b" ", b"[]", save(ARRAYS)):
        with pytest.raises(ValueError, match="does not match its SHA-256"):
            unseal(other)


def test_a_file_is_read_only_if_its_length_is_that_in_its_header(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data := seal(save, ARRAYS, HEADER))
    assert read_sealed(path) == (data, HEADER)
    for other in (b"", data[:8], data[:-1], data + b" ", b"\xff" * 8 + data[8:], save(ARRAYS)):
        path.write_bytes(other)
        with pytest.raises(ValueError, match="does not match its SHA-256"):
            read_sealed(path)
    for start in (data, b""):  # a terabyte that the disk does not have
        path.write_bytes(start)
        os.truncate(path, 1 << 40)
        with pytest.raises(ValueError, match="does not match its SHA-256"):
            read_sealed(path)
