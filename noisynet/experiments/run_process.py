"""The process of a run: `python -m noisynet.experiments.run_process PARENT_PID train …`.

When the parent ends in any way, the kernel sends this process SIGTERM. It then writes a checkpoint
and exits, so that the same sweep can be started again at once. Its exit codes are those of
`noisynet`: `EXIT_LOCKED` if another process holds the run's lock.
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
    """Run `noisynet` with the arguments that follow the parent's pid."""
    exit_with_parent(int(sys.argv[1]))
    sys.argv = ["noisynet", *sys.argv[2:]]
    runpy.run_module("noisynet", run_name="__main__", alter_sys=True)


def exit_with_parent(parent: int) -> None:
    """Let the kernel send this process SIGTERM as soon as its parent ends (Linux only)."""
    with suppress(OSError, AttributeError):  # other systems: the run continues on its own
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the call
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
