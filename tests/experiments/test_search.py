"""Searches for the learning rate of runs that learn nothing: the nearer to 10⁻³, the higher scores.

Runs are objects of this process, or processes of stub_run.py where they are killed.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tomllib
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import pytest
from rich.console import Console

from experiments.conftest import Sweeps, until
from noisynet.config import build_config
from noisynet.config.run import PresetName
from noisynet.experiments import PlanError, ProcessOptions, RunSpec, build_plan, run_sweep
from noisynet.experiments import runner as runner_module
from noisynet.experiments.process import Exit
from noisynet.experiments.progress import read_progress
from noisynet.experiments.search import JOURNAL, read_studies
from noisynet.runs import MetricsLog, RunFolder

PLAN: Final = """
agents = ["noisynet-dqn"]
environments = ["deep_sea/4"]
seeds = 2
frames = 400

[search]
trials = 8
startup_trials = 3
objective = "mean"
prune_after = 2
space.optimiser.learning_rate = { low = 1e-5, high = 1e-1, log = true }
space.learning.sync_target_steps = { low = 10, high = 500 }
space.network.hidden = [[16], [32, 32]]
"""
LR: Final = "optimiser.learning_rate"


def scores(rate: float, seed: int) -> list[float]:
    """Of the four evaluations of a run."""
    return [n * (10 - abs(math.log10(rate) + 3)) + seed for n in range(1, 5)]


class Run:
    """A run of this process, which trains 100 frames and is evaluated whenever it is polled."""

    failing = ""
    started: Final[list[str]] = []

    def __init__(self, spec: RunSpec, _options: ProcessOptions, _threads: int) -> None:
        self.spec, stored = spec, spec.config.model_dump(mode="json")
        self.started.append(spec.name)
        self.folder = RunFolder.create_or_open(spec.folder, stored, must_match=["agent"])
        self.frames = int((self.folder.read_status() or {}).get("frames", 0))
        rate = spec.config.optimiser.learning_rate
        self.scores, self.stopped = scores(rate, spec.seed), False

    def has_started(self) -> bool:
        return True

    def poll(self) -> Exit | None:
        if self.stopped:
            return Exit(143, read_progress(self.spec), "SIGTERM")
        if self.spec.name == self.failing:
            return Exit(1, read_progress(self.spec), error="not finite")
        self.frames += 100
        score, row = self.scores[self.frames // 100 - 1], {"kind": "evaluation"}
        with MetricsLog(self.folder.metrics_path) as metrics:
            metrics.append(row | {"noise": "on", "frames": self.frames, "score": score})
            metrics.append(row | {"noise": "off", "frames": self.frames, "score": 1000.0})
        state: Any = "finished" if self.frames == 400 else "running"
        self.folder.write_status(state, frames=self.frames, score=score)
        return Exit(0, read_progress(self.spec)) if self.frames == 400 else None

    def stop(self, *, kill: bool) -> None:
        self.stopped = True


class Search:
    """A plan, a folder for its runs, and its search."""

    def __init__(self, folder: Path) -> None:
        self.plan, self.out = folder / "plan.toml", folder / "runs"
        self.plan.write_text(PLAN)

    def change(self, *replacements: tuple[str, str]) -> None:
        """Write the plan with other text."""
        text = PLAN
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        self.plan.write_text(text)

    def run(self, jobs: int = 1) -> tuple[int, str, str]:
        """Exit code, summary and log."""
        log = StringIO()
        plan = build_plan(str(self.plan), out=self.out)
        summary = run_sweep(plan, jobs=jobs, console=Console(file=log, width=200))
        return summary.exit_code, str(summary), log.getvalue()

    def trials(self) -> list[tuple[Any, ...]]:
        """Number, state, settings, value and values along the way of every trial."""
        return trials(self.plan, self.out)

    def state(self, trial: int, seed: int) -> str | None:
        """The state of a run."""
        return (RunFolder(self.out / name(trial, seed)).read_status() or {}).get("state")


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    monkeypatch.setattr(runner_module, "LocalProcess", Run)
    monkeypatch.setattr(runner_module, "_POLL_SECONDS", 0.0)
    Run.started.clear()
    return Search(tmp_path)


def name(trial: int, seed: int = 0) -> str:
    return f"deep_sea/4/noisynet-dqn+trial-{trial}/seed-{seed}"


def trials(plan: Path, out: Path) -> list[tuple[Any, ...]]:
    built = build_plan(str(plan), out=out)
    assert built.search is not None
    (study,) = read_studies(built, built.search)
    return [
        (trial.number, trial.state.name, trial.params, trial.value, trial.intermediate_values)
        for trial in study.trials()
    ]


def snippet(summary: str) -> dict[str, Any]:
    """The TOML at the end of a summary."""
    found: dict[str, Any] = tomllib.loads(summary[summary.index("# trial") :])["settings"]
    return found


def test_trials_run_are_pruned_and_the_best_is_printed(search: Search) -> None:
    code, summary, log = search.run()
    found = search.trials()
    complete = [trial for trial in found if trial[1] == "COMPLETE"]
    pruned = [trial for trial in found if trial[1] == "PRUNED"]
    assert (code, len(found), len(complete) + len(pruned)) == (0, 8, 8)
    assert len(complete) >= 3
    assert pruned
    assert f"{len(complete)} of 8 trials complete, {len(pruned)} pruned" in summary
    best = max(complete, key=lambda trial: float(trial[3]))
    assert snippet(summary)[LR] == best[2][LR]
    assert snippet(summary)["network.hidden"] == json.loads(best[2]["network.hidden"])
    assert f"# trial {best[0]}: mean {best[3]:.2f}" in summary
    assert f"{name(pruned[0][0])}: pruned with mean" in log


def test_the_runs_of_a_trial_have_its_settings_and_give_its_value(search: Search) -> None:
    search.run()
    for number, state, params, value, values in search.trials():
        config = RunFolder(search.out / name(number)).read_config()
        assert config["optimiser"]["learning_rate"] == params[LR]
        assert config["network"]["hidden"] == json.loads(params["network.hidden"])
        assert float(f"{params[LR]:.3g}") == params[LR]  # three digits
        first, second = scores(params[LR], 0), scores(params[LR], 1)
        along = [fmean(first[:n]) for n in range(1, 5)]
        along += [fmean([fmean(first), fmean(second[:n])]) for n in range(1, 5)]
        assert [values[step] for step in sorted(values)] == pytest.approx(along[: len(values)])
        states = [search.state(number, seed) for seed in (0, 1)]
        assert (states == ["finished", "finished"]) is (state == "COMPLETE")
        assert len(values) == 8 if state == "COMPLETE" else 3 <= len(values) < 8
        assert value == values[max(values)]


def test_the_same_command_does_nothing_more_and_more_trials_extend_it(search: Search) -> None:
    search.run()
    before, journal = search.trials(), (search.out / JOURNAL).read_bytes()
    code, summary, log = search.run()
    assert (code, log, (search.out / JOURNAL).read_bytes()) == (0, "", journal)
    assert "# trial" in summary
    search.change(("trials = 8", "trials = 9"))
    search.run()
    assert search.trials()[:8] == before
    assert len(search.trials()) == 9


@pytest.mark.parametrize(
    ("objective", "of_run"), [("score", max), ("last", lambda s: s[-1]), ("mean", fmean)]
)
def test_objectives(search: Search, objective: str, of_run: Callable[[list[float]], float]) -> None:
    search.change(("trials = 8", "trials = 1"), ('"mean"', f'"{objective}"'))
    search.run(jobs=2)
    ((_, _, params, value, _),) = search.trials()
    assert value == pytest.approx(fmean(of_run(scores(params[LR], seed)) for seed in (0, 1)))


def test_the_seed_of_the_search_decides_the_trials(search: Search) -> None:
    search.run()
    first = search.trials()
    shutil.rmtree(search.out)
    search.run()
    assert search.trials() == first
    shutil.rmtree(search.out)
    search.change(("trials = 8", "trials = 8\nseed = 1"))
    search.run()
    assert not {trial[2][LR] for trial in first} & {trial[2][LR] for trial in search.trials()}


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_search_resumes_wherever_its_journal_ends(search: Search, every: int) -> None:
    """Cut the journal after any line and within it: the same trials, no finished run again."""
    code = search.run()[0]
    whole, path = search.trials(), search.out / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True)
    finished = {name(n, seed) for n, state, *_ in whole for seed in (0, 1) if state == "COMPLETE"}
    for cut in range(0, len(lines), every):
        path.write_bytes(b"".join(lines[:cut]) + lines[cut][:-5])
        Run.started.clear()
        assert (search.run()[0], search.trials()) == (code, whole), cut
        assert not finished & set(Run.started)


def test_a_failed_run_leaves_its_trial_unfinished_until_the_same_command(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "failing", name(2))
    code, summary, _ = search.run()
    assert (code, "1 unfinished" in summary) == (1, True)
    assert f"{name(2)}: not finite" in summary
    monkeypatch.setattr(Run, "failing", "")
    code, summary, _ = search.run()
    assert (code, "unfinished" in summary) == (0, False)
    assert [trial[0] for trial in search.trials()] == list(range(8))


def test_each_agent_on_each_environment_has_a_study(search: Search) -> None:
    search.change(('"noisynet-dqn"', '"dqn", "noisynet-dqn"'), ("trials = 8", "trials = 2"))
    code, summary, _ = search.run(jobs=3)
    assert code == 0
    for agent in ("dqn", "noisynet-dqn"):
        assert f"{agent} on deep_sea/4: 2 of 2 trials complete" in summary


def test_contradictory_settings_are_a_trial_without_runs(search: Search) -> None:
    starts, capacity = "learning.starts_steps", "replay.capacity_steps"
    space = f"space.{starts} = [100, 900]\nspace.{capacity} = [1000, 500]\n"
    plan = PLAN.partition("space.")[0].replace("startup_trials = 3", "startup_trials = 8")
    search.plan.write_text(plan + space)
    code, summary, log = search.run()
    failed = [trial for trial in search.trials() if trial[1] == "FAIL"]
    assert failed
    for number, _, params, value, _ in failed:
        assert (params, value) == ({starts: "900", capacity: "500"}, None)
        assert f"trial {number} is contradictory: " in log
    assert (code, f"{len(failed)} contradictory" in summary) == (0, True)
    search.plan.write_text(plan + space.replace("[100, 900]", "[900, 100]"))
    with pytest.raises(PlanError, match=r"plan.toml: search: .*900"):  # with the first, 1000: valid
        search.run()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("high = 500", "high = 600", "the search has '10 to 500', the plan '10 to 600'"),
        ("seeds = 2", "seeds = 3", "seeds: the search has"),
        ("frames = 400", "frames = 500", "run.frames: the search has 400, the plan 500"),
    ],
)
def test_a_journal_of_another_plan_is_refused(
    search: Search, old: str, new: str, message: str
) -> None:
    search.change(("trials = 8", "trials = 1"))
    search.run()
    search.change((old, new))
    with pytest.raises(PlanError, match=message):
        search.run()


def test_a_dry_run_shows_the_space_and_the_best_and_creates_nothing(search: Search) -> None:
    plan = build_plan(str(search.plan), out=search.out)
    text = str(run_sweep(plan, dry_run=True))
    assert "16 runs (1 agent in 8 variants, 1 environment, 2 seeds), 6,400 frames" in text
    assert f"{LR}: 1e-05 to 0.1 (log)" in text
    assert "network.hidden: [16], [32, 32]" in text
    assert "0 of 8 trials complete" in text
    assert not search.out.exists()
    search.run()
    before = {path: path.stat().st_mtime_ns for path in search.out.rglob("*")}
    text = str(run_sweep(plan, dry_run=True))
    assert "every trial is done" in text
    assert snippet(text)
    assert {path: path.stat().st_mtime_ns for path in search.out.rglob("*")} == before


def test_without_optuna_the_error_names_the_install_command(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r'pip install "noisynet\[search\]"'):
        search.run()
    assert not search.out.exists()


def test_a_search_survives_kills_of_its_process_and_of_a_run(sweeps: Sweeps) -> None:
    """Also while the next process starts: the run of the killed one may still be locked."""
    few = PLAN.replace("trials = 8", "trials = 3").replace("seeds = 2", "seeds = 1")
    sweeps.plan.write_text(few.replace("startup_trials = 3", "startup_trials = 1"))
    held = {"open": str(sweeps.gate), "hold_at": 175}
    sweeps.orders.write_text(json.dumps({name(1): held, name(2): {"kill_at": 75}}))
    killed = sweeps.start(jobs=1)
    until(lambda: sweeps.are_held_at(175, [name(1)]))
    with pytest.raises(PlanError, match=f"locked by process {killed.pid}"):
        sweeps.run(jobs=1)
    killed.kill()
    killed.wait()
    again = sweeps.start(jobs=1)
    sweeps.gate.touch()
    summary, log = again.communicate()
    assert (again.returncode, "unfinished" in summary) == (0, False), log
    assert sweeps.starts(name(0)) == [0]
    first, resumed = sweeps.starts(name(1))
    assert (first, resumed in (150, 175)) == (0, True)
    assert sweeps.starts(name(2)) == [0, 50]
    interrupted = trials(sweeps.plan, sweeps.out)
    shutil.rmtree(sweeps.out)
    sweeps.orders.write_text("{}")
    assert sweeps.run(jobs=1)[0] == 0
    assert trials(sweeps.plan, sweeps.out) == interrupted


@pytest.mark.parametrize(
    ("name", "environment", "preset", "base", "of_every_trial"),
    [
        ("cartpole", "gym/CartPole-v1", "cartpole", "classic", ["learning.double_q=true"]),
        ("acrobot", "gym/Acrobot-v1", "acrobot", "classic", []),
        ("minatar", "minatar/breakout", "minatar-fast", "minatar", []),
    ],
)
def test_a_preset_has_the_settings_that_its_search_found(
    name: str, environment: str, preset: PresetName, base: PresetName, of_every_trial: list[str]
) -> None:
    study = Path(__file__).parents[2] / "results" / "searches" / name
    plan = build_plan(str(study / "plan.toml"), out=study)
    agent = "noisynet-dqn"
    assert {(spec.agent, spec.environment) for spec in plan.specs} == {(agent, environment)}
    best = snippet(str(run_sweep(plan, dry_run=True)))
    settings = [*of_every_trial, *(f"{key}={json.dumps(value)}" for key, value in best.items())]
    found = build_config(agent, environment, preset=base, settings=settings)
    assert build_config(agent, environment, preset=preset) == found
