"""How much A3C learns per frame on minatar/breakout: batched workers, single ones, and pfrl's.

A worker with 8 environments makes an eighth of the updates, so steps per second are not learning
per second. This trains `a3c` with 16 single environments and with 2 x 8, and pfrl's A3C with 16
processes, with the settings of our preset for MinAtar. Ours take turns in one process, which makes
them independent of the machine's speed; pfrl's are asynchronous. Nothing is timed: the speed at
equal learning is that of `a3c.py`, multiplied by how much is learnt per frame.

    python benchmarks/a3c_learning.py --pfrl PYTHON    # about 25 minutes of one core
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from training import PACKAGES, versions
from turns import CONTESTANTS, ROOT, machine, write_results

RESULTS = Path(__file__).parent / "results" / "a3c_learning.json"
FRAMES: Final = 200_000
RETURN: Final = 3.0  # a random agent has 0.5
WINDOW: Final = FRAMES // 20

Episodes = Sequence[tuple[int, float]]
"""The step of all workers at which each episode ended, and its return."""


def commands(pfrl: str | None) -> dict[str, list[str]]:
    """How to start each contestant; the seed is missing."""
    ours = [sys.executable, str(CONTESTANTS / "ours_a3c_learning.py"), "a3c"]
    found = {
        "a3c, 16 workers of 1 environment": [*ours, "16", "1", str(FRAMES)],
        "a3c, 2 workers of 8 environments": [*ours, "2", "8", str(FRAMES)],
    }
    if pfrl:
        script = str(CONTESTANTS / "pfrl_a3c_learning.py")
        found["pfrl a3c, 16 workers"] = [pfrl, script, "16", str(FRAMES)]
    return found


def train(command: Sequence[str], seed: int) -> Episodes:
    """Train with a seed; return the finished episodes."""
    printed = subprocess.run(
        [*command, str(seed)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return [(step, score) for step, score in json.loads(printed[printed.index("[") :])]


def mean_return(episodes: Episodes, first: int, last: int) -> float | None:
    """The mean return of the episodes that end after step `first` and not after `last`."""
    returns = [score for step, score in episodes if first < step <= last]
    return statistics.fmean(returns) if returns else None


def frames_until(episodes: Episodes, target: float, window: int, frames: int) -> int | None:
    """The first frame at which the mean return over the window before it reaches the target."""
    for end in range(window, frames + 1, window // 10):
        recent = mean_return(episodes, end - window, end)
        if recent is not None and recent >= target:
            return end
    return None


def describe(runs: Sequence[Episodes]) -> dict[str, Any]:
    """What the seeds of a contestant have learnt."""
    last_tenth = [mean_return(run, FRAMES - FRAMES // 10, FRAMES) for run in runs]
    whole = [mean_return(run, 0, FRAMES) for run in runs]
    return {
        "frames_to_return": [frames_until(run, RETURN, WINDOW, FRAMES) for run in runs],
        "mean_return": [None if one is None else round(one, 2) for one in whole],
        "mean_return_of_last_tenth": [None if one is None else round(one, 2) for one in last_tenth],
    }


def main() -> None:
    """Train every contestant with every seed, print what they learn and write the results."""
    parser = argparse.ArgumentParser(description="What A3C learns per frame")
    parser.add_argument("--pfrl", help="a Python that has pfrl")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--seeds", type=int, default=3, help="how many runs of each")
    options = parser.parse_args()
    pythons = {"pfrl": options.pfrl} if options.pfrl else {}
    report: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(pythons),
        "frames": FRAMES,
        "return": RETURN,
        "learning": {},
    }
    for name, command in commands(options.pfrl).items():
        found = describe([train(command, seed) for seed in range(options.seeds)])
        report["learning"][name] = found
        print(f"{name}: {found}", flush=True)
    write_results(report, RESULTS, options.out, [] if options.pfrl else [PACKAGES["pfrl"]])


if __name__ == "__main__":
    main()
