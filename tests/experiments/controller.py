"""Runs a sweep in a process of its own (not a test).

Arguments: "stub" or "real", the plan, the parent of the run folders, and options of `build_plan`
and `run_sweep` as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from noisynet.experiments import PlanError, build_plan, run_sweep
from noisynet.experiments.process import ProcessOptions

STUB = Path(__file__).with_name("stub_run.py")


def main() -> None:
    """Run the sweep."""
    kind, plan, out, options = sys.argv[1:]
    process_options = ProcessOptions(tensorboard=False)
    if kind == "stub":
        # Workers of a Ray cluster do not inherit the environment variables of this process.
        orders = f"STUB_ORDERS={os.environ['STUB_ORDERS']}"
        process_options = ProcessOptions(
            tensorboard=False, program=("env", orders, sys.executable, str(STUB))
        )
    try:
        given = json.loads(options)
        running = {key: given.pop(key) for key in ("on", "address", "jobs") if key in given}
        built = build_plan(plan, out=Path(out), **given)
        summary = run_sweep(built, options=process_options, **running)
    except (PlanError, ImportError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    assert "torch" not in sys.modules
    sys.stdout.write(f"{summary}\n")
    sys.exit(summary.exit_code)


if __name__ == "__main__":
    main()
