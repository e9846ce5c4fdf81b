"""The command line. Each command imports heavy libraries itself, when it needs them."""

from noisynet.cli.commands import app

__all__ = ["app"]
