"""One update of DQN on Atari frames, with and without noise, against the processor's bound.

    python benchmarks/train_step.py

An update is a batch of 32: two forward passes, one backward pass, and the optimiser. Its
floating-point operations, divided by the speed of a large matrix product that takes turns with it,
bound its time from below; reported is the multiple of that bound. Each setting of `compute` is
measured with 1, 2 and 4 threads. Results must not depend on either but for rounding: the weights
after 10 updates are compared, too. It takes about 8 minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from turns import ROOT, Entry, machine, quartiles, take_turns, write_results

from noisynet.config.compute import cxx_compiler

RESULTS = Path(__file__).parent / "results" / "train_step.json"
AGENTS: Final = ("dqn", "noisynet-dqn")
COMPUTES: Final = ("torch", "auto", "compile")
BATCH: Final = 32
SIDE: Final = 1536  # of the matrices: large enough for the product to be as fast as it gets


def multiplications() -> int:
    """Of one forward pass of one observation through Nature DQN, each with an addition."""
    convolutions = 20**2 * 32 * 4 * 8**2 + 9**2 * 64 * 32 * 4**2 + 7**2 * 64 * 64 * 3**2
    return convolutions + 3136 * 512 + 512 * 6


def operations() -> int:
    """Floating-point operations of an update of DQN: two passes, and the gradients.

    The gradient of the frames is not computed.
    """
    first = 20**2 * 32 * 4 * 8**2
    return 2 * BATCH * (4 * multiplications() - first)


def update_entry(agent: str, environment: str, *arguments: str) -> Entry:
    """A contestant that makes one update after the other."""
    arguments = (agent, environment, *arguments)
    return Entry(sys.executable, "updates.py", arguments, {"PYTHONPATH": str(ROOT)})


def product_name(threads: int) -> str:
    """The contestant that bounds updates with so many threads; more than cores do not help."""
    return f"matrix product, {threads_label(min(threads, os.cpu_count() or 1))}"


def threads_label(threads: int) -> str:
    """In the name of a contestant."""
    return f"{threads} thread" + "s" * (threads > 1)


def contestants(threads: Sequence[int], folder: Path) -> dict[str, Entry]:
    """All of them by name; each writes its weights to a file of that name."""
    found = {
        product_name(count): Entry(
            sys.executable, "matrix_product.py", (str(SIDE), str(min(count, os.cpu_count() or 1)))
        )
        for count in threads
    }
    computes = COMPUTES if cxx_compiler() else COMPUTES[:2]
    for agent, compute, count in product(AGENTS, computes, threads):
        name = f"{agent}, {compute}, {threads_label(count)}"
        settings = (f"compute={compute}", f"threads={count}")
        save = ("--save", str(folder / f"{name}.npy"))
        found[name] = update_entry(agent, "atari/pong", *save, *settings)
    return found


def summarise(
    speeds: Mapping[str, Sequence[float]], threads: Sequence[int], folder: Path
) -> dict[str, dict[str, Any]]:
    """For each contestant its time, the multiple of the bound, and how its weights differ."""
    summary: dict[str, dict[str, Any]] = {}
    for name in speeds:
        if name.startswith("matrix product"):
            continue
        agent, compute, label = name.split(", ")
        count = next(n for n in threads if threads_label(n) == label)
        # Updates per second, if its operations were as fast as the product's.
        bounds = [2 * SIDE**3 * speed / operations() for speed in speeds[product_name(count)]]
        multiples = [bound / mine for bound, mine in zip(bounds, speeds[name], strict=True)]
        low, middle, high = quartiles(multiples)
        reference = f"{agent}, torch, {threads_label(threads[0])}"
        summary[name] = {
            "agent": agent,
            "compute": compute,
            "threads": count,
            "milliseconds": round(1000 / statistics.median(speeds[name]), 2),
            "times_the_bound": round(middle, 2),
            "quartiles": [round(low, 2), round(high, 2)],
            "largest_difference": difference(folder / f"{name}.npy", folder / f"{reference}.npy"),
        }
    return summary


def difference(weights: Path, reference: Path) -> float:
    """The largest difference of a weight, as a share of the largest change by the updates."""
    (_, mine), (initial, theirs) = np.load(weights), np.load(reference)
    largest = np.abs(mine - theirs).max() / np.abs(theirs - initial).max()
    return float(f"{largest:.2g}")


def main() -> None:
    """Measure, print the table and write the results."""
    parser = argparse.ArgumentParser(description="One update of Atari DQN against its bound")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contestant")
    parser.add_argument("--steps", type=int, default=8, help="updates of each turn")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        entries = contestants(options.threads, Path(folder))
        speeds = take_turns(entries, options.rounds, options.steps)
        updates = summarise(speeds, options.threads, Path(folder))
    products = {
        name: round(2 * SIDE**3 * statistics.median(values) / 1e9, 1)
        for name, values in speeds.items()
        if name.startswith("matrix product")
    }
    print(f"{operations() / 1e9:.2f} GFLOP per update; GFLOP/s: {products}")
    for name, row in updates.items():
        low, high = row["quartiles"]
        print(
            f"  {name:<34}{row['milliseconds']:>8.1f} ms {row['times_the_bound']:>6.2f} × the bound"
            f" (quartiles {low:.2f} to {high:.2f}), difference {row['largest_difference']:.1e}"
        )
    report = {
        "machine": machine(),
        "rounds": options.rounds,
        "gflop_of_an_update": round(operations() / 1e9, 3),
        "gflop_per_second": products,
        "updates": updates,
    }
    write_results(report, RESULTS, options.out)


if __name__ == "__main__":
    main()
