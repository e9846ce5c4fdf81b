"""A dry run of a sweep: its runs, the frames that are left, and an estimate of the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from noisynet.experiments.display import counted, format_duration
from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.progress import Progress, ProgressState, read_progress
from noisynet.experiments.throughput import Throughput, measure_throughputs, shipped_throughput


@dataclass(frozen=True)
class RunGroup:
    """The runs of one agent, with one variant, in one family of environments.

    Attributes:
        name: the agent with its variant, and the family.
        runs: with their progress.
        throughput: of the agent in the family; None if it is unknown.
    """

    name: str
    runs: tuple[tuple[RunSpec, Progress], ...]
    throughput: Throughput | None

    @property
    def left(self) -> list[tuple[RunSpec, Progress]]:
        """The runs that are not done."""
        return [run for run in self.runs if run[1].state is not ProgressState.DONE]

    @property
    def seconds_left(self) -> float | None:
        """The time that is left, one run after the other; None if it is unknown."""
        if self.throughput is None:
            return None if self.left else 0.0
        return sum(self.throughput.seconds_left(spec, done.frames) for spec, done in self.left)

    def __str__(self) -> str:
        states = Counter(progress.state for _, progress in self.runs)
        text = ", ".join(f"{states[s]:,} {s.value}" for s in ProgressState if states[s])
        seconds = self.seconds_left
        if seconds is None:
            text += "; time unknown"
        elif self.left and self.throughput:
            text += f"; {format_duration(seconds)} ({self.throughput.source})"
        return f"{counted(len(self.runs), 'run'):>10}: {text}"


@dataclass(frozen=True)
class DryRun:
    """What a sweep would do. `str()` returns the text that `--dry-run` prints.

    Attributes:
        plan: the runs.
        groups: the same, by agent and family.
        slots: how many cores, or runs at once, share the work.
        exit_code: success, as of a sweep.
    """

    plan: Plan
    groups: tuple[RunGroup, ...]
    slots: int
    exit_code: ClassVar[int] = 0

    @property
    def core_seconds(self) -> float:
        """The time that is left on one core, of the groups with known throughput."""
        return sum(
            (group.seconds_left or 0.0) * min(group.runs[0][0].processes, self.slots)
            for group in self.groups
        )

    def __str__(self) -> str:
        return "\n".join([self._head(), *self._lines(), self._total()])

    def _head(self) -> str:
        specs = self.plan.specs
        parts = (
            counted(len({spec.label for spec in specs}), "agent"),
            counted(len({spec.environment for spec in specs}), "environment"),
            counted(len({spec.seed for spec in specs}), "seed"),
        )
        left = sum(
            max(0, spec.frames - progress.frames)
            for group in self.groups
            for spec, progress in group.left
        )
        total = sum(spec.frames for spec in specs)
        runs = counted(len(specs), "run")
        return f"{self.plan.name}: {runs} ({', '.join(parts)}), {total:,} frames, {left:,} left"

    def _lines(self) -> Iterator[str]:
        width = max(len(group.name) for group in self.groups)
        return (f"  {group.name:<{width}} {group}" for group in self.groups)

    def _total(self) -> str:
        if not any(group.left for group in self.groups):
            return "every run is done"
        unknown = sum(len(group.left) for group in self.groups if group.seconds_left is None)
        rest = f"{counted(unknown, 'run')} of unknown throughput"
        if not self.core_seconds:
            return rest
        time = format_duration(self.core_seconds / self.slots)
        return f"about {time} on {counted(self.slots, 'core')}" + (f", plus {rest}" * bool(unknown))


def make_dry_run(plan: Plan, *, cores: int, jobs: int | None = None) -> DryRun:
    """Examine a plan. Nothing is created.

    Args:
        plan: the runs.
        cores: of this machine.
        jobs: how many runs at once, None for as many as the cores allow.
    """
    runs: dict[tuple[str, str], list[tuple[RunSpec, Progress]]] = {}
    for spec in plan.specs:
        found = runs.setdefault((spec.label, spec.family), [])
        found.append((spec, read_progress(spec, check_lock=False)))
    measured = measure_throughputs(plan.out)
    groups = []
    for (label, family), found in runs.items():
        agent = found[0][0].agent
        throughput = measured.get((agent, family)) or shipped_throughput(agent, family)
        groups.append(RunGroup(f"{label} on {family}", tuple(found), throughput))
    return DryRun(plan, tuple(groups), cores if jobs is None else min(cores, jobs))
