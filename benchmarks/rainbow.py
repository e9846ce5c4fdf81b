"""Whole training of Rainbow on atari/pong: agent steps per second, ours against pfrl's.

    python benchmarks/rainbow.py --pfrl PYTHON

The workload is that of `dqn.py`, whose docstring explains the options, with prioritised replay,
3-step returns, 51 atoms and double Q-learning. The checkout of `--before` must have the agent
`rainbow`. With pfrl it takes about 10 minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from training import Table, Workload, before_entries, our_entries, parse, run_tables
from turns import Entry

RESULTS = Path(__file__).parent / "results" / "rainbow.json"
PEERS: Final = ("pfrl",)
AGENTS: Final = ("dqn", "noisynet-dueling", "rainbow", "rainbow-without-noise")


def table(options: argparse.Namespace, update_period: int) -> Table:
    """The contestants with an update every so many steps."""
    workload = Workload("atari/pong", update_period, options.warm_up)
    entries = our_entries(workload, AGENTS, "auto")
    entries |= before_entries(workload, ("rainbow",), options.before)
    if options.pfrl:
        entries["pfrl rainbow"] = Entry(options.pfrl, "pfrl_rainbow.py", workload.schedule)
    pairs: list[tuple[str, list[str]]] = [
        ("rainbow", ["pfrl rainbow"]),
        ("rainbow", ["noisynet-dueling"]),
        ("rainbow", ["rainbow-without-noise"]),
        ("rainbow", ["before rainbow"]),
    ]
    steps = max(20, options.steps * (update_period + 1) // 5)  # turns of about the same time
    return Table(entries, steps, pairs)


def main() -> None:
    """Measure with an update every 4 steps and with one every step."""
    options = parse("Agent steps per second of Rainbow on atari/pong", PEERS, rounds=7, steps=100)
    tables = {
        "update every 4 steps": table(options, 4),
        "update every step": table(options, 1),
    }
    run_tables(tables, options, PEERS, RESULTS)


if __name__ == "__main__":
    main()
