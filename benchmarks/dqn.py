"""Whole training on atari/pong: agent steps per second, ours against the peers'.

The workload is Nature DQN's: one environment, frame skip 4, batch 32, an update every 4 steps or
every step, a replay of 20,000 steps that is already being learnt from. Each contestant is a process
of its own (`contestants/`), and they take turns.

    python benchmarks/dqn.py --sb3 PYTHON --pfrl PYTHON --tianshou PYTHON --torchrl PYTHON

PYTHON is the interpreter of an environment that has the peer (benchmarks/README.md says how to make
one); a plain loop in the manner of CleanRL runs in that of stable-baselines3. `--before PATH` lets
the agents of another checkout take part. With all peers it takes about 20 minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from training import (
    AGENTS,
    Table,
    Workload,
    before_entries,
    our_entries,
    parse,
    run_tables,
)
from turns import Entry

from noisynet.config.compute import cxx_compiler

RESULTS = Path(__file__).parent / "results" / "dqn.json"
PEERS: Final = ("sb3", "pfrl", "tianshou", "torchrl")
COMPARED: Final = AGENTS[:2]  # under every setting of `compute`, and with another version


def peer_entries(workload: Workload, options: argparse.Namespace) -> dict[str, Entry]:
    """The peers that are given."""
    schedule, found = workload.schedule, {}
    if python := options.sb3:
        common = (workload.environment, *schedule)
        found["stable-baselines3 dqn"] = Entry(python, "sb3_dqn.py", common)
        found["plain loop dqn"] = Entry(python, "plain_loop_dqn.py", common)
    if python := options.pfrl:
        found["pfrl dqn"] = Entry(python, "pfrl_dqn.py", ("plain", *schedule))
        found["pfrl noisy dqn"] = Entry(python, "pfrl_dqn.py", ("noisy", *schedule))
    for peer in ("tianshou", "torchrl"):
        if python := getattr(options, peer):
            found[f"{peer} dqn"] = Entry(python, f"{peer}_dqn.py", schedule)
    return found


def table(options: argparse.Namespace, update_period: int) -> Table:
    """The contestants with an update every so many steps."""
    workload = Workload("atari/pong", update_period, options.warm_up)
    computes = ("", ", torch", ", compile") if cxx_compiler() else ("", ", torch")
    entries = our_entries(workload, AGENTS, "auto")
    for compute in computes[1:]:
        entries |= our_entries(workload, COMPARED, compute.removeprefix(", "))
    entries |= before_entries(workload, COMPARED, options.before)
    peers = peer_entries(workload, options)
    plain = [name for name in peers if name != "pfrl noisy dqn"]
    pairs: list[tuple[str, list[str]]] = []
    for compute in computes:
        pairs += [(f"dqn{compute}", ["stable-baselines3 dqn"]), (f"dqn{compute}", plain)]
        pairs += [(f"noisynet-dqn{compute}", [f"dqn{compute}"])]
        pairs += [(f"{agent}{compute}", [f"before {agent}"]) for agent in COMPARED]
    pairs += [("noisynet-dqn", ["pfrl noisy dqn"]), ("noisynet-dueling", ["dueling"])]
    steps = max(20, options.steps * (update_period + 1) // 5)  # turns of about the same time
    return Table(entries | peers, steps, pairs)


def main() -> None:
    """Measure with an update every 4 steps and with one every step."""
    options = parse("Agent steps per second on atari/pong", PEERS, rounds=7, steps=160)
    tables = {
        "update every 4 steps": table(options, 4),
        "update every step": table(options, 1),
    }
    run_tables(tables, options, PEERS, RESULTS)


if __name__ == "__main__":
    main()
