"""Whole training on atari/pong: agent steps per second, ours against the peers'.

The workload is Nature DQN's: one environment, frame skip 4, batch 32, an update every 4 steps or
every step, a replay of 20,000 steps that is already being learnt from. Each contestant is a process
of its own (`contestants/`), and they take turns, so that a busy machine slows all alike.

    python benchmarks/dqn.py --sb3 PYTHON --pfrl PYTHON --tianshou PYTHON --torchrl PYTHON

Peers need environments of their own outside the repository, of which PYTHON is path/to/bin/python:
`pip install torch==2.13.0` first, then `pip install stable-baselines3 ale-py
opencv-python-headless` for the first, in which a plain loop in the manner of CleanRL runs, too, and
`pip install pfrl tianshou torchrl gymnasium ale-py opencv-python-headless` for another, which those
three can share. Only with all of them are the results, which are cited, written over; `--out`
writes whatever there is elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from turns import Entry, keep, machine, show, summarise, take_turns

RESULTS = Path(__file__).parent / "results" / "dqn.json"
WARM_UP_STEPS: Final = "1000"  # learning starts after as many
AGENTS: Final = ("dqn", "noisynet-dqn", "dueling", "noisynet-dueling")
PERIODS: Final = {"update every 4 steps": 4, "update every step": 1}
PEERS: Final = {  # by the options that name their environments
    "sb3": "stable-baselines3",
    "pfrl": "pfrl",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
}


def entries(pythons: Mapping[str, str | None], period: int) -> dict[str, Entry]:
    """Those that take part.

    Args:
        pythons: the interpreters of the peers' environments by their options, None without one.
        period: steps between updates.
    """
    rest = (str(period), WARM_UP_STEPS)
    found = {
        agent: Entry(sys.executable, "ours.py", (agent, "atari/pong", *rest)) for agent in AGENTS
    }
    if python := pythons["sb3"]:
        found["stable-baselines3 dqn"] = Entry(python, "sb3_dqn.py", ("atari/pong", *rest))
        found["plain loop dqn"] = Entry(python, "plain_loop_dqn.py", rest)
    if python := pythons["pfrl"]:
        found["pfrl dqn"] = Entry(python, "pfrl_dqn.py", ("plain", *rest))
        found["pfrl noisy dqn"] = Entry(python, "pfrl_dqn.py", ("noisy", *rest))
    for peer in ("tianshou", "torchrl"):
        if python := pythons[peer]:
            found[f"{peer} dqn"] = Entry(python, f"{peer}_dqn.py", rest)
    return found


def main() -> None:
    """Let the contestants take turns, print the tables and, with the peers, write the results."""
    parser = argparse.ArgumentParser(description="Agent steps per second on atari/pong")
    for option, peer in PEERS.items():
        parser.add_argument(f"--{option}", help=f"the Python of an environment with {peer}")
    parser.add_argument("--out", type=Path, help="where the JSON goes, with or without peers")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=160, help="steps of each turn")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "machine": machine(),
        "rounds": options.rounds,
        "steps": options.steps,
    }
    pythons = {option: getattr(options, option) for option in PEERS}
    for title, period in PERIODS.items():
        steps = max(20, options.steps * (period + 1) // 5)  # about as long
        speeds = take_turns(entries(pythons, period), options.rounds, steps)
        report[title] = summarise(speeds, "dqn")
        show(title, report[title], "dqn")
    missing = [peer for option, peer in PEERS.items() if not pythons[option]]
    keep(report, RESULTS, options.out, missing)


if __name__ == "__main__":
    main()
