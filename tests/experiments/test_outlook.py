"""A dry run: what there is to do and how long it takes, from what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noisynet.experiments import PlanError, RunSpec, build_plan, run_sweep
from noisynet.experiments.estimate import Pace, benchmark_pace, measure
from noisynet.experiments.outlook import outlook
from noisynet.experiments.plan_file import PLANS
from noisynet.runs import MetricsLog, RunFolder


def logged(spec: RunSpec, state: str, frames: int, *, evaluations: int = 0) -> RunFolder:
    """A run with rows of 500 steps in 10 s each, and evaluations of 50 s each."""
    stored = spec.config.model_dump(mode="json")
    folder = RunFolder.create_or_open(spec.folder, stored, must_match=["agent"])
    with MetricsLog(folder.timing_path) as timing, MetricsLog(folder.metrics_path) as metrics:
        for steps in range(500, frames + 1, 500):
            timing.append({"kind": "train", "frames": steps, "seconds": 10, "steps_per_second": 50})
            metrics.append({"kind": "train", "frames": steps, "steps": steps})
        for _ in range(evaluations):
            timing.append({"kind": "evaluation", "frames": frames, "seconds": 50})
    folder.write_status(state, frames=frames, score=None)  # type: ignore[arg-type]
    return folder


def test_the_pace_of_a_run_is_what_it_has_logged(tmp_path: Path) -> None:
    spec = build_plan("classic", out=tmp_path).specs[1]
    assert spec.agent == "noisynet-dqn"
    folder = logged(spec, "running", 2_000, evaluations=2)
    pace = measure(folder, folder.read_config())
    # An evaluation is 2,500 frames with noise and 2,500 without, in 50 s.
    assert pace == Pace(50.0, 1.0, 100.0, "its own log")
    # 48,000 frames at 50/s, and 10 evaluations of 5,000 frames at 100/s.
    assert pace.seconds(spec, 2_000) == 960 + 500


def test_a_run_that_has_logged_nothing_has_no_pace(tmp_path: Path) -> None:
    spec = build_plan("classic", out=tmp_path).specs[0]
    folder = logged(spec, "running", 0)
    assert measure(folder, folder.read_config()) is None


def test_a_dry_run_says_what_is_done_and_how_long_the_rest_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noisynet.experiments.outlook.benchmark_pace", lambda _: None)
    out = tmp_path / "runs"
    plan = build_plan("classic", out=out)
    done, half_done = plan.specs[0], plan.specs[4]
    logged(done, "finished", 50_000, evaluations=10)
    logged(half_done, "interrupted", 10_000, evaluations=2)
    assert [spec.name for spec in (done, half_done)] == [
        "gym/CartPole-v1/dqn/seed-0",
        "gym/CartPole-v1/dqn/seed-1",
    ]
    before = sorted(tmp_path.rglob("*"))
    # 40,000 and 50,000 frames at 50/s are 800 and 1,000 s; 8 and 10 evaluations of 50 s each.
    assert str(outlook(plan, cores=2)).splitlines() == [
        "classic: 12 runs (4 kinds, 2 environments, 3 seeds), 348,000 frames, 288,000 of them to "
        "be played",
        "  dqn on gym                    3 runs: 1 new, 1 half done, 1 done; 0.8 h (2 runs below "
        f"{out})",
        "  noisynet-dqn on gym           3 runs: 3 new; time unknown: no run of this kind has been "
        "timed",
        "  dqn on deep_sea               3 runs: 3 new; time unknown: no run of this kind has been "
        "timed",
        "  noisynet-dqn on deep_sea      3 runs: 3 new; time unknown: no run of this kind has been "
        "timed",
        "about 0.4 h on 2 cores, and 9 runs whose pace is unknown; a first run of each kind will "
        "tell",
    ]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_of_a_finished_sweep(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4", seeds=1)
    logged(plan.specs[0], "finished", 50_000)
    assert str(outlook(plan, cores=2)).splitlines()[1:] == [
        "  dqn on deep_sea      1 runs: 1 done; nothing left",
        "nothing is left to be done",
    ]


def test_games_that_were_never_timed_have_the_pace_of_the_benchmarks(tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "benchmarks" / "results" / "dqn.json"
    measured = json.loads(results.read_text())["update every 4 steps"]["noisynet-dqn"]
    plan = build_plan("atari5", out=tmp_path / "runs", agents="noisynet-dqn")
    pace = benchmark_pace(plan.specs[0])
    assert pace == Pace(measured["steps_per_second"], 4, None, "benchmarks/results/dqn.json")
    # Training 200M frames, and 200 evaluations of 2 × 500k frames at the same speed.
    hours = 15 * 400e6 / (4 * measured["steps_per_second"]) / 3600
    said = str(outlook(plan, cores=2))
    assert f"15 new; {hours:,.0f} h ({hours / 24:,.0f} days) (benchmarks/results/dqn.json)" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", PLANS)
def test_the_packages_plans_have_an_estimate_on_a_fresh_machine(name: str, tmp_path: Path) -> None:
    said = str(outlook(build_plan(name, out=tmp_path / "runs"), cores=2))
    assert "unknown" not in said
    assert said.splitlines()[-1].startswith("about ")


def test_what_the_benchmarks_have_not_measured_has_no_pace(tmp_path: Path) -> None:
    (tmp_path / "a3c.json").write_text('{"two workers": {"a3c": {"steps_per_second": 300.0}}}')
    (tmp_path / "dqn.json").write_text("[]")
    plan = build_plan("atari5", out=tmp_path, agents="a3c,dqn", environments="atari/pong", seeds=1)
    dqn, a3c = sorted(plan.specs, key=lambda spec: spec.processes)
    assert benchmark_pace(a3c, tmp_path) == Pace(300.0, 4, None, "benchmarks/results/a3c.json")
    assert benchmark_pace(dqn, tmp_path) is None
    assert benchmark_pace(dqn, tmp_path / "not-here") is None


def test_workers_are_counted_with_the_cores_that_they_use(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path, agents="a3c", environments="deep_sea/4", seeds=2)
    logged(plan.specs[0], "finished", 200_000)
    found = outlook(plan, cores=2)
    (kind,) = found.kinds
    assert kind.seconds_left is not None
    assert found.core_seconds == 2 * kind.seconds_left


def test_a_dry_run_creates_nothing(tmp_path: Path) -> None:
    summary = run_sweep("classic", out=tmp_path / "runs", dry_run=True)
    assert (summary.exit_code, summary.runs, summary.done) == (0, 12, 0)
    assert str(summary).startswith("classic: 12 runs")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dry_run", [True, False])
def test_folders_of_other_runs_are_refused_before_anything_starts(
    tmp_path: Path, dry_run: bool
) -> None:
    plan = build_plan("classic", out=tmp_path, environments="deep_sea/4", seeds=12)
    for spec in plan.specs[1:]:
        stored = spec.config.model_dump(mode="json") | {"log_period_steps": 7}
        RunFolder.create_or_open(spec.folder, stored, must_match=["agent"])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PlanError) as caught:
        run_sweep("classic", out=tmp_path, environments="deep_sea/4", seeds=12, dry_run=dry_run)
    said = str(caught.value).splitlines()
    assert said[0] == (
        f"{plan.specs[1].folder} is another run's: log_period_steps: the folder has 7, the plan 500"
    )
    assert said[-2:] == [
        "and 13 more folders",
        "choose another --out, or give these runs a [[variant]] of their own",
    ]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"on": "moon"}, "--on expected local or ray, got 'moon'"),
        ({"address": "here:1"}, "--address is of a Ray cluster"),
        ({"jobs": 0}, "--jobs expected at least 1, got 0"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, str], expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        run_sweep("classic", out=tmp_path, **options)  # type: ignore[arg-type]
