"""A run's process, which ends when whoever started it does: `… run_process PARENT train …`.

The parent may be killed in any way. Its runs then get SIGTERM from the system, upon which they
write a checkpoint and end, so that the same sweep can be started again at once.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from contextlib import suppress
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Be `noisynet` with the arguments that follow the parent's pid."""
    end_with(int(sys.argv[1]))
    sys.argv = ["noisynet", *sys.argv[2:]]
    runpy.run_module("noisynet", run_name="__main__", alter_sys=True)


def end_with(parent: int) -> None:
    """Let the system send this process SIGTERM as soon as its parent ends."""
    with suppress(OSError, AttributeError):  # elsewhere than on Linux: the run goes on by itself
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was faster
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
