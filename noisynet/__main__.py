"""`python -m noisynet` is the command `noisynet`."""

from noisynet.cli import app

app()
