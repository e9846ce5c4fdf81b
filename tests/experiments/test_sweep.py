"""Sweeps that are carried out, disturbed and continued, as processes; the runs learn nothing."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from experiments.conftest import NAMES, Sweeps, has_ended, until


def test_a_sweep_carries_every_run_to_its_end_once(sweeps: Sweeps) -> None:
    code, said, on_the_way = sweeps.run()
    assert (code, said) == (0, f"{sweeps.plan}: 4 of 4 runs done\n"), on_the_way
    for name in NAMES:
        assert (sweeps.status(name) or {})["state"] == "finished"
        assert f"{name}: done: 400 frames, score 1.50" in on_the_way
        assert "train" in (sweeps.out / f"{name}.log").read_text()
    before = {name: sweeps.traces(name) for name in NAMES}
    assert sweeps.run() == (0, f"{sweeps.plan}: 4 of 4 runs done\n", "")
    assert {name: sweeps.traces(name) for name in NAMES} == before


def test_a_killed_controller_is_continued_by_the_same_command(sweeps: Sweeps) -> None:
    first, *held = NAMES
    for frame in (155, 205):
        sweeps.order({name: {"hold_at": frame} for name in held})
        controller = sweeps.start(jobs=2)
        until(lambda: sweeps.frames(first) == 400 and not sweeps.is_taken(first))
        until(partial(sweeps.have_come_to, frame - 5, held[:2]))
        pids, untouched = [sweeps.pid(name) for name in held[:2]], sweeps.traces(first)
        controller.kill()
        controller.wait()
        for pid in pids:
            until(partial(has_ended, pid))
        # The runs had time to write a checkpoint, though the controller had none to ask for it.
        assert [sweeps.frames(name) for name in held] == [frame, frame, 0]
    sweeps.order({})
    code, said, _ = sweeps.run()
    assert (code, "4 of 4 runs done" in said) == (0, True)
    assert sweeps.traces(first) == untouched
    assert [sweeps.starts(name) for name in NAMES] == [[0], [0, 155, 205], [0, 155, 205], [0]]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_the_runs_and_ends_the_sweep(sweeps: Sweeps, number: int, code: int) -> None:
    sweeps.order({name: {"hold_at": 75} for name in NAMES})
    controller = sweeps.start(jobs=2)
    until(lambda: sweeps.frames(NAMES[0]) == 50 == sweeps.frames(NAMES[1]))
    os.kill(controller.pid, number)
    said, _ = controller.communicate()
    assert controller.returncode == code
    assert said.splitlines() == [
        f"{sweeps.plan}: 0 of 4 runs done",
        f"stopped by {signal.Signals(number).name}; the same command continues",
    ]
    assert [sweeps.frames(name) for name in NAMES] == [75, 75, 0, 0]
    assert not any(sweeps.is_taken(name) for name in NAMES)


def test_failing_runs_are_reported_and_do_not_stop_the_others(sweeps: Sweeps) -> None:
    sweeps.order({NAMES[0]: {"fail_at": 30}, NAMES[2]: {"refuse": "no environment 'CartPole-v1'"}})
    code, said, on_the_way = sweeps.run()
    assert code == 1
    assert said.splitlines() == [
        f"{sweeps.plan}: 2 of 4 runs done, 2 failed",
        f"  {NAMES[0]}: expected a finite loss, got nan; lower the learning rate",
        f"    see {sweeps.out / NAMES[0]}.log",
        f"  {NAMES[2]}: no environment 'CartPole-v1'",
        f"    see {sweeps.out / NAMES[2]}.log",
    ]
    assert f"{NAMES[2]}: failed: no environment 'CartPole-v1'" in on_the_way
    assert not (sweeps.out / NAMES[2]).exists()
    sweeps.order({})  # what was wrong is put right
    assert sweeps.run(environments="gym/CartPole-v1")[0] == 0


def test_a_killed_run_is_started_again_from_its_checkpoint_a_few_times(sweeps: Sweeps) -> None:
    often, too_often, _, _ = NAMES
    sweeps.order({often: {"kill_at": 55, "kills": 3}, too_often: {"kill_at": 55, "kills": 99}})
    code, said, on_the_way = sweeps.run(environments="deep_sea/4")
    assert (code, sweeps.starts(often)) == (1, [0, 50, 50, 50])
    assert f"{often}: killed by SIGKILL; it will go on from frame 50" in on_the_way
    assert f"{too_often}: killed by SIGKILL, 4 times in a row without getting further" in said
    assert "1 of 2 runs done, 1 failed" in said


def test_a_run_that_another_process_is_at_is_waited_for(sweeps: Sweeps) -> None:
    taken, free, _, _ = NAMES
    sweeps.order({taken: {"hold_at": 75}})
    first = sweeps.start(agents="dqn", environments="deep_sea/4")
    until(lambda: sweeps.frames(taken) == 50)
    second = sweeps.start(environments="deep_sea/4")
    until(lambda: sweeps.frames(free) == 400 and not sweeps.is_taken(free))
    assert second.poll() is None
    sweeps.gate.touch()
    said, on_the_way = second.communicate()
    assert (second.returncode, first.wait()) == (0, 0)
    assert "2 of 2 runs done" in said
    assert f"{taken}: left to process" in on_the_way
    assert sweeps.starts(taken) == [0]


def test_two_sweeps_at_once_do_not_disturb_each_other(sweeps: Sweeps) -> None:
    both = [sweeps.start(environments="deep_sea/4") for _ in range(2)]
    for process in both:
        said, on_the_way = process.communicate()
        assert (process.returncode, "2 of 2 runs done" in said) == (0, True), on_the_way
    assert [sweeps.starts(name) for name in NAMES[:2]] == [[0], [0]]
