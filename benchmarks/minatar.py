"""Whole training on minatar/breakout with one update per frame, against stable-baselines3.

    python benchmarks/minatar.py --sb3 path/to/bin/python

The workload is Young & Tian's: one convolution of 16 filters, 128 hidden units, batch 32. Each
contestant is a process of its own (`contestants/`), and they take turns. stable-baselines3 needs
an environment of its own outside the repository: `pip install torch==2.13.0`, then `pip install
stable-baselines3 minatar`. Only with it are the results, which are cited, written over; `--out`
writes whatever there is elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from turns import Entry, keep, machine, show, summarise, take_turns

RESULTS = Path(__file__).parent / "results" / "minatar.json"
GAME: Final = "minatar/breakout"
REST: Final = ("1", "1000")  # an update at every step, which begin after as many
AGENTS: Final = ("dqn", "noisynet-dqn", "dueling", "noisynet-dueling")


def main() -> None:
    """Let the contestants take turns, print the table and, with the peer, write the results."""
    parser = argparse.ArgumentParser(description="Agent steps per second on minatar/breakout")
    parser.add_argument("--sb3", help="the Python of an environment with stable-baselines3")
    parser.add_argument("--out", type=Path, help="where the JSON goes, with or without --sb3")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=400, help="steps of each turn")
    options = parser.parse_args()
    entries = {agent: Entry(sys.executable, "ours.py", (agent, GAME, *REST)) for agent in AGENTS}
    if options.sb3:
        entries["stable-baselines3 dqn"] = Entry(options.sb3, "sb3_dqn.py", (GAME, *REST))
    speeds = take_turns(entries, options.rounds, options.steps)
    report: dict[str, Any] = {
        "machine": machine(),
        "rounds": options.rounds,
        "steps": options.steps,
        "update every step": summarise(speeds, "dqn"),
    }
    show("an update every step", report["update every step"], "dqn")
    keep(report, RESULTS, options.out, [] if options.sb3 else ["stable-baselines3"])


if __name__ == "__main__":
    main()
