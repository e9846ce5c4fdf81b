"""Messages between a run and its workers."""

from __future__ import annotations

import numpy as np
import torch

from noisynet.loops.messages import (
    RolloutReport,
    WorkerSetup,
    decode_reports,
    decode_snapshot,
    encode_error,
    encode_reports,
    encode_snapshot,
    read_setup,
    write_setup,
)


def test_setups_of_any_size_are_read_as_written() -> None:
    for snapshot in (None, b"", b"\0" * 3_000_000):  # more than a channel would buffer
        setup = WorkerSetup(3, 1, {"agent": "a3c", "seed": 2**31 - 1}, 10, "cpu", snapshot)
        assert read_setup(write_setup(setup)) == setup


def test_reports_are_decoded_bit_for_bit() -> None:
    measures = {"loss": 0.1 + 0.2, "entropy": float("inf")}
    reports = [
        RolloutReport(10, 2, 0, None, measures, [(1, 7, -21.0, 900)], {"policy": 1e-17}),
        RolloutReport(15, 2, 1, "'policy.bias'", {"loss": 1.0}, [], None),
    ]
    first, second = decode_reports(encode_reports(reports))
    assert first.measures == measures
    assert first.sigma == {"policy": 1e-17}
    assert [tuple(episode) for episode in first.finished] == [(1, 7, -21.0, 900)]
    assert second == reports[1]


def test_snapshots_keep_every_bit_of_random_streams() -> None:
    stream = np.random.default_rng(0)
    stream.random(3)
    tensors = {
        "stream": torch.Generator().get_state(),
        "actions": torch.zeros(0, dtype=torch.int16),
    }
    state = {"explore": stream.bit_generator.state, "none": None}
    found, rest = decode_snapshot(encode_snapshot(tensors, state))
    assert rest == state
    assert found.keys() == tensors.keys()
    assert all(found[name].equal(tensor) for name, tensor in tensors.items())


def test_an_error_is_one_line_followed_by_its_traceback() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        line, _, traceback = encode_error(error).decode().partition("\n")
    assert line == "ValueError: first; second"
    assert traceback.startswith("Traceback (most recent call last):")
    assert "test_messages.py" in traceback
