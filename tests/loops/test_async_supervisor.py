"""Workers that die, hang and come back, with stubs that do nothing else."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loops.stub_worker import ROLLOUT_STEPS, pack, program, unpack
from noisynet.loops.handover import Job, Report
from noisynet.loops.shared_state import SharedState
from noisynet.loops.supervisor import DEATHS_IN_A_ROW, Death, Member, Phase, Supervisor

SIZE = 10


class Watch:
    """A supervisor of stubs, and everything that it was told."""

    def __init__(self, workers: int, members: list[Member] | None = None, **told: Any) -> None:
        self.shared = SharedState.create(workers, SIZE)
        self.reports: list[tuple[int, Report]] = []
        self.deaths: list[Death] = []
        self.jobs: list[Job] = []
        self.config = {"workers": workers}
        self.supervisor = Supervisor(
            self.shared,
            members or [Member(number) for number in range(workers)],
            self.job,
            reported=lambda worker, report: self.reports.append((worker, report)),
            died=self.deaths.append,
            patience_seconds=0.6,
            program=program(**told),
        )

    def job(self, member: Member) -> Job:
        self.jobs.append(
            Job(member.number, member.incarnation, self.config, SIZE, state=member.state)
        )
        return self.jobs[-1]

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Tend until something is so."""
        started = time.monotonic()
        while not condition():
            self.supervisor.tend(0.01)
            assert time.monotonic() - started < seconds, (self.supervisor.health(), self.deaths)

    def until_all_run(self) -> None:
        self.until(lambda: all(m.phase is Phase.RUNNING for m in self.supervisor.members))

    def until_stopped(self) -> None:
        self.until(lambda: self.supervisor.all_stopped)

    def until_deaths(self, count: int) -> None:
        self.until(lambda: len(self.deaths) >= count)
        assert len(self.deaths) == count

    def until_each_has_updated(self) -> None:
        self.until_updates([slot.updates for slot in self.shared.slots])

    def until_updates(self, before: list[int], besides: int | None = None) -> None:
        """Until all workers, or all besides one, have more updates than before."""
        slots = self.shared.slots
        self.until(
            lambda: all(
                slots[worker].updates > updates
                for worker, updates in enumerate(before)
                if worker != besides
            )
        )

    def pids(self) -> list[int]:
        return [member.process.pid for member in self.supervisor.members]


@contextmanager
def watch(workers: int, **settings: Any) -> Iterator[Watch]:
    watched = Watch(workers, **settings)
    with watched.supervisor:
        yield watched
    for member in watched.supervisor.members:  # whatever happened
        assert member.process.returncode is not None
    watched.shared.close()


def played(member: Member) -> int:
    """How many roll-outs the state is after that a stub has handed over."""
    return 0 if member.state is None else unpack(member.state)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# --- stops ----------------------------------------------------------------------------------------


def test_workers_play_to_a_stop_hand_their_state_over_and_go_on_from_there() -> None:
    with watch(3) as watched:
        supervisor, shared = watched.supervisor, watched.shared
        for stop_at in (100, 101, 300):
            supervisor.release(stop_at)
            watched.until_stopped()
            assert stop_at <= shared.steps < stop_at + 3 * ROLLOUT_STEPS
            states = [played(member) for member in supervisor.members]
            assert states == [slot.updates for slot in shared.slots]
            steps = shared.steps
            for _ in range(5):
                supervisor.tend(0.01)
            assert shared.steps == steps  # nobody plays while they are stopped
        assert watched.deaths == []
        # Every roll-out was reported before its worker stopped.
        last = {worker: report.steps for worker, report in watched.reports}
        assert sum(last.values()) == shared.steps
        assert len(watched.reports) == sum(slot.updates for slot in shared.slots)


def test_workers_can_be_called_in_at_any_moment() -> None:
    with watch(2) as watched:
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()
        watched.supervisor.call_in()
        watched.until_stopped()
        assert [member.phase for member in watched.supervisor.members] == [Phase.STOPPED] * 2
        steps = watched.shared.steps
        watched.supervisor.release(steps + 50)
        watched.until_stopped()
        assert watched.shared.steps >= steps + 50


def test_who_has_not_started_by_a_stop_counts_as_stopped_where_it_will_start() -> None:
    with watch(2) as watched:
        supervisor = watched.supervisor
        supervisor.call_in()
        assert supervisor.all_stopped  # before anybody was there
        assert [member.state for member in supervisor.members] == [None, None]
        supervisor.release(50)
        watched.until_stopped()
        assert watched.shared.steps >= 50


