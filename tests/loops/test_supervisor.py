"""Workers that die, hang and are restarted; the workers are stubs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loops.stub_worker import ROLLOUT_STEPS, decode_played, encode_played, program
from noisynet.loops.messages import RolloutReport, WorkerSetup
from noisynet.loops.shared_state import SharedState
from noisynet.loops.supervisor import (
    MAX_DEATHS_IN_A_ROW,
    Death,
    Phase,
    Supervisor,
    WorkerHandle,
    seconds_without_core,
)

SIZE = 10


class Watch:
    """A supervisor of stubs, and everything that it has reported."""

    def __init__(
        self, workers: int, handles: list[WorkerHandle] | None = None, **options: Any
    ) -> None:
        self.shared = SharedState.create(workers, SIZE)
        self.reports: list[tuple[int, RolloutReport]] = []
        self.deaths: list[Death] = []
        self.setups: list[WorkerSetup] = []
        self.config = {"workers": workers}
        self.supervisor = Supervisor(
            self.shared,
            handles or [WorkerHandle(number) for number in range(workers)],
            self.make_setup,
            on_report=lambda worker, report: self.reports.append((worker, report)),
            on_death=self.deaths.append,
            patience_seconds=0.6,
            program=program(**options),
        )

    def make_setup(self, handle: WorkerHandle) -> WorkerSetup:
        self.setups.append(
            WorkerSetup(
                handle.number, handle.incarnation, self.config, SIZE, snapshot=handle.snapshot
            )
        )
        return self.setups[-1]

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Poll until the condition holds."""
        started = time.monotonic()
        while not condition():
            self.supervisor.poll(0.01)
            assert time.monotonic() - started < seconds, (self.supervisor.health(), self.deaths)

    def until_all_run(self) -> None:
        self.until(lambda: all(h.phase is Phase.RUNNING for h in self.supervisor.handles))

    def until_stopped(self) -> None:
        self.until(lambda: self.supervisor.all_stopped)

    def until_deaths(self, count: int) -> None:
        self.until(lambda: len(self.deaths) >= count)
        assert len(self.deaths) == count

    def until_each_has_updated(self) -> None:
        self.until_updates([slot.updates for slot in self.shared.slots])

    def until_updates(self, before: list[int], but: int | None = None) -> None:
        """Until all workers, or all except one, have more updates than before."""
        slots = self.shared.slots
        self.until(
            lambda: all(
                slots[worker].updates > updates
                for worker, updates in enumerate(before)
                if worker != but
            )
        )

    def pids(self) -> list[int]:
        return [handle.process.pid for handle in self.supervisor.handles]


@contextmanager
def watch(workers: int, **settings: Any) -> Iterator[Watch]:
    watched = Watch(workers, **settings)
    with watched.supervisor:
        yield watched
    for handle in watched.supervisor.handles:  # whatever happened
        assert handle.process.returncode is not None
    watched.shared.close()


def played(handle: WorkerHandle) -> int:
    """Return the number of roll-outs at the last snapshot of a stub."""
    return 0 if handle.snapshot is None else decode_played(handle.snapshot)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# --- stops ----------------------------------------------------------------------------------------


def test_workers_play_to_a_stop_send_a_snapshot_and_continue() -> None:
    with watch(3) as watched:
        supervisor, shared = watched.supervisor, watched.shared
        for stop_at in (100, 101, 300):
            supervisor.release(stop_at)
            watched.until_stopped()
            assert stop_at <= shared.steps < stop_at + 3 * ROLLOUT_STEPS
            states = [played(handle) for handle in supervisor.handles]
            assert states == [slot.updates for slot in shared.slots]
            steps = shared.steps
            for _ in range(5):
                supervisor.poll(0.01)
            assert shared.steps == steps  # nothing is played during a stop
        assert watched.deaths == []
        # Every roll-out was reported before its worker stopped.
        last = {worker: report.steps for worker, report in watched.reports}
        assert sum(last.values()) == shared.steps
        assert len(watched.reports) == sum(slot.updates for slot in shared.slots)


def test_workers_can_be_stopped_at_any_time() -> None:
    with watch(2) as watched:
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()
        watched.supervisor.request_stop()
        watched.until_stopped()
        assert [handle.phase for handle in watched.supervisor.handles] == [Phase.STOPPED] * 2
        steps = watched.shared.steps
        watched.supervisor.release(steps + 50)
        watched.until_stopped()
        assert watched.shared.steps >= steps + 50


def test_a_worker_that_is_still_starting_counts_as_stopped() -> None:
    with watch(2) as watched:
        supervisor = watched.supervisor
        supervisor.request_stop()
        assert supervisor.all_stopped  # before any worker is ready
        assert [handle.snapshot for handle in supervisor.handles] == [None, None]
        supervisor.release(50)
        watched.until_stopped()
        assert watched.shared.steps >= 50


