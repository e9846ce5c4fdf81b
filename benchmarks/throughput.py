"""Writes the throughputs with which `noisynet sweep --dry-run` estimates the time of a sweep.

    python benchmarks/throughput.py [RUNS…]

Those of Atari, MinAtar and CartPole come from the results of dqn.py, minatar.py, cartpole.py and
a3c.py. Others, and any of RUNS, come from the logs of runs, which may have shared a machine: they
are estimates, not a comparison. Throughputs that are not measured again are kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from noisynet.config import AGENTS
from noisynet.experiments import throughput
from noisynet.experiments.throughput import measure_throughputs

RESULTS = Path(__file__).parent / "results"
SHIPPED = Path(throughput.__file__).with_name(throughput.FILE)
# The family, frames per step, file and table of the benchmarks that measure our agents.
BENCHMARKS = (
    ("atari", 4, "dqn.json", "update every 4 steps"),
    ("atari", 4, "a3c.json", "two workers"),
    ("minatar", 1, "a3c.json", "minatar/breakout, two workers"),
    ("minatar", 1, "minatar.json", "update every step"),
    ("gym", 1, "cartpole.json", "update every step"),
)

Families = dict[str, dict[str, dict[str, Any]]]


def from_benchmarks(results: Path = RESULTS) -> Families:
    """The throughput of every agent that the benchmarks have measured."""
    families: Families = {}
    for family, frames_per_step, file, table in BENCHMARKS:
        if not (results / file).exists():
            continue
        measurements = json.loads((results / file).read_text()).get(table, {})
        for agent, measured in measurements.items():
            if agent in AGENTS:
                families.setdefault(family, {})[agent] = {
                    "steps_per_second": measured["steps_per_second"],
                    "frames_per_step": frames_per_step,
                    "source": f"benchmarks/results/{file}",
                }
    return families


def from_logs(folder: Path) -> Families:
    """The median throughput of the runs below a folder."""
    families: Families = {}
    for (agent, family), measured in measure_throughputs(folder).items():
        families.setdefault(family, {})[agent] = {
            "steps_per_second": round(measured.steps_per_second, 1),
            "frames_per_step": round(measured.frames_per_step),
            "source": "logs of runs",
        }
    return families


def main() -> None:
    """Collect the throughputs, print them and write the package's file."""
    parser = argparse.ArgumentParser(description="Agent steps per second, by family and agent")
    parser.add_argument("runs", nargs="*", type=Path, help="folders that hold runs, at any depth")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the JSON file to write")
    options = parser.parse_args()
    families: Families = json.loads(SHIPPED.read_text())["families"]
    for update in (from_benchmarks(), *map(from_logs, options.runs)):
        for family, agents in update.items():
            families[family] = {**families.get(family, {}), **agents}
    for family, agents in families.items():
        for agent, measured in agents.items():
            print(f"{agent:<26}{family:<10}{measured['steps_per_second']:>9.1f} steps/s")
    options.out.write_text(json.dumps({"families": families}, indent=2) + "\n")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
