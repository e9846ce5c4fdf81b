"""Searches for settings: Optuna samples trials, a sweep runs them, and a journal records them.

A trial is a variant of every run of a plan's agent on an environment. The journal has its settings
before its runs start; the run folders have the rest. So a search that was killed resumes with the
trials that it had, and samples the same ones as without the kill if it runs one job at a time.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from noisynet.config import ConfigError
from noisynet.experiments.job import Job, JobState
from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.plan_file import PlanError, Range, Search, setting_text
from noisynet.extras import import_extra
from noisynet.runs import RunError, RunFolder, compare_configs, read_metrics
from noisynet.runs.encoding import decode, encode
from noisynet.runs.lock import RunLock, RunLocked

Log = Callable[[RunSpec, str], None]

JOURNAL: Final = "search.journal"
"""The file below `out` with the trials, in Optuna's format."""

_LOCK: Final = "search.lock"
_RECORD: Final = "search"  # the attribute of a study with what all of its trials share
_DIGITS: Final = 3  # of sampled numbers

_OBJECTIVES: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "score": max,
    "last": lambda scores: scores[-1],
    "mean": fmean,
}


class NoLock:
    """The lock of a journal that `search.lock` protects: nothing that a kill could leave behind."""

    def acquire(self) -> bool:
        """Succeed."""
        return True

    def release(self) -> None:
        """Nothing to release."""


@dataclass
class OpenTrial:
    """A trial whose runs are not finished; `seen` is what was last read of them."""

    number: int
    id: int
    specs: tuple[RunSpec, ...]
    seen: object = None


