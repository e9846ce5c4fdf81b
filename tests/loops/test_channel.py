"""Channels: whole messages, and ends that close."""

from __future__ import annotations

import os
import socket

import pytest

from noisynet.loops.channel import Channel


def test_messages_arrive_whole_and_in_order() -> None:
    ours, theirs = Channel.pair()
    large = bytes(range(256)) * 300  # fits in the buffer of the system
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
def test_a_partial_message_is_buffered_and_does_not_block(half: int) -> None:
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
    right.close()  # killed while sending
    assert list(ours.arrived()) == []
    assert ours.closed
    for end in (ours, sender, receiver):
        end.close()


def test_messages_sent_before_the_close_are_read() -> None:
    ours, theirs = Channel.pair()
    theirs.send("e", b"error")
    theirs.close()
    assert list(ours.arrived()) == [("e", b"error")]
    assert ours.closed
    assert ours.wait() is None
    ours.close()


def test_sending_to_a_closed_end_is_an_error() -> None:
    ours, theirs = Channel.pair()
    theirs.close()
    with pytest.raises(OSError, match="Broken pipe"):
        ours.send("g")
    ours.close()
