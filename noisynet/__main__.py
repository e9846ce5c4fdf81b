"""`python -m noisynet` is the command `noisynet`."""

from noisynet.cli import main

if __name__ == "__main__":
    main()
