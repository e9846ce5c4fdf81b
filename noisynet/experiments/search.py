"""Searches for settings: Optuna samples trials, a sweep runs them, and a journal records them.

A trial is a variant of the runs of one agent on one environment. The journal has its settings
before its runs start; the rest is in the run folders. A search that was killed resumes with the
trials that it had, and samples the same ones as without the kill if it runs one job at a time.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Final

from noisynet.config import ConfigError
from noisynet.experiments.job import Job, JobState
from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.plan_file import PlanError, Search, Values, setting_text
from noisynet.extras import import_extra
from noisynet.runs import RunError, RunFolder, compare_configs, read_metrics
from noisynet.runs.encoding import decode, encode
from noisynet.runs.lock import RunLock, RunLocked

JOURNAL: Final = "search.journal"
"""The file below `out` with the trials, in Optuna's format."""

Log = Callable[[RunSpec, str], None]

_LOCK: Final = "search.lock"
_RECORD: Final = "search"  # the attribute of a study with what all of its trials share
_OBJECTIVES: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "score": max,
    "last": lambda scores: scores[-1],
    "mean": fmean,
}


class Study:
    """The trials of one agent on one environment.

    Args:
        storage: Optuna's.
        specs: the runs of a trial, without its settings.
        search: the plan's table.
        log: is called with a run and an event.

    Raises:
        PlanError: the trials in the storage are of another plan.
    """

    def __init__(self, storage: Any, specs: Sequence[RunSpec], search: Search, log: Log) -> None:
        self._optuna, self._storage, self._log = _optuna(), storage, log
        self._specs, self._search = tuple(specs), search
        self._states = self._optuna.trial.TrialState
        self.name = f"{specs[0].agent} on {specs[0].environment}"
        if self.name not in self._optuna.get_all_study_names(storage):
            self._optuna.create_study(storage=storage, study_name=self.name, direction="maximize")
        self._study = self._optuna.load_study(storage=storage, study_name=self.name)
        self._id = storage.get_study_id_from_name(self.name)
        self._check_record()
        self._distributions = {
            key: _distribution(self._optuna.distributions, values)
            for key, values in search.space.items()
        }
        self._pruner = self._optuna.pruners.MedianPruner(
            n_startup_trials=search.startup_trials, n_warmup_steps=search.prune_after
        )
        self._seen: dict[int, object] = {}  # what was last read of an unfinished trial
        self.unfinished = {
            trial.number: self._runs(trial.number, trial.params)
            for trial in self.trials()
            if trial.state is self._states.RUNNING
        }

    def _check_record(self) -> None:
        """Compare what all trials share with the storage; the number of trials may change."""
        run = self._specs[0].config.model_dump(mode="json", exclude={"seed", "threads"})
        given = self._search.model_dump(mode="json", exclude={"trials", "space"})
        given["space"] = {key: values.describe() for key, values in self._search.space.items()}
        given |= {"run": run, "seeds": [spec.seed for spec in self._specs]}
        stored = self._study.user_attrs.get(_RECORD)
        if stored is None:
            self._study.set_user_attr(_RECORD, decode(encode(given)))
        elif found := compare_configs(stored, given):
            lines = [
                f"{one.key}: the search has {one.stored}, the plan {one.given}" for one in found
            ]
            raise PlanError("\n".join([*lines, "choose another --out"]))

    def trials(self) -> list[Any]:
        """Optuna's records of all trials."""
        return list(self._storage.get_all_trials(self._id))

    def ask(self) -> tuple[RunSpec, ...]:
        """The runs of a new trial; none if there are enough."""
        while len(trials := self.trials()) < self._search.trials:
            number, state, settings = len(trials), self._states.RUNNING, self._sample(trials)
            try:
                self.unfinished[number] = self._runs(number, settings)
            except ConfigError as error:  # each value is valid, but not all together
                state = self._states.FAIL
                message = "; ".join(str(error).splitlines())
                self._log(self._specs[0], f"trial {number} is contradictory: {message}")
            created = self._optuna.trial.create_trial(
                state=state, params=settings, distributions=self._distributions
            )
            self._storage.create_new_trial(self._id, created)
            if number in self.unfinished:
                return self.unfinished[number]
        return ()

    def _sample(self, trials: Sequence[Any]) -> dict[str, Any]:
        """The settings of the next trial, from those that ended and a random stream of its own.

        They are sampled in a copy of the study: the journal has all settings of a trial, or none.
        """
        stream = random.Random(f"{self._search.seed} {len(trials)}")
        sampler = self._optuna.samplers.TPESampler(
            n_startup_trials=self._search.startup_trials,
            multivariate=True,
            seed=stream.getrandbits(32),
        )
        copy = self._optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(trials)
        sampled = copy.ask(self._distributions).params
        return {key: _rounded(value, self._search.space[key]) for key, value in sampled.items()}

    def _runs(self, number: int, settings: Mapping[str, Any]) -> tuple[RunSpec, ...]:
        return tuple(spec.with_settings(f"trial-{number}", settings) for spec in self._specs)

    def update(self, jobs: Mapping[str, Job]) -> None:
        """Record the evaluations of the jobs, by name, and the ends of trials; stop poor trials."""
        for number, specs in list(self.unfinished.items()):
            of_trial = [jobs[spec.name] for spec in specs]
            paths = [RunFolder(spec.folder).metrics_path for spec in specs]
            sizes = [path.stat().st_size if path.exists() else 0 for path in paths]
            seen = (sizes, [job.state for job in of_trial])
            if seen != self._seen.get(number):
                self._seen[number] = seen
                self._record(number, of_trial)

    def _record(self, number: int, jobs: list[Job]) -> None:
        try:
            values = self._values(jobs)
        except (RunError, KeyError) as error:  # the trial stays unfinished
            self._log(jobs[0].spec, f"the evaluations of its trial are unreadable: {error}")
            return
        trial = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        known = len(self._storage.get_trial(trial).intermediate_values)
        state = self._states.COMPLETE if all(job.state is JobState.DONE for job in jobs) else None
        for step in range(max(0, known - 1), len(values)):  # it may have been killed before pruning
            if step >= known:
                self._storage.set_trial_intermediate_value(trial, step, values[step])
            if self._pruner.prune(self._study, self._storage.get_trial(trial)):
                state, values = self._states.PRUNED, values[: step + 1]
                self._log(jobs[0].spec, f"pruned with {self._search.objective} {values[-1]:,.2f}")
                break
        if state is not None and values:
            self._storage.set_trial_state_values(trial, state, values[-1:])
            del self.unfinished[number]
            for job in jobs:
                job.stop()

    def _values(self, jobs: Sequence[Job]) -> list[float]:
        """After each evaluation, the mean objective of the runs so far, in the order of seeds."""
        objective, ended, values = _OBJECTIVES[self._search.objective], list[float](), []
        for job in jobs:
            scores = _scores(job.spec)
            of_run = [objective(scores[: count + 1]) for count in range(len(scores))]
            values += [fmean([*ended, value]) for value in of_run]
            if job.state is not JobState.DONE:
                break
            ended += of_run[-1:]
        return values

    def specs(self, *, new: bool = False) -> list[RunSpec]:
        """The runs of unfinished trials; and of new ones, without the settings they will have."""
        runs = [spec for specs in self.unfinished.values() for spec in specs]
        for number in range(len(self.trials()), self._search.trials if new else 0):
            runs += [replace(spec, variant=f"trial-{number}") for spec in self._specs]
        return runs

    def summary(self) -> list[str]:
        """The number of trials, and the best settings in TOML."""
        trials, states = self.trials(), self._states
        counts = Counter(trial.state for trial in trials)
        line = (
            f"{self.name}: {counts[states.COMPLETE]:,} of {self._search.trials:,} trials complete"
        )
        words = {
            states.PRUNED: "pruned",
            states.RUNNING: "unfinished",
            states.FAIL: "contradictory",
        }
        more = [f", {counts[state]:,} {word}" for state, word in words.items() if counts[state]]
        complete = [trial for trial in trials if trial.state is states.COMPLETE]
        if not complete:
            return ["".join([line, *more])]
        best = max(complete, key=lambda trial: float(trial.value))  # the first of equal ones
        settings = [
            f"{json.dumps(key)} = {_toml(value, self._search.space[key])}"
            for key, value in best.params.items()
        ]
        title = f"# trial {best.number}: {self._search.objective} {best.value:,.2f}"
        return ["".join([line, *more]), title, "[settings]", *settings]


