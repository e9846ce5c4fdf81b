"""Sweeps of stub runs in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from noisynet.experiments import RunSpec, build_plan, run_sweep
from noisynet.experiments.process import ProcessOptions
from noisynet.runs import MetricsLog, RunFolder, read_metrics

CONTROLLER: Final = Path(__file__).with_name("controller.py")
STUB: Final = Path(__file__).with_name("stub_run.py")

SMALL: Final = """
agents = ["dqn", "noisynet-dqn"]
environments = ["deep_sea/4", "gym/CartPole-v1"]
frames = 400
preset = "classic"

[settings]
"learning.starts_steps" = 60
"learning.update_period_steps" = 4
"replay.capacity_steps" = 120
"network.hidden" = [16]
"evaluation.period_frames" = 150
"evaluation.frames" = 60
checkpoint_period_frames = 50
log_period_steps = 40
"""
"""Two agents on two environments, a second or two of training each."""

NAMES: Final = tuple(
    f"{environment}/{agent}/seed-0"
    for environment in ("deep_sea/4", "gym/CartPole-v1")
    for agent in ("dqn", "noisynet-dqn")
)
"""The four runs of `SMALL`."""


def until(condition: Callable[[], object]) -> None:
    """Wait for another process; the test's timeout is the only limit."""
    while not condition():
        time.sleep(0.02)


def has_ended(pid: int) -> bool:
    """Whether the process does not exist any more."""
    return not Path(f"/proc/{pid}").exists()


def write_logs(spec: RunSpec, state: str, frames: int, *, evaluations: int = 0) -> RunFolder:
    """Write the folder of a run that took 10 s for 500 steps and 50 s for an evaluation."""
    stored = spec.config.model_dump(mode="json")
    folder = RunFolder.create_or_open(spec.folder, stored, must_match=["agent"])
    with MetricsLog(folder.timing_path) as timing, MetricsLog(folder.metrics_path) as metrics:
        for steps in range(500, frames + 1, 500):
            timing.append({"kind": "train", "frames": steps, "seconds": 10, "steps_per_second": 50})
            metrics.append({"kind": "train", "frames": steps, "steps": steps, "updates": steps})
        for _ in range(evaluations):
            timing.append({"kind": "evaluation", "frames": frames, "seconds": 50})
    folder.write_status(state, frames=frames, score=None)  # type: ignore[arg-type]
    return folder


class Sweeps:
    """A plan, a folder for its runs, and the sweeps that run it.

    Attributes:
        out: parent of the run folders.
        gate: the file that held runs wait for.
        orders: the file that tells the stub runs what to do.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.gate = folder, folder / "runs", folder / "gate"
        self.plan, self.orders = folder / "plan.toml", folder / "orders.json"
        self.plan.write_text(SMALL)
        self.order({})
        self.started: list[subprocess.Popen[str]] = []

    def order(self, orders: dict[str, dict[str, Any]]) -> None:
        """Write the orders of the runs, by name: see stub_run.py."""
        given = {
            spec.name: {
                "config": spec.config.model_dump(mode="json"),
                "open": str(self.gate),
                **orders.get(spec.name, {}),
            }
            for spec in build_plan(str(self.plan), out=self.out).specs
        }
        self.orders.write_text(json.dumps(given))

    def start(self, kind: str = "stub", **options: Any) -> subprocess.Popen[str]:
        """Start a sweep in the background."""
        environment = {**os.environ, "STUB_ORDERS": str(self.orders), "COLUMNS": "200"}
        process = subprocess.Popen(
            [sys.executable, CONTROLLER, kind, self.plan, self.out, json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.started.append(process)
        return process

    def run(self, **options: Any) -> tuple[int, str, str]:
        """Run a sweep in this process: its exit code, its summary and its log."""
        log = StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STUB_ORDERS", str(self.orders))
            console = Console(file=log, width=200)
            stub = ProcessOptions(tensorboard=False, program=(sys.executable, str(STUB)))
            running = {key: options.pop(key) for key in ("jobs",) if key in options}
            plan = build_plan(str(self.plan), out=self.out, **options)
            summary = run_sweep(plan, console=console, options=stub, **running)
        return summary.exit_code, f"{summary}\n", log.getvalue()

    def frames(self, name: str) -> int:
        """The frames of a run's newest checkpoint."""
        return int((self.status(name) or {}).get("frames", 0))

    def are_held_at(self, frame: int, names: Sequence[str]) -> bool:
        """Whether these runs wait at this frame."""
        files = [self.out / f"{name}.held" for name in names]
        return all(file.exists() and file.read_text() == str(frame) for file in files)

    def status(self, name: str) -> dict[str, Any] | None:
        """The contents of a run's status.json."""
        return RunFolder(self.out / name).read_status()

    def starts(self, name: str) -> list[int]:
        """The frames at which the processes of a stub run started."""
        rows = read_metrics(RunFolder(self.out / name).metrics_path)
        return [row["frames"] for row in rows if row["kind"] == "start"]

    def pid(self, name: str) -> int:
        """The process that holds a run's lock."""
        holder = RunFolder(self.out / name).holder()
        assert holder is not None
        return holder.pid

    def is_locked(self, name: str) -> bool:
        """Whether a process holds a run's lock."""
        return RunFolder(self.out / name).holder() is not None

    def metrics_stat(self, name: str) -> tuple[int, int, int]:
        """Changes whenever a run's metrics are written."""
        found = RunFolder(self.out / name).metrics_path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def close(self) -> None:
        """Kill what a failed test has left running."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def sweeps(tmp_path: Path) -> Iterator[Sweeps]:
    """A plan of four runs."""
    made = Sweeps(tmp_path)
    yield made
    made.close()
