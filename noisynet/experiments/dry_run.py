"""A dry run of a sweep: its runs, the frames that are left, and an estimate of the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.progress import Progress, ProgressState, read_progress
from noisynet.experiments.throughput import Throughput, measure_throughputs, shipped_throughput


@dataclass(frozen=True)
class RunGroup:
    """The runs of one agent, with one variant, in one family of environments.

    Attributes:
        label: the agent with its variant.
        family: of the environments.
        runs: how many there are.
        states: how many of them are in each state.
        frames: of all of them.
        frames_left: of those that are not done.
        seconds_left: one run after the other; None if the throughput is unknown.
        source: where the throughput was measured.
    """

    label: str
    family: str
    runs: int
    states: Counter[ProgressState]
    frames: int
    frames_left: int
    seconds_left: float | None
    source: str


@dataclass(frozen=True)
class DryRun:
    """What a sweep would do. `str()` returns the text that `--dry-run` prints.

    Attributes:
        plan: its name.
        groups: of runs.
        environments: how many there are.
        seeds: how many there are.
        slots: how many cores, or runs at once, share the work.
        core_seconds: of the groups with known throughput.
    """

    plan: str
    groups: tuple[RunGroup, ...]
    environments: int
    seeds: int
    slots: int
    core_seconds: float

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(group.runs for group in self.groups)

    @property
    def done(self) -> int:
        """The number of runs that are done."""
        return sum(group.states[ProgressState.DONE] for group in self.groups)

    def __str__(self) -> str:
        frames = sum(group.frames for group in self.groups)
        left = sum(group.frames_left for group in self.groups)
        head = (
            f"{self.plan}: {self.runs:,} runs ({self.environments} environments, {self.seeds} "
            f"seeds), {frames:,} frames, {left:,} left"
        )
        return "\n".join([head, *self._group_lines(), self._total_line()])

    def _group_lines(self) -> Iterable[str]:
        names = [f"{group.label} on {group.family}" for group in self.groups]
        width = max(map(len, names))
        for name, group in zip(names, self.groups, strict=True):
            states = ", ".join(
                f"{count:,} {state.value}"
                for state in ProgressState
                if (count := group.states[state])
            )
            if group.seconds_left is None:
                time = "; time unknown"
            else:
                time = f"; {_hours(group.seconds_left)} ({group.source})" if group.source else ""
            yield f"  {name:<{width}}  {group.runs:>5,} runs: {states}{time}"

    def _total_line(self) -> str:
        if self.done == self.runs:
            return "every run is done"
        unknown = sum(
            group.runs - group.states[ProgressState.DONE]
            for group in self.groups
            if group.seconds_left is None
        )
        known = f"about {_hours(self.core_seconds / self.slots)} on {self.slots} cores"
        if not unknown:
            return known
        rest = f"{unknown:,} runs of unknown throughput"
        return f"{known}, plus {rest}" if self.core_seconds else rest


def make_dry_run(plan: Plan, *, cores: int, jobs: int | None = None) -> DryRun:
    """Examine a plan. Nothing is created.

    Args:
        plan: the runs.
        cores: of this machine.
        jobs: how many runs at once, None for as many as the cores allow.
    """
    measured, groups, core_seconds = measure_throughputs(plan.out), [], 0.0
    by_group: dict[tuple[str, str], list[tuple[RunSpec, Progress]]] = {}
    for spec in plan.specs:
        progress = read_progress(spec, check_lock=False)
        by_group.setdefault((spec.label, spec.family), []).append((spec, progress))
    slots = cores if jobs is None else min(cores, jobs)
    for (label, family), runs in by_group.items():
        first = runs[0][0]
        throughput = measured.get((first.agent, family)) or shipped_throughput(first.agent, family)
        group = _make_group(label, family, runs, throughput)
        groups.append(group)
        core_seconds += (group.seconds_left or 0.0) * min(first.processes, slots)
    return DryRun(
        plan.name,
        tuple(groups),
        len({spec.environment for spec in plan.specs}),
        len({spec.seed for spec in plan.specs}),
        slots,
        core_seconds,
    )


def _make_group(
    label: str,
    family: str,
    runs: list[tuple[RunSpec, Progress]],
    throughput: Throughput | None,
) -> RunGroup:
    left = [(spec, progress) for spec, progress in runs if progress.state is not ProgressState.DONE]
    seconds: float | None = None
    if throughput is not None:
        seconds = sum(throughput.seconds_left(spec, progress.frames) for spec, progress in left)
    elif not left:
        seconds = 0.0
    return RunGroup(
        label,
        family,
        len(runs),
        Counter(progress.state for _, progress in runs),
        sum(spec.frames for spec, _ in runs),
        sum(max(0, spec.frames - progress.frames) for spec, progress in left),
        seconds,
        throughput.source if left and throughput else "",
    )


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f} h ({hours / 24:,.0f} days)" if hours > 72 else f"{hours:,.1f} h"
