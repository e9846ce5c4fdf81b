"""A dry run: which runs are left, and how long they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.conftest import write_logs
from noisynet.experiments import PLANS, build_plan, run_sweep
from noisynet.experiments.display import format_duration
from noisynet.experiments.dry_run import make_dry_run
from noisynet.experiments.throughput import shipped_throughput


def test_a_dry_run_lists_the_progress_and_the_time_left_of_every_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noisynet.experiments.dry_run.shipped_throughput", lambda *_: None)
    out = tmp_path / "runs"
    plan = build_plan("classic", out=out)
    done, unfinished = plan.specs[0], plan.specs[4]
    write_logs(done, "finished", 50_000, evaluations=10)
    write_logs(unfinished, "interrupted", 10_000, evaluations=2)
    assert [spec.name for spec in (done, unfinished)] == [
        "gym/CartPole-v1/dqn/seed-0",
        "gym/CartPole-v1/dqn/seed-1",
    ]
    before = sorted(tmp_path.rglob("*"))
    # 40,000 and 50,000 frames at 50/s are 800 and 1,000 s; 8 and 10 evaluations of 50 s each.
    assert str(make_dry_run(plan, cores=2)).splitlines() == [
        "classic: 12 runs (2 agents, 2 environments, 3 seeds), 348k frames, 288k left",
        "  dqn on gym                   3 runs: 1 new, 1 unfinished, 1 done; 45 min (2 runs below "
        f"{out})",
        "  noisynet-dqn on gym          3 runs: 3 new; time unknown",
        "  dqn on deep_sea              3 runs: 3 new; time unknown",
        "  noisynet-dqn on deep_sea     3 runs: 3 new; time unknown",
        "about 22 min on 2 cores, plus 9 runs of unknown throughput",
    ]
    assert sorted(tmp_path.rglob("*")) == before


def test_variants_are_not_counted_as_agents(tmp_path: Path) -> None:
    head = str(make_dry_run(build_plan("controls", out=tmp_path), cores=2)).splitlines()[0]
    assert head == (
        "controls: 72 runs (4 agents in 12 variants, 2 environments, 3 seeds), 72M frames, 72M left"
    )


def test_a_dry_run_of_a_finished_sweep(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4", seeds=1)
    write_logs(plan.specs[0], "finished", 50_000)
    assert str(make_dry_run(plan, cores=2)).splitlines() == [
        "classic: 1 run (1 agent, 1 environment, 1 seed), 50k frames, 0 left",
        "  dqn on deep_sea      1 run: 1 done",
        "every run is done",
    ]


@pytest.mark.parametrize("name", PLANS)
def test_shipped_plans_have_an_estimate_on_a_new_machine(name: str, tmp_path: Path) -> None:
    text = str(make_dry_run(build_plan(name, out=tmp_path / "runs"), cores=2))
    assert "unknown" not in text
    assert text.splitlines()[-1].startswith("about ")


def test_estimates_of_shipped_throughputs(tmp_path: Path) -> None:
    plan = build_plan("atari5", out=tmp_path / "runs", agents="noisynet-dqn")
    shipped = shipped_throughput("noisynet-dqn", "atari")
    assert shipped is not None
    # 15 runs of 200M frames, and 200 evaluations of 2 × 500k frames at the same speed.
    seconds = 15 * 400e6 / (4 * shipped.steps_per_second)
    text = str(make_dry_run(plan, cores=2))
    assert f"15 new; {format_duration(seconds)} (shipped with noisynet)" in text
    assert list(tmp_path.iterdir()) == []


def test_each_worker_counts_as_a_core(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path, agents="a3c", environments="deep_sea/4", seeds=2)
    write_logs(plan.specs[0], "finished", 200_000)
    alone, both = (make_dry_run(plan, cores=cores) for cores in (1, 2))
    assert plan.specs[1].processes == 4
    assert both.core_seconds == 2 * alone.core_seconds > 0


def test_a_dry_run_creates_nothing(tmp_path: Path) -> None:
    summary = run_sweep(build_plan("classic", out=tmp_path / "runs"), dry_run=True)
    assert summary.exit_code == 0
    assert str(summary).startswith("classic: 12 runs")
    assert list(tmp_path.iterdir()) == []
