"""The entry point of a worker process; torch is imported only once it will exit with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

from noisynet.loops.channel import Channel
from noisynet.loops.messages import ERROR, encode_error, read_setup

_PR_SET_PDEATHSIG: Final = 1


def main() -> NoReturn:
    """Run the worker described by the arguments, then exit the process.

    Arguments: the parent's pid and the descriptors of the channel, the shared memory and the setup.
    """
    parent, connection, memory, setup = map(int, sys.argv[1:5])
    # The parent handles signals to the process group, and stops its workers when it wants to.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    _die_with(parent)
    channel, code = Channel.inherited(connection), 0
    try:
        from noisynet.loops.worker import run_worker

        run_worker(read_setup(setup), memory, channel, parent)
    except BaseException as error:
        code = 1
        with suppress(OSError):  # the parent has exited
            channel.send(ERROR, encode_error(error))
    os._exit(code)  # at once: there is nothing to save, and the parent may be waiting


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies."""
    with suppress(OSError, AttributeError):  # not on Linux: every roll-out checks the parent
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the request
        os._exit(0)
