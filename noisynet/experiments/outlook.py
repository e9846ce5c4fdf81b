"""What a plan comes to before it is carried out: runs, frames, and about how many hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from noisynet.experiments.estimate import Pace, benchmark_pace, paces_below
from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.progress import Progress, State, look


@dataclass(frozen=True)
class Kind:
    """The runs of one agent, with one variant, in one family of environments.

    Attributes:
        label: the agent with its variant.
        family: of the environments.
        runs: how many there are.
        states: how many of them are in each state.
        frames: of all of them.
        frames_left: that are still to be played.
        seconds_left: about, of all one after the other; None if nobody knows the pace.
        source: where the pace was measured.
    """

    label: str
    family: str
    runs: int
    states: Counter[State]
    frames: int
    frames_left: int
    seconds_left: float | None
    source: str


@dataclass(frozen=True)
class Outlook:
    """A plan before it is carried out; `str()` of it is for people.

    Attributes:
        plan: its name.
        kinds: of runs.
        environments: how many there are.
        seeds: likewise.
        places: how many cores, or runs at once, the work is shared among.
        core_seconds: of all runs whose pace is known, times the cores of each.
    """

    plan: str
    kinds: tuple[Kind, ...]
    environments: int
    seeds: int
    places: int
    core_seconds: float

    @property
    def runs(self) -> int:
        """How many there are."""
        return sum(kind.runs for kind in self.kinds)

    @property
    def done(self) -> int:
        """How many of them are done."""
        return sum(kind.states[State.DONE] for kind in self.kinds)

    def __str__(self) -> str:
        frames = sum(kind.frames for kind in self.kinds)
        left = sum(kind.frames_left for kind in self.kinds)
        head = (
            f"{self.plan}: {self.runs:,} runs ({len(self.kinds)} kinds, {self.environments} "
            f"environments, {self.seeds} seeds), {frames:,} frames, {left:,} of them to be played"
        )
        return "\n".join([head, *self._lines(), self._time()])

    def _lines(self) -> Iterable[str]:
        width = max(len(f"{kind.label} on {kind.family}") for kind in self.kinds)
        for kind in self.kinds:
            states = ", ".join(f"{kind.states[s]:,} {s.value}" for s in State if kind.states[s])
            if kind.seconds_left is None:
                time = "time unknown: no run of this kind has been timed"
            elif kind.source:
                time = f"{_hours(kind.seconds_left)} ({kind.source})"
            else:
                time = "nothing left"
            name = f"{kind.label} on {kind.family}"
            yield f"  {name:<{width}}  {kind.runs:>5,} runs: {states}; {time}"

    def _time(self) -> str:
        if self.done == self.runs:
            return "nothing is left to be done"
        unknown = sum(
            kind.runs - kind.states[State.DONE] for kind in self.kinds if kind.seconds_left is None
        )
        known = f"about {_hours(self.core_seconds / self.places)} on {self.places} cores"
        if not unknown:
            return known
        rest = f"{unknown:,} runs whose pace is unknown; a first run of each kind will tell"
        return f"{known}, and {rest}" if self.core_seconds else rest


def outlook(plan: Plan, *, cores: int, jobs: int | None = None) -> Outlook:
    """Find out what there is to do; nothing is created.

    Args:
        plan: what is to be done.
        cores: of this machine.
        jobs: how many runs at once, None for as many as the cores hold.
    """
    paces, kinds, core_seconds = paces_below(plan.out), [], 0.0
    looked: dict[tuple[str, str], list[tuple[RunSpec, Progress]]] = {}
    for spec in plan.specs:
        looked.setdefault((spec.label, spec.family), []).append((spec, look(spec, ask_lock=False)))
    places = cores if jobs is None else min(cores, jobs)
    for (label, family), runs in looked.items():
        pace = paces.get((runs[0][0].agent, family)) or benchmark_pace(runs[0][0])
        kind = _kind(label, family, runs, pace)
        kinds.append(kind)
        processes = min(runs[0][0].processes, places)
        core_seconds += (kind.seconds_left or 0.0) * processes
    return Outlook(
        plan.name,
        tuple(kinds),
        len({spec.environment for spec in plan.specs}),
        len({spec.seed for spec in plan.specs}),
        places,
        core_seconds,
    )


def _kind(label: str, family: str, runs: list[tuple[RunSpec, Progress]], pace: Pace | None) -> Kind:
    left = [(spec, progress) for spec, progress in runs if progress.state is not State.DONE]
    seconds: float | None = None
    if pace is not None or not left:
        seconds = sum(pace.seconds(spec, progress.frames) for spec, progress in left if pace)
    return Kind(
        label,
        family,
        len(runs),
        Counter(progress.state for _, progress in runs),
        sum(spec.frames for spec, _ in runs),
        sum(max(0, spec.frames - progress.frames) for spec, progress in left),
        seconds,
        pace.source if left and pace else "",
    )


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f} h ({hours / 24:,.0f} days)" if hours > 72 else f"{hours:,.1f} h"