class Study:
    """The trials of one agent on one environment. The journal is read when it is constructed.

    Args:
        storage: Optuna's.
        specs: the runs of a trial, without its settings.
        search: the plan's table.
        log: is called with a run and an event.

    Raises:
        PlanError: the journal's trials are of another plan.
    """

    def __init__(
        self, storage: Any, specs: Sequence[RunSpec], search: Search, log: Log
    ) -> None:
        self._optuna, self._storage, self._log = import_extra("optuna", "search"), storage, log
        self._specs, self._search = tuple(specs), search
        self.name = f"{specs[0].agent} on {specs[0].environment}"
        self._study = self._optuna.create_study(
            storage=storage, study_name=self.name, direction="maximize", load_if_exists=True
        )
        self._id = storage.get_study_id_from_name(self.name)
        self._distributions = {
            key: _distribution(self._optuna.distributions, given)
            for key, given in search.space.items()
        }
        self._pruner = self._optuna.pruners.MedianPruner(
            n_startup_trials=search.startup_trials, n_warmup_steps=search.prune_after
        )
        self._check_record()
        self.open = [
            self._open(trial.number, self._runs(trial.number, trial.params))
            for trial in self.trials()
            if trial.state.name == "RUNNING"
        ]

    def trials(self) -> list[Any]:
        """Optuna's records of all trials."""
        return list(self._storage.get_all_trials(self._id))

    def ask(self) -> tuple[RunSpec, ...]:
        """The runs of a new trial; none if there are enough."""
        while len(trials := self.trials()) < self._search.trials:
            number, state = len(trials), self._optuna.trial.TrialState
            settings = self._sample(trials)
            try:
                specs, of_trial = self._runs(number, settings), state.RUNNING
            except ConfigError as error:  # valid one by one, contradictory together
                specs, of_trial = (), state.FAIL
                message = "; ".join(str(error).splitlines())
                self._log(self._specs[0], f"trial {number} is contradictory: {message}")
            created = self._optuna.trial.create_trial(
                state=of_trial, params=settings, distributions=self._distributions
            )
            self._storage.create_new_trial(self._id, created)  # one line of the journal
            if specs:
                self.open.append(self._open(number, specs))
                return specs
        return ()

    def update(self, jobs: Mapping[str, Job]) -> None:
        """Record the evaluations of the jobs, by name, and the ends of trials; stop poor trials."""
        for trial in list(self.open):
            of_trial = [jobs[spec.name] for spec in trial.specs]
            paths = [RunFolder(spec.folder).metrics_path for spec in trial.specs]
            sizes = [path.stat().st_size if path.exists() else 0 for path in paths]
            seen = [*sizes, *(job.state for job in of_trial)]
            if seen != trial.seen:
                trial.seen = seen
                self._record(trial, of_trial)

    def _open(self, number: int, specs: tuple[RunSpec, ...]) -> OpenTrial:
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        return OpenTrial(number, trial_id, specs)

    def _record(self, trial: OpenTrial, jobs: list[Job]) -> None:
        state = self._optuna.trial.TrialState
        try:
            values = self._values(jobs)
        except (RunError, KeyError) as error:  # the trial stays open
            self._log(trial.specs[0], f"cannot read the evaluations of its trial: {error}")
            return
        known = len(self._storage.get_trial(trial.id).intermediate_values)
        for step, value in enumerate(values):
            if step >= known:
                self._storage.set_trial_intermediate_value(trial.id, step, value)
            if step >= known - 1 and self._prunes(trial):  # killed before it could be pruned?
                self._storage.set_trial_state_values(trial.id, state.PRUNED, [value])
                self.open.remove(trial)
                self._log(jobs[0].spec, f"pruned with {self._search.objective} {value:,.2f}")
                for job in jobs:
                    job.stop()
                return
        if values and all(job.state is JobState.DONE for job in jobs):
            self._storage.set_trial_state_values(trial.id, state.COMPLETE, values[-1:])
            self.open.remove(trial)

    def _prunes(self, trial: OpenTrial) -> bool:
        return bool(self._pruner.prune(self._study, self._storage.get_trial(trial.id)))

    def _values(self, jobs: Sequence[Job]) -> list[float]:
        """The objective after each evaluation, one run after the other: of the runs so far."""
        objective, ended, values = _OBJECTIVES[self._search.objective], list[float](), []
        for job in jobs:
            scores = _scores(job.spec)
            values += [
                fmean([*ended, objective(scores[:count])]) for count in range(1, len(scores) + 1)
            ]
            if job.state is not JobState.DONE:
                break
            ended.append(objective(scores))
        return values

    def _sample(self, trials: Sequence[Any]) -> dict[str, Any]:
        """The settings of the next trial, from those that ended and a stream of its own.

        They are sampled in a copy of the study: the journal gets a trial with all of its settings
        or not at all.
        """
        stream = random.Random(f"{self._search.seed} {len(trials)}")
        sampler = self._optuna.samplers.TPESampler(
            seed=stream.getrandbits(32),
            n_startup_trials=self._search.startup_trials,
            multivariate=True,
        )
        copy = self._optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(trials)
        sampled = copy.ask(self._distributions).params
        return {key: _rounded(value, self._search.space[key]) for key, value in sampled.items()}

    def _runs(self, number: int, settings: Mapping[str, Any]) -> tuple[RunSpec, ...]:
        variant = f"trial-{number}"
        return tuple(spec.with_settings(variant, settings) for spec in self._specs)

    def _check_record(self) -> None:
        """Compare what all trials share with the journal; the number of trials may change."""
        run = self._specs[0].config.model_dump(mode="json", exclude={"seed", "threads"})
        given = self._search.model_dump(mode="json", exclude={"trials"})
        given |= {"run": run, "seeds": [spec.seed for spec in self._specs]}
        given = decode(encode(given))
        stored = self._study.user_attrs.get(_RECORD)
        if stored is None:
            self._study.set_user_attr(_RECORD, given)
        elif differences := compare_configs(stored, given):
            raise PlanError(
                "\n".join(
                    f"the search has {found.key}: {found.stored}, the plan {found.given}"
                    for found in differences
                )
                + "\nchoose another --out"
            )

    def summary(self) -> list[str]:
        """The number of trials, and the best settings in TOML."""
        trials = self.trials()
        states = Counter(trial.state.name for trial in trials)
        line = f"{self.name}: {states['COMPLETE']:,} of {self._search.trials:,} trials complete"
        more = {"PRUNED": "pruned", "RUNNING": "unfinished", "FAIL": "contradictory"}
        counts = [f"{states[state]:,} {word}" for state, word in more.items() if states[state]]
        lines = [", ".join([line, *counts])]
        complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
        if complete:
            best = max(complete, key=lambda trial: float(trial.value))  # the first of equal ones
            lines += [f"# trial {best.number}: {self._search.objective} {best.value:,.2f}"]
            lines += ["[settings]"]
            for key, value in best.params.items():
                lines.append(f"{json.dumps(key)} = {_toml(value, self._search.space[key])}")
        return lines