def test_a_worker_starts_from_the_state_that_it_is_given() -> None:
    members = [Member(0, incarnation=2, state=pack(40), deaths=3)]
    with watch(1, members=members) as watched:
        watched.supervisor.release(50)
        watched.until_stopped()
        assert played(members[0]) == 50
        assert [(job.incarnation, job.state) for job in watched.jobs] == [(2, pack(40))]


# --- deaths ---------------------------------------------------------------------------------------


def test_one_of_four_is_killed_at_ten_random_moments_and_the_others_never_wait() -> None:
    stream = random.Random(4)
    with watch(4) as watched:
        supervisor, shared = watched.supervisor, watched.shared
        supervisor.release(10**9)
        watched.until_all_run()
        for kill in range(1, 11):
            victim = stream.randrange(4)
            watched.until_each_has_updated()
            time.sleep(stream.uniform(0, 0.02))
            before = [slot.updates for slot in shared.slots]
            supervisor.members[victim].process.kill()
            watched.until_deaths(kill)
            assert watched.deaths[-1].worker == victim
            assert watched.deaths[-1].how == "killed by SIGKILL"
            watched.until_updates(before, besides=victim)
        watched.until_all_run()
        supervisor.call_in()
        watched.until_stopped()
        assert supervisor.failure is None
        assert sum(member.deaths for member in supervisor.members) == 10
        # Each process of a worker had a stream of its own.
        streams = [(job.worker, job.incarnation) for job in watched.jobs]
        assert len(streams) == len(set(streams)) == 14


def test_all_workers_killed_at_once_start_again() -> None:
    with watch(4) as watched:
        watched.supervisor.release(10**9)
        for times in (1, 2, 3):
            watched.until_all_run()
            watched.until_each_has_updated()
            steps = watched.shared.steps
            for pid in watched.pids():
                os.kill(pid, signal.SIGKILL)
            watched.until_deaths(4 * times)
            assert watched.shared.steps >= steps  # what was counted stays counted
        watched.until_each_has_updated()
        assert [member.incarnation for member in watched.supervisor.members] == [3] * 4


@pytest.mark.parametrize("noticed", [True, False])
def test_a_worker_that_dies_while_it_is_stopped_goes_on_from_what_it_handed_over(
    noticed: bool,
) -> None:
    """Whether its death is noticed before the others go on, or not."""
    with watch(2) as watched:
        supervisor = watched.supervisor
        supervisor.release(10**9)
        watched.until_each_has_updated()
        supervisor.call_in()
        watched.until_stopped()
        handed = supervisor.members[1].state
        supervisor.members[1].process.kill()
        if noticed:
            watched.until_deaths(1)
            assert watched.supervisor.all_stopped  # a start is no step
        else:
            supervisor.members[1].process.wait()
        supervisor.release(10**9)
        watched.until_deaths(1)
        watched.until_each_has_updated()
        supervisor.call_in()
        watched.until_stopped()
        assert handed is not None
        assert watched.jobs[-1].state == handed
        assert watched.jobs[-1].incarnation == 0
        assert played(supervisor.members[1]) == watched.shared.slots[1].updates


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    with watch(1) as watched:
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()
        os.kill(watched.pids()[0], signal.SIGRTMIN + 1)
        watched.until_deaths(1)
        assert watched.deaths[0].how == f"killed by signal {signal.SIGRTMIN + 1}"


def test_workers_import_nothing_from_the_folder_in_which_the_run_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('not the one that was meant')")
    monkeypatch.chdir(tmp_path)
    with watch(1) as watched:
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()


def test_a_worker_that_raises_dies_with_the_last_line_of_its_error() -> None:
    with watch(2, fault="raise", worker=1, until=1, after=3) as watched:
        watched.supervisor.release(10**9)
        watched.until_deaths(1)
        death = watched.deaths[0]
        assert (death.worker, death.in_a_row) == (1, 1)
        assert death.how == "exit code 1: ValueError: the environment; is out of order"
        assert "ValueError: the environment\nis out of order" in death.traceback
        watched.until_all_run()
        watched.until_each_has_updated()
        assert len(watched.deaths) == 1


@pytest.mark.parametrize(
    ("fault", "how"),
    [
        ("raise", "exit code 1: ValueError: the environment; is out of order"),
        ("raise at start", "exit code 1: RuntimeError: no such game"),
        ("kill", "killed by SIGKILL"),
        ("leave", "exit code 0"),
    ],
)
def test_five_deaths_in_a_row_are_one_too_many(fault: str, how: str) -> None:
    with watch(1, fault=fault) as watched:
        watched.supervisor.release(10**9)
        watched.until(lambda: watched.supervisor.failure is not None)
        assert watched.supervisor.failure == watched.deaths[-1]
        assert [death.in_a_row for death in watched.deaths] == [1, 2, 3, 4, 5]
        assert {death.how for death in watched.deaths} == {how}
        assert watched.supervisor.members[0].phase is Phase.DEAD
        watched.supervisor.call_in()
        assert watched.supervisor.all_stopped  # so that the run can be saved
        watched.supervisor.tend(0.0)
        assert len(watched.deaths) == DEATHS_IN_A_ROW


