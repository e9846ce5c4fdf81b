"""The whole way from a plan to its runs, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Final, Literal

from rich.console import Console

from noisynet.experiments.carrying import How, Stage
from noisynet.experiments.launch_local import Pool, available_cores
from noisynet.experiments.outlook import Outlook, outlook
from noisynet.experiments.plan import Plan, build_plan
from noisynet.experiments.plan_file import PlanError
from noisynet.experiments.progress import conflict
from noisynet.experiments.stopping import stopping
from noisynet.experiments.table import SweepConsole, make_display

PLACES: Final = ("local", "ray")
"""Where the runs of a sweep can be."""

_MOST_CONFLICTS: Final = 10


@dataclass(frozen=True)
class Failure:
    """A run that could not be finished.

    Attributes:
        name: of the run.
        reason: in its own words.
        log: where all its words are.
    """

    name: str
    reason: str
    log: Path


@dataclass(frozen=True)
class SweepSummary:
    """What became of a sweep.

    Attributes:
        plan: its name.
        runs: how many it has.
        done: how many of them are done.
        failures: those that could not be finished.
        signal: that stopped it, None if nothing did.
        outlook: what a dry run found, None for a real one.
    """

    plan: str
    runs: int
    done: int
    failures: tuple[Failure, ...] = ()
    signal: int | None = None
    outlook: Outlook | None = None

    @property
    def exit_code(self) -> int:
        """0 if all is well, 1 if something failed, 128 + the signal that stopped it."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.failures else 0

    def __str__(self) -> str:
        if self.outlook is not None:
            return str(self.outlook)
        lines = [f"{self.plan}: {self.done:,} of {self.runs:,} runs done"]
        if self.failures:
            lines[0] += f", {len(self.failures):,} failed"
        for failure in self.failures:
            lines += [f"  {failure.name}: {failure.reason}", f"    see {failure.log}"]
        if self.signal is not None:
            lines.append(f"stopped by {Signals(self.signal).name}; the same command continues")
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
    how: How | None = None,
) -> SweepSummary:
    """Carry out a plan: every run that is not done yet is started or continued, several at once.

    A run is done if its own folder says so; the sweep keeps no other record. Killed at any moment,
    it is continued by the same call. What happens is told on the way; the summary is for the end.

    Args:
        plan: `atari57`, `atari5`, `minatar5`, `classic`, or the path of a TOML file.
        out: parent of the run folders, `<out>/<environment>/<agent>[+<variant>]/seed-<n>`.
        agents: in place of the plan's: names or patterns, as a list or with commas; "all".
        environments: likewise, names only.
        seeds: likewise: how many (3 means 0, 1 and 2), or which, as in "0,7" or "3-5".
        frames: the budget of every run, such as "10M", in place of the plan's.
        dry_run: find out what there is to do and how long it takes; nothing is created.
        on: "local" for processes of this machine, "ray" for tasks of a Ray cluster, whose nodes
            all see `out` under the same path.
        address: of the Ray cluster; None for the one of RAY_ADDRESS, or a new one here.
        jobs: how many runs at once; None for as many as the cores hold.
        device: as of `noisynet train`.
        tensorboard: whether the runs write TensorBoard events.
        console: where to tell what happens; None for standard error.
        how: runs are started, in place of `device` and `tensorboard`.

    Returns:
        What became of it; `str()` of it is for people, `exit_code` for the shell.

    Raises:
        PlanError: the plan cannot be carried out, with every error; nothing is created.
        ImportError: Ray is not installed.
        ConnectionError: there is no Ray cluster at the address.
    """
    place = _checked(on, address, jobs)
    made = build_plan(
        plan, out=out, agents=agents, environments=environments, seeds=seeds, frames=frames
    )
    _refuse_strangers(made)
    if dry_run:
        found = outlook(made, cores=available_cores(), jobs=jobs)
        return SweepSummary(made.name, len(made.specs), found.done, outlook=found)
    how = how or How(device, tensorboard)
    return _carry_out(made, how, console or SweepConsole(stderr=True), place, address, jobs)


def _carry_out(
    plan: Plan,
    how: How,
    console: Console,
    place: Literal["local", "ray"],
    address: str | None,
    jobs: int | None,
) -> SweepSummary:
    with make_display(console) as display:
        if place == "ray":
            from noisynet.experiments.launch_ray import RayRuns

            launched: Pool | RayRuns = RayRuns(plan, how, display, address=address, jobs=jobs)
        else:
            launched = Pool(plan, how, display, jobs=jobs)
        with stopping() as stop:
            launched.run(stop)
    stages = Counter(run.stage for run in launched.runs)
    failures = [
        Failure(run.spec.name, run.reason, run.spec.log)
        for run in launched.runs
        if run.stage is Stage.FAILED
    ]
    return SweepSummary(
        plan.name, len(plan.specs), stages[Stage.DONE], tuple(failures), stop.signal
    )


def _checked(on: str, address: str | None, jobs: int | None) -> Literal["local", "ray"]:
    errors = []
    if on not in PLACES:
        errors.append(f"--on expected {' or '.join(PLACES)}, got {on!r}")
    elif on == "local" and address is not None:
        errors.append("--address is of a Ray cluster: expected --on ray with it")
    if jobs is not None and jobs < 1:
        errors.append(f"--jobs expected at least 1, got {jobs}")
    if errors:
        raise PlanError("\n".join(errors))
    return "ray" if on == "ray" else "local"


def _refuse_strangers(plan: Plan) -> None:
    """Runs whose folders hold other ones are an error of the plan, or of its place."""
    found = [(spec, conflict(spec)) for spec in plan.specs]
    wrong = [f"{spec.folder} is another run's: {why}" for spec, why in found if why is not None]
    if wrong:
        more = len(wrong) - _MOST_CONFLICTS
        lines = wrong[:_MOST_CONFLICTS] + ([f"and {more:,} more folders"] if more > 0 else [])
        lines.append("choose another --out, or give these runs a [[variant]] of their own")
        raise PlanError("\n".join(lines))
