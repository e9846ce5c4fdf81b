"""What a run and its workers share: messages that are whole, and memory that nobody locks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from noisynet.loops.channel import Channel
from noisynet.loops.handover import (
    Job,
    Report,
    decode_reports,
    encode_reports,
    pack,
    read_job,
    unpack,
    write_job,
)
from noisynet.loops.shared_state import SharedState

# --- messages -------------------------------------------------------------------------------------


def test_messages_arrive_whole_and_in_order() -> None:
    ours, theirs = Channel.pair()
    large = bytes(range(256)) * 300  # less than what the system buffers
    for kind, body in (("a", b""), ("b", b"one"), ("c", large)):
        theirs.send(kind, body)
    assert list(ours.arrived()) == [("a", b""), ("b", b"one"), ("c", large)]
    assert list(ours.arrived()) == []
    theirs.send("d", b"two")
    assert ours.wait() == ("d", b"two")
    assert not ours.closed
    ours.close()
    theirs.close()


@pytest.mark.parametrize("half", [3, 9, 11])  # within the header, after it, within the body
def test_half_a_message_waits_for_its_rest_and_keeps_nobody_waiting(half: int) -> None:
    left, right = socket.socketpair()
    ours = Channel(left)
    sender, receiver = Channel.pair()
    sender.send("x", b"body")
    whole = os.read(receiver.fileno(), 100)
    right.sendall(whole[:half])
    assert list(ours.arrived()) == []
    right.sendall(whole[half:])
    assert list(ours.arrived()) == [("x", b"body")]
    right.sendall(whole[:half])
    right.close()  # killed in the midst of a message
    assert list(ours.arrived()) == []
    assert ours.closed
    for end in (ours, sender, receiver):
        end.close()


def test_what_was_sent_before_the_end_is_still_read() -> None:
    ours, theirs = Channel.pair()
    theirs.send("e", b"last words")
    theirs.close()
    assert list(ours.arrived()) == [("e", b"last words")]
    assert ours.closed
    assert ours.wait() is None
    ours.close()


def test_sending_to_nobody_is_an_error() -> None:
    ours, theirs = Channel.pair()
    theirs.close()
    with pytest.raises(OSError, match="Broken pipe"):
        ours.send("g")
    ours.close()


# --- what they carry ------------------------------------------------------------------------------


def test_a_job_comes_back_whatever_its_size() -> None:
    for state in (None, b"", b"\0" * 3_000_000):  # far more than a channel would buffer
        job = Job(3, 1, {"agent": "a3c", "seed": 2**31 - 1}, 10, "cpu", state)
        assert read_job(write_job(job)) == job


def test_reports_come_back_bit_for_bit() -> None:
    measures = {"loss": 0.1 + 0.2, "entropy": float("inf")}
    reports = [
        Report(10, 2, 0, None, measures, [(1, 7, -21.0, 900)], {"policy": 1e-17}),
        Report(15, 2, 1, "'policy.bias'", {"loss": 1.0}, [], None),
    ]
    first, second = decode_reports(encode_reports(reports))
    assert first.measures == measures
    assert first.sigma == {"policy": 1e-17}
    assert [tuple(episode) for episode in first.finished] == [(1, 7, -21.0, 900)]
    assert second == reports[1]


def test_a_state_comes_back_with_every_bit_of_its_streams() -> None:
    stream = np.random.default_rng(0)
    stream.random(3)
    tensors = {
        "stream": torch.Generator().get_state(),
        "actions": torch.zeros(0, dtype=torch.int16),
    }
    state = {"explore": stream.bit_generator.state, "none": None}
    found, rest = unpack(pack(tensors, state))
    assert rest == state
    assert found.keys() == tensors.keys()
    assert all(found[name].equal(tensor) for name, tensor in tensors.items())


# --- memory ---------------------------------------------------------------------------------------


def test_a_block_begins_with_zeros_and_every_part_has_a_place_of_its_own() -> None:
    shared = SharedState.create(3, 1001)
    assert shared.steps == 0
    assert [slot.state() for slot in shared.slots] == [
        {"steps": 0, "updates": 0, "dropped": 0, "episode": -1}
    ] * 3
    shared.parameters[:], shared.squares[:] = 1, 2
    shared.stop_at = 77
    for number, slot in enumerate(shared.slots):
        slot.beat()
        slot.begin_episode(number)
        slot.count(5, dropped=False)
        slot.count(4, dropped=True)
    assert shared.steps == 27
    assert shared.stop_at == 77
    assert [slot.state() for slot in shared.slots] == [
        {"steps": 9, "updates": 1, "dropped": 1, "episode": number} for number in range(3)
    ]
    assert (shared.parameters == 1).all()
    assert (shared.squares == 2).all()
    shared.close()


def test_another_view_of_the_block_sees_what_is_written_and_keeps_it() -> None:
    shared = SharedState.create(2, 10)
    other = SharedState(os.dup(shared.descriptor), 2, 10)
    shared.slots[1].count(5, dropped=False)
    other.parameters[3] = 4.0
    assert other.steps == 5
    assert shared.parameters[3] == 4.0
    other.slots[0].restore({"steps": 100, "updates": 20, "dropped": 1, "episode": 6})
    assert shared.steps == 105
    assert shared.slots[0].episode == 6
    shared.close()
    other.close()


def test_an_episode_is_never_unlearnt() -> None:
    slot = SharedState.create(1, 1).slots[0]
    slot.begin_episode(4)
    slot.begin_episode(2)  # of another environment of the same worker
    assert slot.episode == 4


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_block_has_no_name_that_could_be_left_behind() -> None:
    code = (
        "import os, sys; from noisynet.loops.shared_state import SharedState\n"
        "path = f'/proc/self/fd/{SharedState.create(2, 1000).descriptor}'\n"
        "assert os.stat(path).st_nlink == 0\n"
        "assert 'torch' not in sys.modules\n"  # watching over workers needs none
    )
    subprocess.run([sys.executable, "-c", code], check=True)
