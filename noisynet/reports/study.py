"""A study: runs that may be compared with each other, by contender and task."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from noisynet.envs import parse_environment
from noisynet.reports.agents import STYLES, AgentKind, Contender, settings_difference
from noisynet.reports.load_runs import FAMILY_TITLES, NoiseMode, Protocol, ReportError, Run
from noisynet.reports.published import atari_references
from noisynet.reports.scores import Floats, run_scores


@dataclass(frozen=True)
class Study:
    """Runs of one family of environments under one protocol.

    Value and actor-critic agents may have different protocols, as in the paper (200M and 320M
    frames). A task is an environment, followed by its options if they are not the most common ones.
    `horizons` are the frames at which agents of each kind are compared: the budget, or fewer if the
    user asked for it. `cells` has the runs of each contender on each task, all in order.
    """

    name: str
    title: str
    family: str
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
        """The environments, in alphabetical order, with numbers by their value."""
        return tuple(sorted({task for _, task in self.cells}, key=_by_numbers))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of all runs."""
        return tuple(sorted({run.seed for run in self.runs}))

    @property
    def runs(self) -> list[Run]:
        """All runs, ordered by contender, task and seed."""
        return [run for runs in self.cells.values() for run in runs]

    @property
    def pairs(self) -> list[tuple[Contender, Contender]]:
        """Every noisy contender with its baseline, which has no variant, if both have runs."""
        pairs = [(noisy, Contender(noisy.style.baseline)) for noisy in self.contenders]
        return [(noisy, baseline) for noisy, baseline in pairs if baseline in self.contenders]

    def period(self, contender: Contender) -> int:
        """Frames between evaluations of a contender."""
        return self.protocols[contender.style.kind].period_frames

    def points(self, contender: Contender) -> int:
        """How many evaluations a complete run of a contender has."""
        kind = contender.style.kind
        return self.protocols[kind].point(self.horizons[kind])

    def frames(self, contender: Contender) -> Floats:
        """The frames of a contender's evaluations: [K]."""
        due = self.protocols[contender.style.kind].frames
        return np.array([due(point + 1) for point in range(self.points(contender))], np.float64)

    def is_complete(self, run: Run) -> bool:
        """Whether a run was evaluated at the horizon."""
        return 0 < self.points(Contender(run.agent)) <= len(run.curve)

    def complete(self, contender: Contender, task: str) -> list[Run]:
        """The complete runs of a contender on a task."""
        return [run for run in self.cells.get((contender, task), ()) if self.is_complete(run)]

    def unfinished(self, contender: Contender, task: str) -> list[Run]:
        """The runs of a contender on a task that have not reached the horizon."""
        return [run for run in self.cells.get((contender, task), ()) if not self.is_complete(run)]

    def absent(self, contender: Contender, task: str) -> list[int]:
        """The seeds that other runs have, but none of this contender on this task."""
        found = {run.seed for run in self.cells.get((contender, task), ())}
        return [seed for seed in self.seeds if seed not in found]

    def tasks_of(self, *contenders: Contender) -> list[str]:
        """The tasks on which each of the contenders has a complete run."""
        return [task for task in self.tasks if all(self.complete(one, task) for one in contenders)]

    def curves(
        self, contender: Contender, runs: Sequence[Run], noise: NoiseMode | None = None
    ) -> Floats:
        """Scores of runs at each evaluation up to the horizon: [S, K], NaN for missing ones.

        Args:
            contender: the agent of the runs.
            runs: complete or not.
            noise: with noise on or off; None for the mode of the run's score.
        """
        found = np.full((len(runs), self.points(contender)), np.nan)
        for row, run in zip(found, runs, strict=True):
            curve = run.curve if noise is None else run.curves.get(noise, np.empty(0))
            row[: len(curve)] = curve[: len(row)]
        return found

    def scores(self, contender: Contender, task: str, noise: NoiseMode | None = None) -> Floats:
        """The score of each complete run: the maximum of its curve, [S]."""
        found = run_scores(self.curves(contender, self.complete(contender, task), noise))
        return np.asarray(found[~np.isnan(found)])

    def missing_games(self) -> list[str]:
        """Which of the paper's 57 games have no run; empty outside Atari."""
        if self.family != "atari":
            return []
        return [game for game in atari_references("source") if f"atari/{game}" not in self.tasks]


