"""How the process of a worker begins and ends; torch is imported only once its end is certain."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

from noisynet.loops.channel import Channel
from noisynet.loops.handover import ERROR, encode_error, read_job

_PR_SET_PDEATHSIG: Final = 1


def main() -> NoReturn:
    """Be the worker that the arguments describe; the process ends with this.

    Arguments: the parent's pid, then the descriptors of the channel, the block and the job.
    """
    parent, connection, block, order = map(int, sys.argv[1:5])
    # A signal to the whole group is the parent's to act on: it stops its workers as it sees fit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    _die_with(parent)
    channel, code = Channel.inherited(connection), 0
    try:
        from noisynet.loops.worker import work

        work(read_job(order), block, channel, parent)
    except BaseException as error:
        code = 1
        with suppress(OSError):  # there is nobody left to tell
            channel.send(ERROR, encode_error(error))
    os._exit(code)  # at once: nothing is left to be saved, and somebody may be waiting


def _die_with(parent: int) -> None:
    """Let the system kill this process as soon as its parent dies, however that happens."""
    with suppress(OSError, AttributeError):  # elsewhere than on Linux, every roll-out asks instead
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was faster
        os._exit(0)