def test_a_worker_starts_from_its_snapshot() -> None:
    handles = [WorkerHandle(0, incarnation=2, snapshot=encode_played(40), deaths=3)]
    with watch(1, handles=handles) as watched:
        watched.supervisor.release(50)
        watched.until_stopped()
        assert played(handles[0]) == 50
        assert [(setup.incarnation, setup.snapshot) for setup in watched.setups] == [
            (2, encode_played(40))
        ]


# --- deaths ---------------------------------------------------------------------------------------


def test_one_of_four_workers_is_killed_ten_times_and_the_others_never_wait() -> None:
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
            supervisor.handles[victim].process.kill()
            watched.until_deaths(kill)
            assert watched.deaths[-1].worker == victim
            assert watched.deaths[-1].cause == "killed by SIGKILL"
            watched.until_updates(before, but=victim)
        watched.until_all_run()
        supervisor.request_stop()
        watched.until_stopped()
        assert supervisor.failure is None
        assert sum(handle.deaths for handle in supervisor.handles) == 10
        # Each process of a worker had its own random streams.
        streams = [(setup.worker, setup.incarnation) for setup in watched.setups]
        assert len(streams) == len(set(streams)) == 14


def test_all_workers_killed_at_once_are_restarted() -> None:
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
        assert [handle.incarnation for handle in watched.supervisor.handles] == [3] * 4


@pytest.mark.parametrize("noticed", [True, False])
def test_a_worker_that_dies_during_a_stop_resumes_from_its_snapshot(
    noticed: bool,
) -> None:
    """Its death is noticed before or after the others are released."""
    with watch(2) as watched:
        supervisor = watched.supervisor
        supervisor.release(10**9)
        watched.until_each_has_updated()
        supervisor.request_stop()
        watched.until_stopped()
        snapshot = supervisor.handles[1].snapshot
        supervisor.handles[1].process.kill()
        if noticed:
            watched.until_deaths(1)
            assert watched.supervisor.all_stopped  # starting is not running
        else:
            supervisor.handles[1].process.wait()
        supervisor.release(10**9)
        watched.until_deaths(1)
        watched.until_each_has_updated()
        supervisor.request_stop()
        watched.until_stopped()
        assert snapshot is not None
        assert watched.setups[-1].snapshot == snapshot
        assert watched.setups[-1].incarnation == 0
        assert played(supervisor.handles[1]) == watched.shared.slots[1].updates


def test_a_signal_without_a_name_is_reported_by_its_number() -> None:
    with watch(1) as watched:
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()
        os.kill(watched.pids()[0], signal.SIGRTMIN + 1)
        watched.until_deaths(1)
        assert watched.deaths[0].cause == f"killed by signal {signal.SIGRTMIN + 1}"


def test_workers_import_nothing_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong json module')")
    monkeypatch.chdir(tmp_path)
    with watch(1) as watched:
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()


def test_the_death_of_a_worker_that_raises_has_its_error() -> None:
    with watch(2, fault="raise", worker=1, until=1, after=3) as watched:
        watched.supervisor.release(10**9)
        watched.until_deaths(1)
        death = watched.deaths[0]
        assert (death.worker, death.in_a_row) == (1, 1)
        assert death.cause == "exit code 1: ValueError: the environment; is out of order"
        assert "ValueError: the environment\nis out of order" in death.traceback
        watched.until_all_run()
        watched.until_each_has_updated()
        assert len(watched.deaths) == 1


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("raise", "exit code 1: ValueError: the environment; is out of order"),
        ("raise at start", "exit code 1: RuntimeError: no such game"),
        ("kill", "killed by SIGKILL"),
        ("leave", "exit code 0"),
    ],
)
def test_a_worker_that_dies_five_times_in_a_row_is_not_restarted(fault: str, cause: str) -> None:
    with watch(1, fault=fault) as watched:
        watched.supervisor.release(10**9)
        watched.until(lambda: watched.supervisor.failure is not None)
        assert watched.supervisor.failure == watched.deaths[-1]
        assert [death.in_a_row for death in watched.deaths] == [1, 2, 3, 4, 5]
        assert {death.cause for death in watched.deaths} == {cause}
        assert watched.supervisor.handles[0].phase is Phase.DEAD
        watched.supervisor.request_stop()
        assert watched.supervisor.all_stopped  # so that the run can be saved
        watched.supervisor.poll(0.0)
        assert len(watched.deaths) == MAX_DEATHS_IN_A_ROW


def test_one_bad_worker_is_a_failure_even_if_the_others_make_updates() -> None:
    with watch(3, fault="raise", worker=2) as watched:
        watched.supervisor.release(10**9)
        watched.until(lambda: watched.supervisor.failure is not None)
        assert {death.worker for death in watched.deaths} == {2}
        assert watched.shared.slots[0].updates > 0
        watched.supervisor.request_stop()
        watched.until_stopped()
        phases = [handle.phase for handle in watched.supervisor.handles]
        assert phases == [Phase.STOPPED, Phase.STOPPED, Phase.DEAD]


