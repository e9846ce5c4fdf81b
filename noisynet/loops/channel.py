"""Whole messages between a run and its workers; a killed process never blocks the other end."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Final

_HEADER: Final = struct.Struct("<cQ")
_CHUNK: Final = 1 << 18


class Channel:
    """One end of a connection. A message is a kind, one letter, and a body.

    Attributes:
        closed: whether the other end is closed and everything it sent was read.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self.closed = False

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Return the two ends of a new connection."""
        ours, theirs = socket.socketpair()
        return cls(ours), cls(theirs)

    @classmethod
    def inherited(cls, descriptor: int) -> Channel:
        """Return the end that the parent process has passed on."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """Return the socket's descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, kind: str, body: bytes = b"") -> None:
        """Send a message; blocks until the system has taken it.

        Raises:
            OSError: the other end is closed.
        """
        self._socket.sendall(_HEADER.pack(kind.encode(), len(body)) + body)

    def wait(self) -> tuple[str, bytes] | None:
        """Wait for the next message; None if the other end is closed."""
        while (message := self._next()) is None and not self.closed:
            self._read(0)
        return message

    def arrived(self) -> Iterator[tuple[str, bytes]]:
        """Yield the messages that have arrived, without waiting; a partial one stays buffered."""
        while not self.closed and self._read(socket.MSG_DONTWAIT):
            pass
        while (message := self._next()) is not None:
            yield message

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _read(self, flags: int) -> bool:
        """Read a chunk; return whether there was one."""
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
