"""Runs that may be compared with each other, by contender and task; what is missing among them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from noisynet.reports.agents import BASELINE, AgentKind, Contender, contender
from noisynet.reports.load_metrics import Noise
from noisynet.reports.load_runs import SUITES, Protocol, ReportError, Run
from noisynet.reports.published import source_references
from noisynet.reports.scores import Floats, run_score


@dataclass(frozen=True)
class Study:
    """Runs of one family of environments under one protocol.

    Value agents and actor-critic agents may have protocols of their own, as in the paper (200M and
    320M frames); within either kind there is one.

    Attributes:
        name: of its files, as in "atari" or "atari-2".
        suite: the family of environments.
        protocols: by kind of agent.
        horizons: the frames at which agents of each kind are compared: the budget, or less where
            the user asked for less.
        cells: the runs of each contender on each task, by seed.
        notes: what was noticed when the runs were put together.
    """

    name: str
    suite: str
    protocols: Mapping[AgentKind, Protocol]
    horizons: Mapping[AgentKind, int]
    cells: Mapping[tuple[Contender, str], tuple[Run, ...]] = field(repr=False)
    notes: tuple[str, ...] = ()

    @cached_property
    def contenders(self) -> tuple[Contender, ...]:
        """In the paper's order."""
        return tuple(sorted({contender for contender, _ in self.cells}))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The environments, in alphabetical order."""
        return tuple(sorted({task for _, task in self.cells}))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Every seed that any run of the study has."""
        return tuple(sorted({run.seed for runs in self.cells.values() for run in runs}))

    @property
    def runs(self) -> list[Run]:
        """All of them, in order."""
        keys = sorted(self.cells)
        return [run for key in keys for run in self.cells[key]]

    @property
    def pairs(self) -> list[tuple[Contender, Contender]]:
        """Noisy contenders, each with its baseline at its usual settings, where both have runs."""
        baselines = {c.agent: c for c in self.contenders if not c.variant}
        return [
            (noisy, baselines[BASELINE[noisy.agent]])
            for noisy in self.contenders
            if BASELINE.get(noisy.agent) in baselines
        ]

    def period(self, who: Contender) -> int:
        """Frames from one evaluation of a contender to the next."""
        return self.protocols[who.style.kind].period_frames

    def points(self, who: Contender) -> int:
        """How many evaluations a whole run of a contender has."""
        return self.horizons[who.style.kind] // self.period(who)

    def frames(self, who: Contender) -> Floats:
        """When a contender's evaluations take place: [K]."""
        return np.arange(1, self.points(who) + 1, dtype=np.float64) * self.period(who)

    def is_complete(self, run: Run) -> bool:
        """Whether a run has its evaluation at the horizon."""
        expected = self.points(contender(run.agent))
        return expected > 0 and bool((run.curve.points >= expected).any())

    def complete(self, who: Contender, task: str) -> list[Run]:
        """The runs that count in tables."""
        return [run for run in self.cells.get((who, task), ()) if self.is_complete(run)]

    def tasks_of(self, *who: Contender) -> list[str]:
        """The tasks on which every one of the contenders has a complete run."""
        return [task for task in self.tasks if all(self.complete(one, task) for one in who)]

    def curves(
        self, who: Contender, task: str, *, noise: Noise | None = None, unfinished: bool = False
    ) -> Floats:
        """Scores of each run at each evaluation up to the horizon: [S, K], NaN where there is none.

        Args:
            who: whose.
            task: on what.
            noise: with noise on or off; None: whichever is *the* score.
            unfinished: whether runs that have not reached the horizon are included.
        """
        runs = self.cells.get((who, task), ()) if unfinished else self.complete(who, task)
        found = np.full((len(runs), self.points(who)), np.nan)
        for row, run in zip(found, runs, strict=True):
            curve = run.curve if noise is None else run.curves.get(noise)
            if curve is not None:
                within = (curve.points >= 1) & (curve.points <= self.points(who))
                row[curve.points[within] - 1] = curve.scores[within]
        return found

    def scores(self, who: Contender, task: str, noise: Noise | None = None) -> Floats:
        """The score of each complete run: the maximum of its curve, [S]."""
        found = np.array([run_score(curve) for curve in self.curves(who, task, noise=noise)])
        return np.asarray(found[~np.isnan(found)], float)

    def missing(self) -> list[Missing]:
        """What a full study of these contenders, tasks and seeds would have besides."""
        return [
            found
            for who in self.contenders
            for task in self.tasks
            if (found := self._missing(who, task)) is not None
        ]

    def _missing(self, who: Contender, task: str) -> Missing | None:
        runs = {run.seed: run for run in self.cells.get((who, task), ())}
        absent = tuple(seed for seed in self.seeds if seed not in runs)
        unfinished = tuple(s for s, run in sorted(runs.items()) if not self.is_complete(run))
        if not absent and not unfinished:
            return None
        states = tuple(runs[seed].state for seed in unfinished)
        return Missing(who, task, absent, unfinished, states)

    def missing_games(self) -> list[str]:
        """The games of the paper's 57 that no run of this study plays; none outside Atari."""
        if self.suite != "atari":
            return []
        return [game for game in source_references() if f"atari/{game}" not in self.tasks]


@dataclass(frozen=True)
class Missing:
    """Runs of a contender on a task that are not there or not complete.

    Attributes:
        who: the contender.
        task: the task.
        absent: seeds that other contenders or tasks have, but this one has not.
        unfinished: seeds whose runs have not reached the horizon.
        states: of the unfinished runs.
    """

    who: Contender
    task: str
    absent: tuple[int, ...]
    unfinished: tuple[int, ...]
    states: tuple[str, ...]


