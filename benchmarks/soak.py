"""Memory and open files of long runs: python benchmarks/soak.py; ten minutes on two cores.

A million frames of CartPole and 200,000 of MinAtar Breakout, with evaluations and checkpoints, each
in a process of its own, side by side. Resident memory without the replay's pages, which belong to
files, and open descriptors are sampled every second; the table has their maxima in each tenth of
the time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from turns import machine, write_results

RESULTS = Path(__file__).parent / "results" / "soak.json"
RUNS = {
    "gym/CartPole-v1, 1,000,000 frames": ["gym/CartPole-v1", "--frames", "1M"],
    "minatar/breakout, 200,000 frames": [
        *("minatar/breakout", "--frames", "200k"),
        *("--set", "evaluation.period_frames=20000", "--set", "evaluation.frames=5000"),
    ],
}


def sample(pid: int) -> tuple[float, int] | None:
    """Anonymous resident memory in MB and the number of open files; None if the process ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["RssAnon"].split()[0]) / 1e3, len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except (OSError, KeyError):
        return None


def by_tenths(values: list[float]) -> list[float]:
    """The maximum of each tenth."""
    size = max(1, len(values) // 10)
    return [round(max(values[start : start + size]), 1) for start in range(0, 10 * size, size)]


def main() -> None:
    """Run, sample and write the results."""
    parser = argparse.ArgumentParser(description="Memory and open files of long runs")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--frames", help="of every run, for a trial")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        started, processes = time.monotonic(), {}
        for name, arguments in RUNS.items():
            more = ["--frames", given.frames] if given.frames else []
            command = ["-m", "noisynet", "train", "noisynet-dqn", *arguments, *more]
            where = ["--out", folder, "--no-tensorboard"]
            processes[name] = subprocess.Popen([sys.executable, *command, *where])
        samples: dict[str, list[tuple[float, int]]] = {name: [] for name in RUNS}
        report: dict[str, Any] = {"machine": machine(), "runs": {}}
        while processes:
            time.sleep(1)
            for name, process in list(processes.items()):
                found = sample(process.pid)
                if process.poll() is not None:
                    report["runs"][name] = {
                        "exit": processes.pop(name).returncode,
                        "minutes": round((time.monotonic() - started) / 60, 1),
                        "memory_mb": by_tenths([memory for memory, _ in samples[name]]),
                        "files": by_tenths([float(files) for _, files in samples[name]]),
                    }
                elif found is not None:
                    samples[name].append(found)
    write_results(report, RESULTS, given.out)


if __name__ == "__main__":
    main()
