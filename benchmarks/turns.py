"""Contestants that take turns of a few hundred steps, so that a busy machine slows all alike."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

CONTESTANTS = Path(__file__).parent / "contestants"
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Entry:
    """How to start a contestant.

    Attributes:
        python: the interpreter.
        script: the name of a file in `contestants/`, or the path of another file.
        arguments: the script's arguments.
        variables: environment variables, added to those of this process.
    """

    python: str
    script: str | Path
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """The command line."""
        return [self.python, str(CONTESTANTS / self.script), *self.arguments]


class Contestant:
    """A process that makes as many steps as it is told to, and reports how long they took."""

    def __init__(self, name: str, entry: Entry) -> None:
        self.name = name
        self.process = subprocess.Popen(
            entry.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **entry.variables},
        )

    def read(self) -> float:
        """Wait for the seconds of the last turn; of the warm-up before the first."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            try:
                return float(line)
            except ValueError:
                continue  # a library's greeting
        raise RuntimeError(f"the contestant {self.name!r} died with code {self.process.wait()}")

    def run(self, steps: int) -> float:
        """Steps per second over a turn of `steps`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return steps / self.read()

    def stop(self) -> None:
        """Let the process end by itself, so that it removes its files; kill it after a minute."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def take_turns(
    entries: Mapping[str, Entry], rounds: int, steps: Mapping[str, int] | int
) -> dict[str, list[float]]:
    """The steps per second of each contestant in every round.

    Args:
        entries: the contestants by name.
        rounds: how many turns each takes.
        steps: the length of a turn, the same for all or by name.
    """
    lengths = steps if isinstance(steps, Mapping) else dict.fromkeys(entries, steps)
    running: dict[str, Contestant] = {}
    try:
        for name, entry in entries.items():
            print(f"  warming up: {name}", flush=True)
            running[name] = Contestant(name, entry)
            running[name].read()
        speeds: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(rounds):
            for name, contestant in running.items():
                speeds[name].append(contestant.run(lengths[name]))
    finally:
        for contestant in running.values():
            contestant.stop()
    return speeds


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The quartiles, the median in the middle; three times the value if there is only one."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def ratio(of: Sequence[float], to: Sequence[float]) -> dict[str, Any]:
    """The ratio of two contestants in the same round: median and quartiles over the rounds."""
    low, middle, high = quartiles([mine / theirs for mine, theirs in zip(of, to, strict=True)])
    return {"ratio": round(middle, 3), "ratio_quartiles": [round(low, 3), round(high, 3)]}


def summarise(
    speeds: Mapping[str, Sequence[float]], to: str, unit: str = "steps"
) -> dict[str, dict[str, Any]]:
    """Median speeds, and ratios to one contestant."""
    return {
        name: {
            f"{unit}_per_second": round(statistics.median(values), 1),
            "to": to,
            **ratio(values, speeds[to]),
        }
        for name, values in speeds.items()
    }


def compare(
    speeds: Mapping[str, Sequence[float]], pairs: Sequence[tuple[str, Sequence[str]]]
) -> dict[str, dict[str, Any]]:
    """Ratios of speed, by "one ÷ other".

    Args:
        speeds: steps per second of each contestant in every round.
        pairs: a contestant, and those among which it is compared with the fastest. Contestants that
            did not take part are left out.
    """
    found = {}
    for of, others in pairs:
        present = [name for name in others if name in speeds]
        if of in speeds and present:
            to = max(present, key=lambda name: statistics.median(speeds[name]))
            found[f"{of} ÷ {to}"] = ratio(speeds[of], speeds[to])
    return found


def show(title: str, summary: Mapping[str, Mapping[str, Any]], unit: str = "steps") -> None:
    """Print what `summarise` or `compare` returned as a table."""
    print(title)
    width = 2 + max(map(len, summary), default=0)
    for name, row in summary.items():
        low, high = row["ratio_quartiles"]
        speed = f"{row[f'{unit}_per_second']:>10.1f} {unit}/s " if "to" in row else ""
        to = f" × {row['to']}" if "to" in row else ""
        print(
            f"  {name:<{width}}{speed}{row['ratio']:>7.2f}{to} (quartiles {low:.2f} to {high:.2f})"
        )


def commit(checkout: Path) -> str:
    """The commit of a checkout, "-dirty" with changes; "unknown" without git."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    try:
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """The machine and the versions of this process."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "noisynet": commit(ROOT),
    }


def write_results(
    report: Mapping[str, Any], cited: Path, out: Path | None, missing: Sequence[str] = ()
) -> None:
    """Write the results as JSON; the cited file is overwritten only if no peer is missing.

    Args:
        report: what was measured.
        cited: the file in `results/`, which README.md cites.
        out: another file, if the user wants one.
        missing: the peers that did not take part.
    """
    path = out or (None if missing else cited)
    if path is None:
        print(
            f"not written: {cited.name} is cited with {', '.join(missing)}, which did not take "
            "part; give their Pythons, or --out PATH to write these figures elsewhere"
        )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {path}")