class Searches:
    """The studies of a plan, one for each agent on each environment."""

    def __init__(self, storage: Any, plan: Plan, search: Search, log: Log) -> None:
        pairs: dict[tuple[str, str], list[RunSpec]] = {}
        for spec in plan.specs:
            pairs.setdefault((spec.agent, spec.environment), []).append(spec)
        self.studies = [Study(storage, specs, search, log) for specs in pairs.values()]

    def open_specs(self) -> list[RunSpec]:
        """The runs of trials that are not finished."""
        return [spec for study in self.studies for trial in study.open for spec in trial.specs]

    def ask(self) -> tuple[RunSpec, ...]:
        """The runs of a new trial, of the study with the fewest; none if all have enough."""
        return min(self.studies, key=lambda study: len(study.trials())).ask()

    def update(self, jobs: Sequence[Job]) -> None:
        """Record what the jobs have done; stop those of poor trials."""
        by_name = {job.spec.name: job for job in jobs}
        for study in self.studies:
            study.update(by_name)

    def summary(self) -> tuple[str, ...]:
        """The number of trials and the best settings of each study."""
        return tuple(line for study in self.studies for line in study.summary())


@contextmanager
def open_searches(plan: Plan, search: Search, log: Log) -> Iterator[Searches]:
    """Open the journal of a plan for one process at a time.

    Raises:
        ImportError: Optuna is not installed.
        PlanError: another process searches, or the journal is of another plan.
    """
    optuna = import_extra("optuna", "search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    plan.out.mkdir(parents=True, exist_ok=True)
    try:
        lock = RunLock(plan.out / _LOCK)
    except RunLocked as error:
        raise PlanError(f"{error}\nanother process runs this search: wait for it") from error
    with lock:
        path = plan.out / JOURNAL
        _drop_unfinished_line(path)
        journal = optuna.storages.journal
        backend = journal.JournalFileBackend(str(path), lock_obj=NoLock())
        yield Searches(optuna.storages.JournalStorage(backend), plan, search, log)


def read_searches(plan: Plan, search: Search) -> Searches:
    """The studies of a plan as they are now, in memory. Nothing is created or changed."""
    optuna = import_extra("optuna", "search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    copy = optuna.storages.InMemoryStorage()
    path = plan.out / JOURNAL
    if path.exists():
        backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=NoLock())
        stored = optuna.storages.JournalStorage(backend)
        for name in optuna.get_all_study_names(stored):
            optuna.copy_study(
                from_study_name=name, from_storage=stored, to_storage=copy, to_study_name=name
            )
    return Searches(copy, plan, search, lambda _spec, _message: None)


def _drop_unfinished_line(path: Path) -> None:
    """Truncate a journal to its last whole line: a power cut may leave a part of one."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def _distribution(kinds: Any, given: Range | tuple[Any, ...]) -> Any:
    if not isinstance(given, Range):
        return kinds.CategoricalDistribution([setting_text(choice) for choice in given])
    whole = isinstance(given.low, int) and isinstance(given.high, int)
    kind = kinds.IntDistribution if whole else kinds.FloatDistribution
    return kind(given.low, given.high, log=given.log)


def _rounded(value: Any, given: Range | tuple[Any, ...]) -> Any:
    """A sampled number in a few digits, within its range."""
    if not isinstance(given, Range) or isinstance(value, int):
        return value
    return min(max(float(f"{value:.{_DIGITS}g}"), given.low), given.high)


def _toml(value: Any, given: Range | tuple[Any, ...]) -> str:
    """A sampled value in TOML, where JSON's numbers, strings and lists are valid."""
    if not isinstance(given, Range):
        value = next(choice for choice in given if setting_text(choice) == value)
    return json.dumps(value)


def _scores(spec: RunSpec) -> list[float]:
    """The score of each evaluation of a run."""
    noise = getattr(spec.config.exploration, "evaluation", None)
    modes = (noise,) if noise in ("on", "off") else ("on", "off")
    rows = read_metrics(RunFolder(spec.folder).metrics_path)
    return [
        row["score"] for row in rows if row["kind"] == "evaluation" and row["noise"] in modes
    ]
