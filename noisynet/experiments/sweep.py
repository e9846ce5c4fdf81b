"""Runs a sweep: builds the plan, runs every job, and summarises the result."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rich.console import Console

from noisynet.experiments.display import SweepConsole, make_display
from noisynet.experiments.dry_run import DryRun, make_dry_run
from noisynet.experiments.job import JobState, ProcessOptions
from noisynet.experiments.local_runner import LocalRunner, available_cores
from noisynet.experiments.plan import Plan, build_plan
from noisynet.experiments.plan_file import PlanError
from noisynet.experiments.progress import config_conflict
from noisynet.runs.stop_signals import stop_on_signals

RUNNERS: Final = ("local", "ray")
"""Where a sweep can run."""

_MAX_CONFLICTS: Final = 10


@dataclass(frozen=True)
class FailedRun:
    """A run that failed.

    Attributes:
        name: of the run.
        reason: its error message.
        log: the file with its output.
    """

    name: str
    reason: str
    log: Path


@dataclass(frozen=True)
class SweepSummary:
    """The result of a sweep. `str()` returns the text that `noisynet sweep` prints.

    Attributes:
        plan: its name.
        runs: how many it has.
        done: how many of them are done.
        failures: the runs that failed.
        signal: that stopped the sweep, None if none did.
        dry_run: the result of a dry run, None for a real one.
    """

    plan: str
    runs: int
    done: int
    failures: tuple[FailedRun, ...] = ()
    signal: int | None = None
    dry_run: DryRun | None = None

    @property
    def exit_code(self) -> int:
        """0 for success, 1 if a run failed, 128 + the signal that stopped the sweep."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.failures else 0

    def __str__(self) -> str:
        if self.dry_run is not None:
            return str(self.dry_run)
        lines = [f"{self.plan}: {self.done:,} of {self.runs:,} runs done"]
        if self.failures:
            lines[0] += f", {len(self.failures):,} failed"
        for failure in self.failures:
            lines += [f"  {failure.name}: {failure.reason}", f"    see {failure.log}"]
        if self.signal is not None:
            name = signal.Signals(self.signal).name
            lines.append(f"stopped by {name}; run the same command to resume")
        return "\n".join(lines)


def run_sweep(
    plan: str,
    *,
    out: Path = Path("runs"),
    agents: str | Sequence[str] | None = None,
    environments: str | Sequence[str] | None = None,
    seeds: int | str | Sequence[int] | None = None,
    frames: int | str | None = None,
    dry_run: bool = False,
    on: str = "local",
    address: str | None = None,
    jobs: int | None = None,
    device: str = "auto",
    tensorboard: bool = True,
    console: Console | None = None,
    process_options: ProcessOptions | None = None,
) -> SweepSummary:
    """Run every run of a plan that is not done yet, several at once.

    A run is done if its own folder says so; the sweep keeps no other record. Calling this again
    resumes a sweep that was stopped or killed at any moment.

    Args:
        plan: `atari57`, `atari5`, `minatar5`, `classic`, or the path of a TOML file.
        out: parent of the run folders, `<out>/<environment>/<agent>[+<variant>]/seed-<n>`.
        agents: overrides the plan's: names or patterns, as a list or comma-separated; "all".
        environments: overrides the plan's: names, as a list or comma-separated.
        seeds: overrides the plan's: how many (3 means 0, 1 and 2), or which: "0,7" or "3-5".
        frames: overrides the budget of every run: a number, or text such as "10M".
        dry_run: only list what is left and estimate the time. Nothing is created.
        on: "local" for processes of this machine, "ray" for tasks of a Ray cluster whose nodes
            all see `out` at the same path.
        address: of the Ray cluster; None for RAY_ADDRESS, or a new local cluster.
        jobs: how many runs at once; None for as many as the cores allow.
        device: as for `noisynet train`.
        tensorboard: whether the runs write TensorBoard events.
        console: shows the progress; None for standard error.
        process_options: overrides `device` and `tensorboard`.

    Raises:
        PlanError: the plan is invalid; the message lists every error. Nothing is created.
        ImportError: Ray is not installed.
        ConnectionError: there is no Ray cluster at the address.
    """
    runner = _check_options(on, address, jobs)
    built = build_plan(
        plan, out=out, agents=agents, environments=environments, seeds=seeds, frames=frames
    )
    _refuse_conflicts(built)
    if dry_run:
        found = make_dry_run(built, cores=available_cores(), jobs=jobs)
        return SweepSummary(built.name, len(built.specs), found.done, dry_run=found)
    options = process_options or ProcessOptions(device, tensorboard)
    return _run(built, options, console or SweepConsole(stderr=True), runner, address, jobs)


def _run(
    plan: Plan,
    options: ProcessOptions,
    console: Console,
    on: Literal["local", "ray"],
    address: str | None,
    max_jobs: int | None,
) -> SweepSummary:
    with make_display(console) as display:
        if on == "ray":
            from noisynet.experiments.ray_runner import RayRunner

            runner: LocalRunner | RayRunner = RayRunner(
                plan, options, display, address=address, max_jobs=max_jobs
            )
        else:
            runner = LocalRunner(plan, options, display, max_jobs=max_jobs)
        with stop_on_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) as stop:
            runner.run(stop)
    states = Counter(job.state for job in runner.jobs)
    failures = [
        FailedRun(job.spec.name, job.reason, job.spec.log)
        for job in runner.jobs
        if job.state is JobState.FAILED
    ]
    return SweepSummary(
        plan.name, len(plan.specs), states[JobState.DONE], tuple(failures), stop.signal
    )


def _check_options(on: str, address: str | None, jobs: int | None) -> Literal["local", "ray"]:
    errors = []
    if on not in RUNNERS:
        errors.append(f"--on expected {' or '.join(RUNNERS)}, got {on!r}")
    elif on == "local" and address is not None:
        errors.append("--address requires --on ray")
    if jobs is not None and jobs < 1:
        errors.append(f"--jobs expected at least 1, got {jobs}")
    if errors:
        raise PlanError("\n".join(errors))
    return "ray" if on == "ray" else "local"


def _refuse_conflicts(plan: Plan) -> None:
    """Refuse a plan whose run folders hold runs with other settings."""
    found = [(spec, config_conflict(spec)) for spec in plan.specs]
    conflicts = [
        f"{spec.folder} holds another run: {why}" for spec, why in found if why is not None
    ]
    if conflicts:
        more = len(conflicts) - _MAX_CONFLICTS
        lines = conflicts[:_MAX_CONFLICTS] + ([f"and {more:,} more folders"] if more > 0 else [])
        lines.append("choose another --out, or make these runs a [[variant]]")
        raise PlanError("\n".join(lines))
