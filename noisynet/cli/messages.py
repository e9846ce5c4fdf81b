"""What commands print, and how they end."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

import typer


def printable(text: str) -> str:
    """Escape what a terminal would act on, such as colours and titles, except line ends."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def show(text: str) -> None:
    """Print a result to standard output."""
    typer.echo(printable(text))


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a result as aligned columns; a terminal wraps the last one to its width."""
    lines = [header, *([printable(c).replace("\n", "\\n") for c in cells] for cells in rows)]
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    indent = sum(widths) + 2 * len(widths)
    room = max(30, shutil.get_terminal_size().columns - indent) if sys.stdout.isatty() else 10_000
    for *cells, last in lines:
        start = "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True))
        wrapped = textwrap.wrap(last, room, break_long_words=False, break_on_hyphens=False)
        show((start + f"\n{' ' * indent}".join(wrapped)).rstrip())


def say(text: str) -> None:
    """Print a message about progress to standard error; a full one does not end the command."""
    with suppress(OSError):
        typer.echo(printable(text), err=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """Print an error and exit: with 2 for a bad command, with 1 for anything else."""
    for line in message.splitlines():
        say(f"noisynet: {line}")
    raise typer.Exit(code)


@contextmanager
def failing(*errors: type[Exception], code: int = 1) -> Iterator[None]:
    """Print errors of these kinds within the `with`, and exit."""
    try:
        yield
    except errors as error:
        fail(str(error), code)