def test_deaths_with_an_update_in_between_are_not_in_a_row() -> None:
    with watch(1, fault="kill", after=2) as watched:
        watched.supervisor.release(10**9)
        watched.until(lambda: len(watched.deaths) == 7)
        assert [death.in_a_row for death in watched.deaths] == [1] * 7
        assert watched.supervisor.failure is None


def test_a_worker_that_cannot_be_started_counts_as_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watch(1)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with watched.supervisor:
        assert watched.supervisor.failure is not None
        assert "the process could not be started" in watched.deaths[0].cause
        assert "/nowhere/python" in watched.deaths[0].cause
        assert len(watched.deaths) == MAX_DEATHS_IN_A_ROW
    watched.shared.close()


# --- heartbeats ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [True, False])
def test_a_worker_without_a_heartbeat_is_killed_and_restarted(stopped: bool) -> None:
    fault = {} if stopped else {"fault": "sleep", "worker": 1, "until": 1, "after": 3}
    with watch(2, **fault) as watched:
        watched.supervisor.release(10**9)
        if stopped:
            watched.until_each_has_updated()
            watched.supervisor.handles[1].process.send_signal(signal.SIGSTOP)
        watched.until_deaths(1)
        assert watched.deaths[0].worker == 1
        assert watched.deaths[0].cause == "no heartbeat for 0.6 s, killed"
        watched.until_all_run()
        watched.until_each_has_updated()
        assert len(watched.deaths) == 1
        assert watched.supervisor.handles[1].incarnation == 1


def test_time_in_which_a_worker_waits_for_a_core_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, starved = time.monotonic(), True
    waited = "noisynet.loops.supervisor.seconds_without_core"
    monkeypatch.setattr(waited, lambda _: time.monotonic() - began if starved else 0.0)
    with watch(1, fault="sleep", until=1) as watched:
        watched.supervisor.release(10**9)
        watched.until_all_run()
        watched.supervisor._awake_seconds += 100.0  # beyond what a first roll-out may take
        began -= 100.0
        for _ in range(50):
            watched.supervisor.poll(0.02)
        assert watched.deaths == []
        starved = False
        watched.until_deaths(1)
        watched.until_each_has_updated()


def test_a_process_that_shares_a_core_waits_for_it() -> None:
    spin = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    both = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    started = time.monotonic()
    while seconds_without_core(both[0].pid) < 0.1:
        assert time.monotonic() - started < 60
        time.sleep(0.01)
    for process in both:
        process.kill()
        process.wait()
    assert seconds_without_core(both[0].pid) == 0.0  # it is gone


def test_a_slow_worker_with_heartbeats_is_not_killed() -> None:
    with watch(1, fault="slow") as watched:  # a roll-out takes a second, a step 0.05
        watched.supervisor.release(10**9)
        watched.until(lambda: watched.shared.slots[0].updates == 2)
        assert watched.deaths == []


def test_a_worker_that_waits_at_a_stop_is_not_killed() -> None:
    with watch(2) as watched:
        watched.supervisor.release(20)
        watched.until_stopped()
        until = time.monotonic() + 1.0
        watched.until(lambda: time.monotonic() > until)
        assert watched.deaths == []
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()
        assert watched.deaths == []


def test_time_in_which_the_supervisor_was_suspended_does_not_count() -> None:
    """As after Ctrl-Z and fg: all processes were suspended."""
    with watch(2) as watched:
        watched.supervisor.release(10**9)
        watched.until_each_has_updated()
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in watched.pids():
                os.kill(pid, number)
            time.sleep(1.0 if number == signal.SIGSTOP else 0)
        watched.supervisor.poll(0.0)
        watched.until_each_has_updated()
        assert watched.deaths == []


def test_a_worker_that_closes_its_channel_is_restarted() -> None:
    with watch(1, fault="deaf", until=1, after=1) as watched:
        watched.supervisor.release(10**9)
        watched.until_deaths(1)
        watched.until_each_has_updated()
        assert watched.deaths[0].cause == "killed by SIGKILL"


# --- exit --------------------------------------------------------------------------------------


def test_no_process_is_left_whatever_the_workers_do() -> None:
    with watch(3, fault="sleep", worker=0, after=2) as watched:
        watched.supervisor.release(10**9)
        watched.until(lambda: all(slot.updates >= 2 for slot in watched.shared.slots))
        watched.supervisor.handles[1].process.send_signal(signal.SIGSTOP)
        pids = watched.pids()
    assert all(gone(pid) for pid in pids)


def test_an_error_of_the_caller_ends_the_workers() -> None:
    watched = Watch(2)
    with pytest.raises(KeyError, match="mine"), watched.supervisor:
        raise KeyError("mine")
    assert all(gone(pid) for pid in watched.pids())
    watched.shared.close()
