"""Contestants that take turns of a few hundred steps, so that a busy machine slows all alike."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

CONTESTANTS = Path(__file__).parent / "contestants"


@dataclass(frozen=True)
class Entry:
    """Who takes part.

    Attributes:
        python: the interpreter of its environment.
        script: in `contestants/`.
        arguments: of the script.
    """

    python: str
    script: str
    arguments: tuple[str, ...] = ()


class Contestant:
    """A process that runs so many steps when told to, and says how long they took."""

    def __init__(self, entry: Entry) -> None:
        self.process = subprocess.Popen(
            [entry.python, str(CONTESTANTS / entry.script), *entry.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.read()  # the warm-up

    def read(self) -> float:
        """Wait for the time of the last turn."""
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"a contestant died with code {self.process.wait()}")
            try:
                return float(line)
            except ValueError:
                continue  # a library's greeting

    def run(self, steps: int) -> float:
        """Agent steps per second over `steps`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return steps / self.read()

    def stop(self) -> None:
        """Let the process end by itself, so that it clears up."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def take_turns(entries: Mapping[str, Entry], rounds: int, steps: int) -> dict[str, list[float]]:
    """The steps per second of each contestant in every round."""
    running: dict[str, Contestant] = {}
    try:
        for name, entry in entries.items():
            running[name] = Contestant(entry)
        speeds: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(rounds):
            for name, contestant in running.items():
                speeds[name].append(contestant.run(steps))
    finally:
        for contestant in running.values():
            contestant.stop()
    return speeds


def summarise(
    speeds: Mapping[str, Sequence[float]], to: str, unit: str = "steps"
) -> dict[str, Any]:
    """Medians, and ratios to one of them in the same round with their quartiles."""
    summary = {}
    for name, values in speeds.items():
        ratios = [mine / theirs for mine, theirs in zip(values, speeds[to], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        summary[name] = {
            f"{unit}_per_second": round(statistics.median(values), 1),
            f"ratio_to_{to}": round(middle, 3),
            "ratio_quartiles": [round(low, 3), round(high, 3)],
        }
    return summary


def show(title: str, summary: Mapping[str, Any], to: str, unit: str = "steps") -> None:
    """Print a table."""
    print(title)
    width = 2 + max(map(len, summary))
    for name, row in summary.items():
        low, high = row["ratio_quartiles"]
        print(
            f"  {name:<{width}}{row[f'{unit}_per_second']:>9.1f} {unit}/s "
            f"{row[f'ratio_to_{to}']:>6.2f} × {to} (quartiles {low:.2f} to {high:.2f})"
        )


def machine() -> dict[str, Any]:
    """Where this was measured."""
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def keep(report: Mapping[str, Any], cited: Path, out: Path | None, missing: Sequence[str]) -> None:
    """Write the results where they are wanted; those that are cited only if nobody is missing.

    Args:
        report: what was measured.
        cited: the file that pages cite.
        out: where the user wants it, or None.
        missing: the peers that did not take part.
    """
    path = out or (None if missing else cited)
    if path is None:
        print(
            f"not written: {cited.name} is cited with {', '.join(missing)}, who did not take part; "
            "let them, or give --out PATH to keep these figures"
        )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {path}")