@contextmanager
def open_studies(plan: Plan, search: Search, log: Log) -> Iterator[list[Study]]:
    """The studies of a plan, one for each agent on each environment, for one process at a time.

    Raises:
        ImportError: Optuna is not installed.
        PlanError: another process has opened it, or it is of another plan.
    """
    _optuna()  # before anything is created
    plan.out.mkdir(parents=True, exist_ok=True)
    try:
        lock = RunLock(plan.out / _LOCK)
    except RunLocked as error:
        raise PlanError(str(error)) from error
    with lock:
        path = plan.out / JOURNAL
        if path.exists():
            with path.open("r+b") as file:  # a power cut may leave a part of a line
                file.truncate(file.read().rfind(b"\n") + 1)
        yield _studies(_journal(path), plan, search, log)


def read_studies(plan: Plan, search: Search) -> list[Study]:
    """The studies of a plan as they are now, in memory. Nothing is created or changed."""
    optuna = _optuna()
    copy, path = optuna.storages.InMemoryStorage(), plan.out / JOURNAL
    if path.exists():
        stored = _journal(path)
        for name in optuna.get_all_study_names(stored):
            optuna.copy_study(from_study_name=name, from_storage=stored, to_storage=copy)
    return _studies(copy, plan, search, lambda _spec, _message: None)