def test_one_bad_worker_ends_the_run_even_though_others_make_updates() -> None:
    with watch(3, fault="raise", worker=2) as watched:
        watched.supervisor.release(10**9)
        watched.until(lambda: watched.supervisor.failure is not None)
        assert {death.worker for death in watched.deaths} == {2}
        assert watched.shared.slots[0].updates > 0
        watched.supervisor.call_in()
        watched.until_stopped()
        phases = [member.phase for member in watched.supervisor.members]
        assert phases == [Phase.STOPPED, Phase.STOPPED, Phase.DEAD]


def test_deaths_with_an_update_in_between_are_not_in_a_row() -> None:
    with watch(1, fault="kill", after=2) as watched:
        watched.supervisor.release(10**9)
        watched.until(lambda: len(watched.deaths) == 7)
        assert [death.in_a_row for death in watched.deaths] == [1] * 7
        assert watched.supervisor.failure is None


def test_a_worker_that_cannot_be_started_is_told_of_as_a_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watch(1)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with watched.supervisor:
        assert watched.supervisor.failure is not None
        assert "it could not be started" in watched.deaths[0].how
        assert "/nowhere/python" in watched.deaths[0].how
        assert len(watched.deaths) == DEATHS_IN_A_ROW
    watched.shared.close()


# --- hanging --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [True, False])
def test_a_worker_without_a_heartbeat_is_killed_and_started_again(stopped: bool) -> None:
    fault = {} if stopped else {"fault": "sleep", "worker": 1, "until": 1, "after": 3}
    with watch(2, **fault) as watched:
        watched.supervisor.release(10**9)
        if stopped:
            watched.until_each_has_updated()
            watched.supervisor.members[1].process.send_signal(signal.SIGSTOP)
        watched.until_deaths(1)
        assert watched.deaths[0].worker == 1
        assert watched.deaths[0].how == "no heartbeat for 0.6 s, so it was killed"
        watched.until_all_run()
        watched.until_each_has_updated()
        assert len(watched.deaths) == 1
        assert watched.supervisor.members[1].incarnation == 1


def test_a_slow_worker_that_gives_signs_of_life_is_left_alone() -> None:
    with watch(1, fault="slow") as watched:  # a roll-out takes a second, a step 0.05
        watched.supervisor.release(10**9)
        watched.until(lambda: watched.shared.slots[0].updates == 2)
        assert watched.deaths == []


def test_a_stopped_worker_is_not_hung() -> None:
    with watch(2) as watched:
        watched.supervisor.release(20)
        watched.until_stopped()
        until = time.monotonic() + 1.0
        watched.until(lambda: time.monotonic() > until)
        assert watched.deaths == []
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()
        assert watched.deaths == []


def test_a_supervisor_that_was_away_blames_nobody() -> None:
    """As after Ctrl-Z and fg: everybody was stopped, and nobody has hung."""
    with watch(2) as watched:
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in watched.pids():
                os.kill(pid, number)
            time.sleep(1.0 if number == signal.SIGSTOP else 0)
        watched.supervisor.tend(0.0)
        watched.until_each_has_updated()
        assert watched.deaths == []


def test_a_worker_that_hears_nothing_more_is_replaced() -> None:
    with watch(1, fault="deaf", until=1, after=1) as watched:
        watched.supervisor.release(10**9)
        watched.until_deaths(1)
        watched.until_each_has_updated()
        assert watched.deaths[0].how == "killed by SIGKILL"


# --- the end --------------------------------------------------------------------------------------


def test_no_process_is_left_whatever_the_workers_are_doing() -> None:
    with watch(3, fault="sleep", worker=0, after=2) as watched:
        watched.supervisor.release(10**9)
        watched.until(lambda: all(slot.updates >= 2 for slot in watched.shared.slots))
        watched.supervisor.members[1].process.send_signal(signal.SIGSTOP)
        pids = watched.pids()
    assert all(gone(pid) for pid in pids)


def test_an_error_of_the_owner_ends_the_workers_too() -> None:
    watched = Watch(2)
    with pytest.raises(KeyError, match="mine"), watched.supervisor:
        raise KeyError("mine")
    assert all(gone(pid) for pid in watched.pids())
    watched.shared.close()
