"""The offline store of Weights & Biases; tests/loops/test_tracked_runs.py has its pages."""

from __future__ import annotations

import re
import struct
import sys

import pytest

from noisynet.integrations.wandb import WandbTracker, read_log


def test_records_of_several_blocks_are_read_and_an_unfinished_one_is_dropped() -> None:
    def piece(kind: int, data: bytes) -> bytes:
        return struct.pack("<IHB", 0, len(data), kind) + data

    first = b"a" * (32_768 - 7 - 7 - 7 - 5)  # leaves room for five bytes and a header
    log = b":W&B\xe1\xbe\0" + piece(1, first) + piece(2, b"bbbbb") + piece(3, b"c" * 32_756)
    log += bytes(32_768 * 2 - len(log))  # too short for a header: padding
    log += piece(4, b"dd") + piece(1, b"last")
    whole = [first, b"bbbbb" + b"c" * 32_756 + b"dd", b"last"]
    assert list(read_log(log)) == whole
    assert list(read_log(log[:-1])) == whole[:-1]
    assert list(read_log(log[:7])) == []


def test_without_the_package_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=re.escape('pip install "noisynet[wandb]"')):
        WandbTracker()