def _studies(storage: Any, plan: Plan, search: Search, log: Log) -> list[Study]:
    pairs: dict[tuple[str, str], list[RunSpec]] = {}
    for spec in plan.specs:
        pairs.setdefault((spec.agent, spec.environment), []).append(spec)
    return [Study(storage, specs, search, log) for specs in pairs.values()]


def _optuna() -> Any:
    optuna = import_extra("optuna", "search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _journal(path: Path) -> Any:
    """The storage of a journal that `search.lock` protects: Optuna's locks would outlive a kill."""
    optuna = _optuna()
    no_lock = SimpleNamespace(acquire=lambda: True, release=lambda: None)
    backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=no_lock)
    return optuna.storages.JournalStorage(backend)


def _distribution(kinds: Any, values: Values) -> Any:
    if values.choices:
        return kinds.CategoricalDistribution([setting_text(choice) for choice in values.choices])
    whole = isinstance(values.low, int) and isinstance(values.high, int)
    kind = kinds.IntDistribution if whole else kinds.FloatDistribution
    return kind(values.low, values.high, log=values.log)


def _rounded(value: Any, values: Values) -> Any:
    """A sampled number in three digits, within its range."""
    if not isinstance(value, float):
        return value
    return min(max(float(f"{value:.3g}"), values.low), values.high)


def _toml(value: Any, values: Values) -> str:
    """A sampled value in TOML, where numbers, strings and lists are written as in JSON."""
    return json.dumps({setting_text(choice): choice for choice in values.choices}.get(value, value))


def _scores(spec: RunSpec) -> list[float]:
    """The score of each evaluation of a run; noisy agents have another for the other mode."""
    noise = getattr(spec.config.exploration, "evaluation", None)
    modes = (noise,) if noise in ("on", "off") else ("on", "off")
    rows = read_metrics(RunFolder(spec.folder).metrics_path)
    return [row["score"] for row in rows if row["kind"] == "evaluation" and row["noise"] in modes]