# --- putting runs together -----------------------------------------------------------------------


def make_studies(runs: Sequence[Run], at_frames: int | None = None) -> list[Study]:
    """Separate runs that must not be compared; the larger studies come first.

    Args:
        runs: any runs.
        at_frames: compare after so many frames instead of at the end of the budget.

    Raises:
        ReportError: Two runs of one agent with the same settings, environment and seed.
    """
    studies = []
    for suite in SUITES:
        of_suite = [run for run in runs if run.suite == suite]
        groups = _comparable(of_suite)
        said = _separated(suite, groups) if len(groups) > 1 else ()
        for number, group in enumerate(groups, start=1):
            name = suite if number == 1 else f"{suite}-{number}"
            studies.append(_study(name, suite, group, at_frames, said))
    return sorted(studies, key=lambda study: -len(study.runs))


def _comparable(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs by protocol; each kind of agent may have its own where there is no doubt which."""
    protocols: dict[AgentKind, Counter[Protocol]] = defaultdict(Counter)
    by_protocol: dict[Protocol, list[Run]] = defaultdict(list)
    for run in runs:
        protocols[contender(run.agent).style.kind][run.protocol] += 1
        by_protocol[run.protocol].append(run)
    if all(len(found) == 1 for found in protocols.values()):
        together = [run for group in by_protocol.values() for run in group]
        return [together] if together else []
    return sorted(by_protocol.values(), key=lambda group: (-len(group), group[0].protocol))


def _separated(suite: str, groups: Sequence[Sequence[Run]]) -> tuple[str, ...]:
    listed = "; ".join(
        f"({number}) {group[0].protocol}: {len(group)} runs"
        for number, group in enumerate(groups, start=1)
    )
    return (
        f"Runs on {SUITES[suite]} have {len(groups)} different budgets or evaluation protocols and "
        f"are compared within each only: {listed}.",
    )


def _study(
    name: str, suite: str, runs: Sequence[Run], at_frames: int | None, said: Sequence[str]
) -> Study:
    names, notes = _contenders(runs)
    tasks, more = _tasks(runs)
    cells: dict[tuple[Contender, str], list[Run]] = defaultdict(list)
    for run in runs:
        cells[names[id(run)], tasks[id(run)]].append(run)
    ordered = {key: tuple(sorted(found, key=lambda run: run.seed)) for key, found in cells.items()}
    _refuse_duplicates(ordered)
    protocols = {contender(run.agent).style.kind: run.protocol for run in runs}
    horizons = {
        kind: min(protocol.budget_frames, at_frames or protocol.budget_frames)
        for kind, protocol in protocols.items()
    }
    return Study(name, suite, protocols, horizons, ordered, (*said, *notes, *more))


def _contenders(runs: Sequence[Run]) -> tuple[dict[int, Contender], list[str]]:
    """Who each run is of, by the run's `id`: agents with several settings become several."""
    names: dict[int, Contender] = {}
    notes = []
    for agent in sorted({run.agent for run in runs}):
        of_agent = [run for run in runs if run.agent == agent]
        kinds = Counter(tuple(sorted(run.settings.items())) for run in of_agent)
        usual = dict(max(kinds.items(), key=lambda counted: (counted[1], counted[0]))[0])
        settings_of_task = defaultdict(set)
        for run in of_agent:
            settings_of_task[run.environment].add(tuple(sorted(run.settings.items())))
        several = any(len(found) > 1 for found in settings_of_task.values())
        for run in of_agent:
            variant = _difference(run.settings, usual) if several else ""
            names[id(run)] = contender(agent, variant)
        differing = sorted({_difference(dict(kind), usual) for kind in kinds} - {""})
        if several:
            notes.append(
                f"{agent} has runs with different settings, which are compared as different "
                f"agents: {'; '.join(differing)}."
            )
        elif differing:
            notes.append(
                f"The settings of {agent} differ between environments: {'; '.join(differing)}."
            )
    return names, notes


def _difference(settings: Mapping[str, str], usual: Mapping[str, str]) -> str:
    keys = [key for key in {**usual, **settings} if settings.get(key) != usual.get(key)]
    return ", ".join(f"{key}={settings.get(key, 'nothing')}".replace('"', "") for key in keys)


def _tasks(runs: Sequence[Run]) -> tuple[dict[int, str], list[str]]:
    """What each run plays, by the run's `id`: an environment with several options is several."""
    names, notes = {}, []
    for environment in sorted({run.environment for run in runs}):
        of_task = [run for run in runs if run.environment == environment]
        kinds = Counter(run.options for run in of_task)
        usual = max(kinds, key=lambda options: (kinds[options], options))
        for run in of_task:
            name = environment if run.options == usual else f"{environment} {run.options}"
            names[id(run)] = name
        if len(kinds) > 1:
            notes.append(
                f"{environment} has runs with different options, which are compared as different "
                f"environments: {'; '.join(sorted(kinds))}."
            )
        elif usual != "{}":
            notes.append(f"{environment} has options: {usual}.")
    return names, notes


def _refuse_duplicates(cells: Mapping[tuple[Contender, str], Sequence[Run]]) -> None:
    lines = []
    for (who, task), runs in sorted(cells.items()):
        by_seed: dict[int, list[Run]] = defaultdict(list)
        for run in runs:
            by_seed[run.seed].append(run)
        lines += [
            f"  {who.title} on {task}, seed {seed}: {', '.join(run.name for run in same)}"
            for seed, same in by_seed.items()
            if len(same) > 1
        ]
    if lines:
        raise ReportError(
            "expected one run for each agent, environment and seed, found several with the same "
            "settings:\n" + "\n".join(lines) + "\nleave all but one of each out, or move them away"
        )
