"""What commands print."""

from __future__ import annotations

from typing import NoReturn

import typer


def show(text: str) -> None:
    """Print a result to standard output."""
    typer.echo(text)


def say(text: str) -> None:
    """Print a message about progress to standard error."""
    typer.echo(text, err=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """Print an error and exit: with 2 for a bad command, with 1 for anything else."""
    for line in message.splitlines():
        typer.echo(f"noisynet: {line}", err=True)
    raise typer.Exit(code)
