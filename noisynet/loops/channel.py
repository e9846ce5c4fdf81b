"""Whole messages between a run and its workers; whoever is killed leaves the other end free."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Final

_HEADER: Final = struct.Struct("<cQ")
_CHUNK: Final = 1 << 18


class Channel:
    """One end of a connection; a message is a kind, one letter, and a body.

    Args:
        connection: this end's socket.

    Attributes:
        closed: whether the other end is gone and everything that it had sent has been read.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self.closed = False

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two ends of one connection."""
        ours, theirs = socket.socketpair()
        return cls(ours), cls(theirs)

    @classmethod
    def inherited(cls, descriptor: int) -> Channel:
        """The end that another process has handed on."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """The socket's descriptor, to wait for."""
        return self._socket.fileno()

    def send(self, kind: str, body: bytes = b"") -> None:
        """Send a message, waiting until it is on its way.

        Raises:
            OSError: the other end is gone.
        """
        self._socket.sendall(_HEADER.pack(kind.encode(), len(body)) + body)

    def wait(self) -> tuple[str, bytes] | None:
        """The next message, waiting for it; None where the other end is gone."""
        while (message := self._next()) is None and not self.closed:
            self._read(0)
        return message

    def arrived(self) -> Iterator[tuple[str, bytes]]:
        """The messages that are here, without waiting; one that is half here waits for its rest."""
        while not self.closed and self._read(socket.MSG_DONTWAIT):
            pass
        while (message := self._next()) is not None:
            yield message

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _read(self, flags: int) -> bool:
        """Whether anything came."""
        try:
            data = self._socket.recv(_CHUNK, flags)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        self._buffer += data
        self.closed = not data
        return bool(data)

    def _next(self) -> tuple[str, bytes] | None:
        if len(self._buffer) < _HEADER.size:
            return None
        kind, length = _HEADER.unpack_from(self._buffer)
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return kind.decode(), body
