"""The cost of the report of a full study: 57 games, 7 agents, 3 seeds, 200 or 320 evaluations each.

    python benchmarks/report.py    # writes 1,197 run folders, 164 MB in a temporary folder

The study is synthetic, made by the code of the tests. The report is written by a process of its
own, whose time and peak memory are measured, imports included. It takes about a minute.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "report.json"
REPORT = """
import sys
from pathlib import Path
from noisynet.reports import write_report
summary = write_report([Path(sys.argv[1])], Path(sys.argv[2]))
print(summary.runs, summary.files)
"""


def write_study(out: Path, seeds: int) -> int:
    """Write the run folders; return their number."""
    path = ROOT / "tests" / "reports" / "synthetic_study.py"
    specification = importlib.util.spec_from_file_location("synthetic_study", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    written: int = module.write_full_study(out, seeds)
    return written


def measure(runs: Path, out: Path) -> dict[str, Any]:
    """Seconds, peak memory and size of one report."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    command = [sys.executable, "-c", REPORT, str(runs), str(out)]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    files = [path for path in out.rglob("*") if path.is_file()]
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "memory_mb": round(used.ru_maxrss / 1024),
        "load_average": round(os.getloadavg()[0], 1),
        "files": len(files),
        "report_mb": round(sum(path.stat().st_size for path in files) / 1e6, 1),
        "page_mb": round((out / "index.html").stat().st_size / 1e6, 1),
    }


def main() -> None:
    """Write the study and its report, print and write the results file."""
    parser = argparse.ArgumentParser(description="A report of the full study")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where to write the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        count = write_study(runs, arguments.seeds)
        found = {"runs": count, **measure(runs, Path(folder) / "report")}
    for name, value in found.items():
        print(f"{name:<14}{value:>10,}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
