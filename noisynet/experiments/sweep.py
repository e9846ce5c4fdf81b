"""Runs a sweep: runs every job of a plan, and summarises the result."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from noisynet.experiments.display import Display, SweepConsole
from noisynet.experiments.dry_run import DryRun, make_dry_run
from noisynet.experiments.job import JobState
from noisynet.experiments.plan import Plan
from noisynet.experiments.plan_file import PlanError
from noisynet.experiments.process import ProcessOptions
from noisynet.experiments.progress import config_conflict
from noisynet.experiments.runner import Runner, available_cores
from noisynet.runs.stop_signals import stop_on_signals

if TYPE_CHECKING:
    from noisynet.experiments.search import Study

RUNNERS: Final = ("local", "ray")
"""Where a sweep can run."""

_MAX_CONFLICTS: Final = 10


@dataclass(frozen=True)
class FailedRun:
    """A run that failed."""

    name: str
    reason: str
    log: Path


@dataclass(frozen=True)
class SweepSummary:
    """The result of a sweep. `str()` returns the text that `noisynet sweep` prints."""

    plan: str
    runs: int
    done: int
    failures: tuple[FailedRun, ...] = ()
    signal: int | None = None
    search: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 for success, 1 if a run failed, 128 + the signal that stopped the sweep."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.failures else 0

    def __str__(self) -> str:
        lines = [f"{self.plan}: {self.done:,} of {self.runs:,} runs done"]
        if self.failures:
            lines[0] += f", {len(self.failures):,} failed"
        lines += self.search
        for failure in self.failures:
            lines += [f"  {failure.name}: {failure.reason}", f"    see {failure.log}"]
        if self.signal is not None:
            name = signal.Signals(self.signal).name
            lines.append(f"stopped by {name}; run the same command to resume")
        return "\n".join(lines)


def run_sweep(
    plan: Plan,
    *,
    dry_run: bool = False,
    on: str = "local",
    address: str | None = None,
    jobs: int | None = None,
    options: ProcessOptions | None = None,
    console: Console | None = None,
) -> SweepSummary | DryRun:
    """Run every run of a plan that is not done yet, several at once.

    A run is done if its own folder says so; the sweep keeps no other record. Calling this again
    resumes a sweep that was stopped or killed at any moment.

    Args:
        plan: of `build_plan`.
        dry_run: only list what is left and estimate the time. Nothing is created.
        on: "local" for processes of this machine, "ray" for tasks of a Ray cluster whose nodes
            all see the plan's `out` at the same path.
        address: of the Ray cluster; None for RAY_ADDRESS, or a new local cluster.
        jobs: how many runs at once; None for as many as the cores allow.
        options: the device, and whether the runs write TensorBoard events; None for the defaults.
        console: shows the progress; None for standard error.

    Raises:
        PlanError: an option is invalid, or folders hold other runs. Nothing is created.
        ImportError: Ray is not installed.
        ConnectionError: there is no Ray cluster at the address.
    """
    if errors := [*_wrong_options(on, address, jobs), *_conflicts(plan)]:
        raise PlanError("\n".join(errors))
    if dry_run:
        return make_dry_run(plan, cores=available_cores(), jobs=jobs)
    with ExitStack() as stack:
        display = stack.enter_context(Display(console or _standard_error()))
        studies: list[Study] = []
        if plan.search is not None:
            from noisynet.experiments.search import open_studies

            studies = stack.enter_context(open_studies(plan, plan.search, display.log))
        make: Callable[..., Runner] = Runner
        if on == "ray":
            from noisynet.experiments.ray_runner import RayRunner

            make = partial(RayRunner, address=address)
        runner = make(plan, options or ProcessOptions(), display, max_jobs=jobs, studies=studies)
        with stop_on_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) as stop:
            runner.run(stop)
        found = tuple(line for study in studies for line in study.summary())
    done = sum(job.state is JobState.DONE for job in runner.jobs)
    failures = tuple(
        FailedRun(job.spec.name, job.reason, job.spec.log)
        for job in runner.jobs
        if job.state is JobState.FAILED
    )
    return SweepSummary(plan.name, len(runner.jobs), done, failures, stop.signal, found)


def _standard_error() -> Console:
    """Standard error, as a terminal only if it is one: Jupyter pretends to be (FORCE_COLOR)."""
    return SweepConsole(stderr=True, force_jupyter=False, force_terminal=sys.stderr.isatty())


def _wrong_options(on: str, address: str | None, jobs: int | None) -> list[str]:
    errors = []
    if on not in RUNNERS:
        errors.append(f"--on expected {' or '.join(RUNNERS)}, got {on!r}")
    elif on == "local" and address is not None:
        errors.append("--address requires --on ray")
    if jobs is not None and jobs < 1:
        errors.append(f"--jobs expected at least 1, got {jobs}")
    return errors


def _conflicts(plan: Plan) -> list[str]:
    """The run folders that hold runs with other settings."""
    found = [(spec.folder, config_conflict(spec)) for spec in plan.specs]
    conflicts = [f"{folder} holds another run: {why}" for folder, why in found if why is not None]
    more = len(conflicts) - _MAX_CONFLICTS
    if more > 0:
        conflicts[_MAX_CONFLICTS:] = [f"and {more:,} more folders"]
    if conflicts:
        conflicts.append("choose another --out, or make these runs a [[variant]]")
    return conflicts
