"""The entry point of the command `noisynet`: what holds for all commands."""

from __future__ import annotations

import os
import sys

from noisynet.cli.commands import app
from noisynet.cli.messages import say


def main() -> None:
    """Run a command. An error of the system ends it with a sentence, not with a traceback."""
    _open_closed_streams()
    try:
        app()
    except (MemoryError, OSError) as error:
        say(f"noisynet: {str(error) or 'there is not enough memory'}")
        sys.exit(1)


def _open_closed_streams() -> None:
    """Let closed standard streams lead nowhere.

    Otherwise the next file that is opened would take the place of standard output, and messages
    would be written into it.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
            setattr(sys, name, open(descriptor, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
