"""Sweeps of stub runs: completed, stopped, killed and resumed."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from experiments.conftest import NAMES, Sweeps, has_ended, until
from noisynet.experiments import PlanError, build_plan, run_sweep
from noisynet.runs import RunFolder


def test_a_sweep_runs_every_run_once(sweeps: Sweeps) -> None:
    code, summary, log = sweeps.run()
    assert (code, summary) == (0, f"{sweeps.plan}: 4 of 4 runs done\n"), log
    for name in NAMES:
        assert (sweeps.status(name) or {})["state"] == "finished"
        assert f"{name}: done: 400 frames, score 1.50" in log
        assert "train" in (sweeps.out / f"{name}.log").read_text()
    before = {name: sweeps.metrics_stat(name) for name in NAMES}
    assert sweeps.run() == (0, f"{sweeps.plan}: 4 of 4 runs done\n", "")
    assert {name: sweeps.metrics_stat(name) for name in NAMES} == before


def test_the_same_command_resumes_a_killed_sweep(sweeps: Sweeps) -> None:
    first, *held = NAMES
    for frame in (155, 205):
        sweeps.order({name: {"hold_at": frame} for name in held})
        controller = sweeps.start(jobs=2)
        until(lambda: sweeps.frames(first) == 400 and not sweeps.is_locked(first))
        until(partial(sweeps.are_held_at, frame, held[:2]))
        pids, untouched = [sweeps.pid(name) for name in held[:2]], sweeps.metrics_stat(first)
        controller.kill()
        controller.wait()
        for pid in pids:
            until(partial(has_ended, pid))
        # The kernel has sent the runs SIGTERM: each has written a checkpoint.
        assert [sweeps.frames(name) for name in held] == [frame, frame, 0]
    sweeps.order({})
    code, summary, _ = sweeps.run()
    assert (code, "4 of 4 runs done" in summary) == (0, True)
    assert sweeps.metrics_stat(first) == untouched
    assert [sweeps.starts(name) for name in NAMES] == [[0], [0, 155, 205], [0, 155, 205], [0]]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_the_runs_and_ends_the_sweep(sweeps: Sweeps, number: int, code: int) -> None:
    sweeps.order({name: {"hold_at": 75} for name in NAMES})
    controller = sweeps.start(jobs=2)
    until(lambda: sweeps.are_held_at(75, NAMES[:2]))
    os.kill(controller.pid, number)
    summary, _ = controller.communicate()
    assert controller.returncode == code
    assert summary.splitlines() == [
        f"{sweeps.plan}: 0 of 4 runs done",
        f"stopped by {signal.Signals(number).name}; run the same command to resume",
    ]
    assert [sweeps.frames(name) for name in NAMES] == [75, 75, 0, 0]
    assert not any(sweeps.is_locked(name) for name in NAMES)


def test_failing_runs_are_reported_and_do_not_stop_the_others(sweeps: Sweeps) -> None:
    sweeps.order({NAMES[0]: {"fail_at": 30}, NAMES[2]: {"refuse": "no environment 'CartPole-v1'"}})
    code, summary, log = sweeps.run()
    assert code == 1
    assert summary.splitlines() == [
        f"{sweeps.plan}: 2 of 4 runs done, 2 failed",
        f"  {NAMES[0]}: expected a finite loss, got nan; lower the learning rate",
        f"    see {sweeps.out / NAMES[0]}.log",
        f"  {NAMES[2]}: no environment 'CartPole-v1'",
        f"    see {sweeps.out / NAMES[2]}.log",
    ]
    assert f"{NAMES[2]}: failed: no environment 'CartPole-v1'" in log
    assert not (sweeps.out / NAMES[2]).exists()
    sweeps.order({})  # the faults are repaired
    assert sweeps.run(environments="gym/CartPole-v1")[0] == 0


def test_a_killed_run_is_restarted_from_its_checkpoint_a_few_times(sweeps: Sweeps) -> None:
    often, too_often, _, _ = NAMES
    sweeps.order({often: {"kill_at": 55, "kills": 3}, too_often: {"kill_at": 55, "kills": 99}})
    code, summary, log = sweeps.run(environments="deep_sea/4")
    assert (code, sweeps.starts(often)) == (1, [0, 50, 50, 50])
    assert f"{often}: killed by SIGKILL; will resume from frame 50" in log
    assert f"{too_often}: killed by SIGKILL, 4 times in a row without progress" in summary
    assert "1 of 2 runs done, 1 failed" in summary


def test_a_run_locked_by_another_process_is_waited_for(sweeps: Sweeps) -> None:
    locked, free, _, _ = NAMES
    sweeps.order({locked: {"hold_at": 75}})
    first = sweeps.start(agents="dqn", environments="deep_sea/4")
    until(lambda: sweeps.frames(locked) == 50)
    second = sweeps.start(environments="deep_sea/4")
    until(lambda: sweeps.frames(free) == 400 and not sweeps.is_locked(free))
    assert second.poll() is None
    sweeps.gate.touch()
    summary, log = second.communicate()
    assert (second.returncode, first.wait()) == (0, 0)
    assert "2 of 2 runs done" in summary
    assert f"{locked}: locked by process" in log
    assert sweeps.starts(locked) == [0]


def test_two_sweeps_of_one_plan_share_its_runs(sweeps: Sweeps) -> None:
    both = [sweeps.start(environments="deep_sea/4") for _ in range(2)]
    for process in both:
        summary, log = process.communicate()
        assert (process.returncode, "2 of 2 runs done" in summary) == (0, True), log
    assert [sweeps.starts(name) for name in NAMES[:2]] == [[0], [0]]


@pytest.mark.parametrize("dry_run", [True, False])
def test_folders_of_other_runs_are_refused_before_a_run_starts(
    tmp_path: Path, dry_run: bool
) -> None:
    plan = build_plan("classic", out=tmp_path, environments="deep_sea/4", seeds=12)
    for spec in plan.specs[1:]:
        stored = spec.config.model_dump(mode="json") | {"log_period_steps": 7}
        RunFolder.create_or_open(spec.folder, stored, must_match=["agent"])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PlanError) as caught:
        run_sweep(plan, dry_run=dry_run)
    summary = str(caught.value).splitlines()
    assert summary[0] == (
        f"{plan.specs[1].folder} holds another run: "
        "log_period_steps: the folder has 7, the plan 500"
    )
    assert summary[-2:] == [
        "and 13 more folders",
        "choose another --out, or make these runs a [[variant]]",
    ]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"on": "moon"}, "--on expected local or ray, got 'moon'"),
        ({"address": "here:1"}, "--address requires --on ray"),
        ({"jobs": 0}, "--jobs expected at least 1, got 0"),
    ],
)
def test_invalid_options_are_refused(
    tmp_path: Path, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(PlanError, match=expected):
        run_sweep(build_plan("classic", out=tmp_path), **options)  # type: ignore[arg-type]
