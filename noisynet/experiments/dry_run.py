"""A dry run of a sweep: its runs, the frames that are left, and an estimate of the time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

from noisynet.experiments.display import counted, format_duration, format_frames
from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.plan_file import Search
from noisynet.experiments.progress import Progress, ProgressState, read_progress
from noisynet.experiments.throughput import Throughput, measure_throughputs, shipped_throughput


@dataclass(frozen=True)
class DryRun:
    """What a sweep would do. `str()` returns the text that `--dry-run` prints.

    `core_seconds` is the time that is left on one core, of the runs with known throughput.
    """

    text: str
    core_seconds: float
    exit_code: ClassVar[int] = 0

    def __str__(self) -> str:
        return self.text


def make_dry_run(plan: Plan, *, cores: int, jobs: int | None = None) -> DryRun:
    """Examine a plan. Nothing is created. A search is taken to prune nothing."""
    plan, found = _runs_of_search(plan, plan.search) if plan.search is not None else (plan, [])
    if not plan.specs:
        return DryRun("\n".join([f"{plan.name}: every trial is done", *found]), 0.0)
    groups: dict[tuple[str, str], list[tuple[RunSpec, Progress]]] = {}
    for spec in plan.specs:
        progress = read_progress(spec)
        label = spec.label if plan.search is None else f"trials of {spec.agent}"
        groups.setdefault((f"{label} on {spec.family}", spec.agent), []).append((spec, progress))
    slots, measured = cores if jobs is None else min(cores, jobs), measure_throughputs(plan.out)
    width = max(len(name) for name, _ in groups)
    lines, core_seconds, frames_left, unknown, not_done = [], 0.0, 0, 0, 0
    for (name, agent), runs in groups.items():
        first, left = runs[0][0], [run for run in runs if run[1].state is not ProgressState.DONE]
        throughput = measured.get((agent, first.family)) or shipped_throughput(agent, first.family)
        lines.append(f"  {name:<{width}} {_group_line(runs, left, throughput)}")
        frames_left += sum(max(0, spec.frames - progress.frames) for spec, progress in left)
        not_done += len(left)
        if throughput is None:
            unknown += len(left)
        else:
            core_seconds += _seconds_left(left, throughput) * min(first.processes, slots)
    total = f"about {format_duration(core_seconds / slots)} on {counted(slots, 'core')}"
    if unknown:
        rest = f"{counted(unknown, 'run')} of unknown throughput"
        total = f"{total}, plus {rest}" if core_seconds else rest
    lines.append(total if not_done else "every run is done")
    head = f"{_head(plan)}, {format_frames(frames_left)} left"
    return DryRun("\n".join([head, *lines, *found]), core_seconds)


def _runs_of_search(plan: Plan, search: Search) -> tuple[Plan, list[str]]:
    """The runs that are left, and lines with the space and what was found."""
    from noisynet.experiments.search import read_studies

    studies = read_studies(plan, search)
    left = tuple(spec for study in studies for spec in study.specs(new=True))
    space = [f"  {key}: {values.describe()}" for key, values in search.space.items()]
    found = [line for study in studies for line in study.summary()]
    return replace(plan, specs=left), ["search space:", *space, *found]


def _head(plan: Plan) -> str:
    agents, labels = ({getattr(spec, of) for spec in plan.specs} for of in ("agent", "label"))
    variants = f" in {len(labels)} variants" if len(labels) > len(agents) else ""
    axes = (
        counted(len(agents), "agent") + variants,
        counted(len({spec.environment for spec in plan.specs}), "environment"),
        counted(len({spec.seed for spec in plan.specs}), "seed"),
    )
    frames = format_frames(sum(spec.frames for spec in plan.specs))
    return f"{plan.name}: {counted(len(plan.specs), 'run')} ({', '.join(axes)}), {frames} frames"


def _group_line(
    runs: list[tuple[RunSpec, Progress]],
    left: list[tuple[RunSpec, Progress]],
    throughput: Throughput | None,
) -> str:
    """The states of the runs of one agent in one family, and the time of those that are left."""
    states = Counter(progress.state for _, progress in runs)
    text = ", ".join(f"{states[state]:,} {state.value}" for state in ProgressState if states[state])
    if left and throughput is None:
        text += "; time unknown"
    elif left and throughput is not None:
        seconds = _seconds_left(left, throughput)
        text += f"; {format_duration(seconds)} ({throughput.source})"
    return f"{counted(len(runs), 'run'):>10}: {text}"


def _seconds_left(left: list[tuple[RunSpec, Progress]], throughput: Throughput) -> float:
    """One run after the other."""
    return sum(throughput.seconds_left(spec, progress.frames) for spec, progress in left)
