"""Whole training on atari/pong: agent steps per second, ours against the peers'.

The workload is Nature DQN's: one environment, frame skip 4, batch 32, an update every 4 steps or
every step, a replay of 20,000 steps that is already being learnt from. Each contestant is a process
of its own (`contestants/`), and they take turns, so that a busy machine slows all alike.

    python benchmarks/dqn.py --sb3 path/to/bin/python --pfrl path/to/bin/python

Peers need environments of their own outside the repository: `pip install torch==2.13.0` first, then
`pip install stable-baselines3 ale-py opencv-python-headless` for one, `pip install pfrl gymnasium
ale-py opencv-python-headless` for the other. A plain loop in the manner of CleanRL runs in the
first. Only with both are the results, which are cited, written over; `--out` writes whatever there
is elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from turns import Entry, keep, machine, show, summarise, take_turns

RESULTS = Path(__file__).parent / "results" / "dqn.json"
WARM_UP_STEPS: Final = "1000"  # learning starts after as many
AGENTS: Final = ("dqn", "noisynet-dqn", "dueling", "noisynet-dueling")
PERIODS: Final = {"update every 4 steps": 4, "update every step": 1}


def entries(sb3: str | None, pfrl: str | None, period: int) -> dict[str, Entry]:
    """Those that take part."""
    rest = (str(period), WARM_UP_STEPS)
    found = {
        agent: Entry(sys.executable, "ours.py", (agent, "atari/pong", *rest)) for agent in AGENTS
    }
    if sb3:
        found["stable-baselines3 dqn"] = Entry(sb3, "sb3_dqn.py", ("atari/pong", *rest))
        found["plain loop dqn"] = Entry(sb3, "plain_loop_dqn.py", rest)
    if pfrl:
        found["pfrl dqn"] = Entry(pfrl, "pfrl_dqn.py", ("plain", *rest))
        found["pfrl noisy dqn"] = Entry(pfrl, "pfrl_dqn.py", ("noisy", *rest))
    return found


def main() -> None:
    """Let the contestants take turns, print the tables and, with the peers, write the results."""
    parser = argparse.ArgumentParser(description="Agent steps per second on atari/pong")
    parser.add_argument("--sb3", help="the Python of an environment with stable-baselines3")
    parser.add_argument("--pfrl", help="the Python of an environment with pfrl")
    parser.add_argument("--out", type=Path, help="where the JSON goes, with or without peers")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=160, help="steps of each turn")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "machine": machine(),
        "rounds": options.rounds,
        "steps": options.steps,
    }
    for title, period in PERIODS.items():
        steps = max(20, options.steps * (period + 1) // 5)  # about as long
        speeds = take_turns(entries(options.sb3, options.pfrl, period), options.rounds, steps)
        report[title] = summarise(speeds, "dqn")
        show(title, report[title], "dqn")
    peers = {"stable-baselines3": options.sb3, "pfrl": options.pfrl}
    keep(report, RESULTS, options.out, [name for name, python in peers.items() if not python])


if __name__ == "__main__":
    main()
