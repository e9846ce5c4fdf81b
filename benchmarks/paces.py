"""How fast runs went, from their own logs: what `noisynet sweep --dry-run` reckons with.

    python benchmarks/paces.py RUNS…

Nothing is compared here, and runs that shared a machine slowed each other: the figures only say
about how long a sweep will take where nothing better is known.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from turns import keep, machine

from noisynet.experiments.estimate import paces_below

RESULTS = Path(__file__).parent / "results" / "paces.json"


def main() -> None:
    """Collect the paces, print them and write the results."""
    parser = argparse.ArgumentParser(description="Agent steps per second, from runs' own logs")
    parser.add_argument("runs", nargs="+", type=Path, help="folders that hold runs, at any depth")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": machine()}
    for folder in options.runs:
        for (agent, family), pace in sorted(paces_below(folder).items()):
            speed = round(pace.steps_per_second, 1)
            report.setdefault(family, {})[agent] = {"steps_per_second": speed}
            print(f"{agent:<26}{family:<10}{speed:>9.1f} steps/s")
    keep(report, RESULTS, options.out, [])


if __name__ == "__main__":
    main()
