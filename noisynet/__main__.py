"""`python -m noisynet` is the command `noisynet`."""

from noisynet.cli import app

if __name__ == "__main__":
    app()