def count(number: int, what: str) -> str:
    """A number of things: "1 run", "2 runs"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _by_numbers(text: str) -> list[tuple[int, str]]:
    """A key that sorts "deep_sea/5" before "deep_sea/10"."""
    words = re.findall(r"\d+|\D+", text)
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in words]


def task_game(task: str) -> tuple[str, str]:
    """The family and game of a task, without its options."""
    return parse_environment(task.partition(" ")[0])


def table_label(task: str) -> str:
    """The name of a task in tables: Atari games without their family."""
    return task.removeprefix("atari/")


def figure_label(task: str) -> str:
    """The name of a task in figures: without its family, Deep Sea with its size."""
    family, game = task_game(task)
    label = game + task.removeprefix(f"{family}/{game}")
    if family == "deep_sea":
        return f"deep sea {label}"
    return label.replace("_", " ") if family == "atari" else label


# --- grouping runs -------------------------------------------------------------------------------


def make_studies(runs: Sequence[Run], at_frames: int | None = None) -> list[Study]:
    """Group runs into studies, the largest first.

    With `at_frames`, runs are compared after so many frames instead of at the end of the budget.

    Raises:
        ReportError: Two runs of one agent with the same settings, environment and seed.
    """
    studies = []
    for family in FAMILY_TITLES:
        groups = _comparable([run for run in runs if run.family == family])
        notes = _protocol_notes(family, groups) if len(groups) > 1 else []
        protocols = [group[0].protocol for group in groups]
        for group in groups:
            difference = group[0].protocol.difference(protocols)
            name = "-".join([family, *difference.replace(",", "").split()])
            title = ", ".join(filter(None, [FAMILY_TITLES[family], difference]))
            studies.append(_study(name, title, family, group, at_frames, notes))
    return sorted(studies, key=lambda study: -len(study.runs))


def _comparable(runs: list[Run]) -> list[list[Run]]:
    """Groups of comparable runs: one if each kind of agent has one protocol, else by protocol."""
    by_protocol: dict[Protocol, list[Run]] = defaultdict(list)
    for run in runs:
        by_protocol[run.protocol].append(run)
    protocols = {(STYLES[run.agent].kind, run.protocol) for run in runs}
    if runs and len(protocols) == len({kind for kind, _ in protocols}):
        return [runs]
    return sorted(by_protocol.values(), key=lambda group: (-len(group), group[0].protocol))


def _protocol_notes(family: str, groups: Sequence[Sequence[Run]]) -> list[str]:
    listed = "; ".join(f"{group[0].protocol}: {count(len(group), 'run')}" for group in groups)
    return [
        f"Runs on {FAMILY_TITLES[family]} have {len(groups)} different budgets or evaluation "
        f"protocols and are compared within each only: {listed}."
    ]


def _study(
    name: str,
    title: str,
    family: str,
    runs: Sequence[Run],
    at_frames: int | None,
    notes: Sequence[str],
) -> Study:
    contenders, contender_notes = _contenders(runs)
    tasks, task_notes = _tasks(runs)
    found: dict[tuple[Contender, str, int], list[Run]] = defaultdict(list)
    for run in runs:
        found[contenders[id(run)], tasks[id(run)], run.seed].append(run)
    _refuse_duplicates(found)
    cells: dict[tuple[Contender, str], tuple[Run, ...]] = defaultdict(tuple)
    for (contender, task, _), (run,) in sorted(found.items()):
        cells[contender, task] += (run,)
    protocols = {STYLES[run.agent].kind: run.protocol for run in runs}
    horizons = {
        kind: min(protocol.budget_frames, at_frames or protocol.budget_frames)
        for kind, protocol in protocols.items()
    }
    all_notes = (*notes, *contender_notes, *task_notes)
    return Study(name, title, family, protocols, horizons, dict(cells), all_notes)


def _contenders(runs: Sequence[Run]) -> tuple[dict[int, Contender], list[str]]:
    """The contender of each run, by the run's `id`, and notes on different settings."""
    names: dict[int, Contender] = {}
    notes = []
    for agent in sorted({run.agent for run in runs}):
        of_agent = [run for run in runs if run.agent == agent]
        kinds = Counter(tuple(sorted(run.settings.items())) for run in of_agent)
        common = dict(kinds.most_common(1)[0][0])  # of equally common ones the first folder's
        pairs = {(run.environment, tuple(sorted(run.settings.items()))) for run in of_agent}
        several = len(pairs) > len({environment for environment, _ in pairs})
        for run in of_agent:
            variant = settings_difference(run.settings, common) if several else ""
            names[id(run)] = Contender(agent, variant)
        differing = sorted({settings_difference(dict(kind), common) for kind in kinds} - {""})
        if several:
            notes.append(
                f"Runs of {agent} have different settings and are compared as different "
                f"agents: {'; '.join(differing)}."
            )
        elif differing:
            notes.append(
                f"The settings of {agent} differ between environments: {'; '.join(differing)}."
            )
    return names, notes


def _tasks(runs: Sequence[Run]) -> tuple[dict[int, str], list[str]]:
    """The task of each run, by the run's `id`, and notes on environment options."""
    names, notes = {}, []
    for environment in sorted({run.environment for run in runs}):
        of_task = [run for run in runs if run.environment == environment]
        kinds = Counter(run.options for run in of_task)
        common = kinds.most_common(1)[0][0]
        for run in of_task:
            name = environment if run.options == common else f"{environment} {run.options}"
            names[id(run)] = name
        if len(kinds) > 1:
            notes.append(
                f"Runs on {environment} have different options and are compared as different "
                f"environments: {'; '.join(sorted(kinds))}."
            )
        elif common != "{}":
            notes.append(f"{environment} has options: {common}.")
    return names, notes


def _refuse_duplicates(found: Mapping[tuple[Contender, str, int], Sequence[Run]]) -> None:
    lines = [
        f"  {contender.title} on {task}, seed {seed}: {', '.join(run.name for run in same)}"
        for (contender, task, seed), same in sorted(found.items())
        if len(same) > 1
    ]
    if lines:
        raise ReportError(
            "expected one run per agent, environment and seed, got several with the same "
            "settings:\n" + "\n".join(lines) + "\nleave out or move away all but one of each"
        )
