"""The command line. Each command imports heavy libraries itself, when it needs them."""

from noisynet.cli.commands import app
from noisynet.cli.entry import main

__all__ = ["app", "main"]
