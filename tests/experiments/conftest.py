"""Sweeps in real processes, of runs that learn nothing, and what is left of them."""

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

from noisynet.experiments import build_plan, run_sweep
from noisynet.experiments.carrying import How
from noisynet.runs import RunFolder, read_metrics

CONTROLLER: Final = Path(__file__).with_name("controller.py")
STUB: Final = Path(__file__).with_name("stub_run.py")

SMALL: Final = """
agents = ["dqn", "noisynet-dqn"]
environments = ["deep_sea/4", "gym/CartPole-v1"]
frames = 400

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
    """Wait for something that another process does; the test's time limit is the only one."""
    while not condition():
        time.sleep(0.02)


def has_ended(pid: int) -> bool:
    """Whether there is no such process any more."""
    return not Path(f"/proc/{pid}").exists()


class Sweeps:
    """A plan, a folder for its runs, and processes that carry it out.

    Attributes:
        out: parent of the run folders.
        gate: a file that lets held runs go on.
        orders: a file with what is to happen to the runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.gate = folder, folder / "runs", folder / "gate"
        self.plan, self.orders = folder / "plan.toml", folder / "orders.json"
        self.plan.write_text(SMALL)
        self.order({})
        self.started: list[subprocess.Popen[str]] = []

    def order(self, orders: dict[str, dict[str, Any]]) -> None:
        """What is to happen to the runs, by name: see stub_run.py."""
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
        """A sweep, which nobody waits for yet."""
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
        """A sweep in this process: its exit code, what it says at the end and what on the way."""
        told = StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STUB_ORDERS", str(self.orders))
            console = Console(file=told, width=200)
            how = How(tensorboard=False, program=(sys.executable, str(STUB)))
            summary = run_sweep(str(self.plan), out=self.out, console=console, how=how, **options)
        return summary.exit_code, f"{summary}\n", told.getvalue()

    def frames(self, name: str) -> int:
        """Of the newest checkpoint of a run."""
        return int((self.status(name) or {}).get("frames", 0))

    def have_come_to(self, frames: int, names: Sequence[str]) -> bool:
        """Whether these runs have checkpoints at just so many frames."""
        return all(self.frames(name) == frames for name in names)

    def status(self, name: str) -> dict[str, Any] | None:
        """Of a run."""
        return RunFolder(self.out / name).read_status()

    def starts(self, name: str) -> list[int]:
        """At which frames the processes of a stubbed run began."""
        rows = read_metrics(RunFolder(self.out / name).metrics_path)
        return [row["frames"] for row in rows if row["kind"] == "start"]

    def pid(self, name: str) -> int:
        """Of the process that is at a run."""
        holder = RunFolder(self.out / name).holder()
        assert holder is not None
        return holder.pid

    def is_taken(self, name: str) -> bool:
        """Whether a process is at a run."""
        return RunFolder(self.out / name).holder() is not None

    def traces(self, name: str) -> tuple[int, int, int]:
        """What tells whether a run's metrics were touched."""
        found = RunFolder(self.out / name).metrics_path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def close(self) -> None:
        """End what a failed test has left."""
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
