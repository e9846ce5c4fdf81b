"""Which questions of the audit the noisy layers and agents of other libraries fail.

python benchmarks/audit_libraries.py --pfrl PYTHON --agilerl PYTHON --cleanrl FOLDER

Each contestant uses its library's own layer and agent as its own code does. Stable-Baselines3,
TorchRL and Tianshou are extras of noisynet and run with this Python; pfrl and AgileRL with the
Python of their environments; CleanRL is a checkout. Libraries in JAX were read (audit_readings.py).
It takes two minutes. `python benchmarks/tables.py --write` writes the tables of docs/audit.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from audit_readings import READINGS
from turns import CONTESTANTS, ROOT, Entry, write_results

RESULTS = Path(__file__).parent / "results" / "audit.json"


def entries(options: argparse.Namespace) -> dict[str, Entry]:
    """The contestants whose libraries are here, by library."""
    here = sys.executable
    found = {
        "noisynet": Entry(here, "noisynet_audit.py"),
        "SB3, gated layer": Entry(here, "sb3_audit.py"),
        "TorchRL": Entry(here, "torchrl_audit.py"),
        "Tianshou": Entry(here, "tianshou_audit.py"),
    }
    if options.cleanrl:
        found["CleanRL"] = Entry(here, "cleanrl_audit.py", (options.cleanrl,))
    if options.agilerl:
        found["AgileRL"] = Entry(options.agilerl, "agilerl_audit.py")
    if options.pfrl:
        found["pfrl"] = Entry(options.pfrl, "pfrl_audit.py")
    return found


def run(entry: Entry) -> dict[str, Any]:
    """What a contestant hands over: its last line."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "benchmarks", CONTESTANTS)))
    variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    output = subprocess.run(
        entry.command, check=True, text=True, stdout=subprocess.PIPE, env=variables
    ).stdout
    handed: dict[str, Any] = json.loads(output.splitlines()[-1])
    return handed


def show(library: str, handed: dict[str, Any]) -> None:
    """Print the failures of a library."""
    for kind in ("layer", "agent"):
        if kind in handed:
            checks = handed[kind]["checks"]
            failed = [check["question"] for check in checks if check["passed"] is False]
            asked = sum(check["passed"] is not None for check in checks)
            print(f"{library} {handed['version']}, {kind}: {len(failed)} of {asked} fail")
            for question in failed:
                print(f"  {question}")


def main() -> None:
    """Audit all libraries that are here and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pfrl", help="a Python that has pfrl")
    parser.add_argument("--agilerl", help="a Python that has agilerl")
    parser.add_argument("--cleanrl", help="a checkout of CleanRL")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    options = parser.parse_args()
    libraries: dict[str, Any] = {}
    for library, entry in entries(options).items():
        libraries[library] = run(entry)
        show(library, libraries[library])
    for library, read in READINGS.items():
        libraries[library] = read
        show(library, read)
    missing = [name for name in ("pfrl", "agilerl", "cleanrl") if not getattr(options, name)]
    report = {"torch": torch.__version__, "libraries": libraries}
    write_results(report, RESULTS, options.out, missing)


if __name__ == "__main__":
    main()
