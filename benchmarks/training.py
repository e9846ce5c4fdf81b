"""What the benchmarks of whole training share: options, contestants, tables and results."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from turns import (
    CONTESTANTS,
    ROOT,
    Entry,
    commit,
    compare,
    machine,
    show,
    summarise,
    take_turns,
    write_results,
)

AGENTS: Final = ("dqn", "noisynet-dqn", "dueling", "noisynet-dueling")
PACKAGES: Final = {  # by the options that name a Python that has them
    "sb3": "stable-baselines3",
    "pfrl": "pfrl",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
    "jax": "jax",
}


@dataclass(frozen=True)
class Workload:
    """What every contestant does.

    Attributes:
        environment: its name.
        update_period: steps per update.
        warm_up: steps before learning starts.
    """

    environment: str
    update_period: int
    warm_up: int

    @property
    def schedule(self) -> tuple[str, str]:
        """The arguments UPDATE_PERIOD and WARM_UP of a contestant."""
        return str(self.update_period), str(self.warm_up)


@dataclass(frozen=True)
class Table:
    """A group of contestants that take turns.

    Attributes:
        entries: the contestants by name.
        steps: the length of a turn.
        pairs: the ratios that matter, see `turns.compare`.
    """

    entries: Mapping[str, Entry]
    steps: int
    pairs: Sequence[tuple[str, Sequence[str]]]


def our_entry(
    workload: Workload, agent: str, *settings: str, checkout: Path | None = None
) -> Entry:
    """One of our agents, or that of another checkout by its own copy of the contestant."""
    arguments = (agent, workload.environment, *workload.schedule, *settings)
    script = CONTESTANTS / "ours.py"
    if checkout is not None:
        script = checkout / "benchmarks" / "contestants" / "ours.py"
    return Entry(sys.executable, script, arguments, {"PYTHONPATH": str(checkout or ROOT)})


def our_entries(workload: Workload, agents: Sequence[str], compute: str) -> dict[str, Entry]:
    """Our agents with one setting of `compute`; "auto", the default, is not named."""
    suffix = "" if compute == "auto" else f", {compute}"
    return {f"{a}{suffix}": our_entry(workload, a, f"compute={compute}") for a in agents}


def before_entries(
    workload: Workload, agents: Sequence[str], checkout: Path | None
) -> dict[str, Entry]:
    """The agents of another version; none without a checkout."""
    if checkout is None:
        return {}
    return {f"before {a}": our_entry(workload, a, checkout=checkout.resolve()) for a in agents}


def small_network_table(
    environment: str, options: argparse.Namespace, jax_forms: Mapping[str, tuple[str, ...]]
) -> Table:
    """The contestants of an environment with a small network, with an update at every step.

    Args:
        environment: its name.
        options: the user's.
        jax_forms: how the network is written in JAX: further arguments, by a suffix of the name.
    """
    workload = Workload(environment, 1, options.warm_up)
    entries = our_entries(workload, AGENTS, "auto") | our_entries(workload, AGENTS, "torch")
    entries |= before_entries(workload, AGENTS, options.before)
    rest = (environment, *workload.schedule)
    plain: list[str] = []
    for title, script in (("stable-baselines3", "sb3_dqn.py"), ("plain loop", "plain_loop_dqn.py")):
        # Which number of threads is faster depends on the machine.
        for suffix, threads in (("", ()), (", 1 thread", ("1",))):
            plain.append(f"{title} dqn{suffix}")
            if options.sb3:
                entries[plain[-1]] = Entry(options.sb3, script, rest + threads)
    for suffix, form in jax_forms.items():
        for seeds, label in ((1, "one seed"), (4, "four seeds in all")):
            if options.jax:
                arguments = (environment, str(workload.warm_up), str(seeds), *form)
                entries[f"jax dqn, {label}{suffix}"] = Entry(options.jax, "jax_dqn.py", arguments)
    pairs: list[tuple[str, Sequence[str]]] = [("dqn", plain[:2]), ("dqn", plain[2:])]
    pairs += [("dqn", [f"jax dqn, one seed{suffix}"]) for suffix in jax_forms]
    for compute in ("", ", torch"):
        pairs.append((f"noisynet-dqn{compute}", [f"dqn{compute}"]))
        pairs.append((f"dueling{compute}", [f"dqn{compute}"]))
        pairs.append((f"noisynet-dueling{compute}", [f"dueling{compute}"]))
    pairs += [(agent, [f"{agent}, torch"]) for agent in AGENTS]
    pairs += [(agent, [f"before {agent}"]) for agent in AGENTS]
    return Table(entries, options.steps, pairs)


def parse(description: str, peers: Sequence[str], rounds: int, steps: int) -> argparse.Namespace:
    """The options of the command line.

    Args:
        description: for the help.
        peers: the options that name Pythons, keys of `PACKAGES`.
        rounds: the default number of turns of each contestant.
        steps: the default length of a turn.
    """
    parser = argparse.ArgumentParser(description=description)
    for peer in peers:
        parser.add_argument(f"--{peer}", help=f"a Python that has {PACKAGES[peer]}")
    parser.add_argument(
        "--before", type=Path, help="a checkout of another version, which takes part"
    )
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each contestant")
    parser.add_argument("--steps", type=int, default=steps, help="steps of each turn")
    parser.add_argument(
        "--warm-up", type=int, default=1000, help="steps before learning starts, in hundreds"
    )
    return parser.parse_args()


def run_tables(
    tables: Mapping[str, Table], options: argparse.Namespace, peers: Sequence[str], cited: Path
) -> None:
    """Let the contestants of each table take turns, print the tables and write the results.

    Args:
        tables: by their titles; speeds are compared with dqn's.
        options: of `parse`.
        peers: the options without which the cited results are not written.
        cited: the results file.
    """
    pythons = {peer: getattr(options, peer) for peer in peers}
    report: dict[str, Any] = {
        "machine": machine(),
        "versions": versions({peer: python for peer, python in pythons.items() if python}),
        "before": options.before and commit(options.before),
        "rounds": options.rounds,
        "ratios": {},
    }
    for title, table in tables.items():
        print(title)
        speeds = take_turns(table.entries, options.rounds, table.steps)
        report[title] = summarise(speeds, "dqn")
        report["ratios"][title] = compare(speeds, table.pairs)
        show("steps per second", report[title])
        show("ratios", report["ratios"][title])
    missing = [PACKAGES[peer] for peer, python in pythons.items() if not python]
    write_results(report, cited, options.out, missing)


def versions(pythons: Mapping[str, str]) -> dict[str, str]:
    """The versions of the peers in their environments."""
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    return {
        PACKAGES[peer]: subprocess.check_output(
            [python, "-c", code, PACKAGES[peer]], text=True
        ).strip()
        for peer, python in pythons.items()
    }
