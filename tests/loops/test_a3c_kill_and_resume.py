"""Runs of A3C in real processes that are killed, stopped and resumed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loops.conftest import CHECKPOINT
from noisynet.loops.shared_state import SharedState
from noisynet.runs import RunFolder, read_metrics

if TYPE_CHECKING:
    from loops.conftest import Bench

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")

EVALUATE = "noisynet.agents.actor_critic:ActorCriticPolicy.act"
RESTORE = "noisynet.loops.async_actors:AsyncTrainer.restore"
POLL = "noisynet.loops.supervisor:Supervisor.poll"

_WATCHED: list[Watched] = []


@pytest.fixture(autouse=True)
def _kill_all() -> Iterator[None]:
    """Leave no process behind."""
    yield
    for run in _WATCHED:
        if run.process.poll() is None:
            run.process.kill()
            run.process.communicate()
    _WATCHED.clear()


class Watched:
    """A command in its own session, with access to the memory that its workers share."""

    def __init__(self, arguments: list[str], workers: int) -> None:
        self.workers = workers
        self.shared: SharedState | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "noisynet", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        _WATCHED.append(self)

    def look(self) -> SharedState | None:
        """Map the shared memory by the descriptor in the parent."""
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                if str(link.readlink()).startswith("/memfd:noisynet"):
                    descriptor = os.open(link, os.O_RDWR)
                    if os.fstat(descriptor).st_size > 8192:  # not a setup
                        return SharedState(descriptor, self.workers, 1)
                    os.close(descriptor)
            except OSError:
                continue  # closed in the meantime
        return None

    def until(self, condition: Callable[[], bool], seconds: float = 280) -> None:
        started = time.monotonic()
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() - started < seconds
            time.sleep(0.002)

    def until_each_has_updated(self, seconds: float = 280) -> SharedState:
        if self.shared is None:
            self.until(lambda: self.look() is not None)
            self.shared = self.look()
        shared = self.shared
        assert shared is not None
        before = [slot.updates for slot in shared.slots]
        self.until(
            lambda: all(s.updates > b for s, b in zip(shared.slots, before, strict=True)), seconds
        )
        return shared

    def memory_mb(self) -> float:
        """Memory of all processes; pages that they share count once."""
        total = 0
        for pid in (self.process.pid, *self.children()):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
        return total / 1e3

    def children(self) -> list[int]:
        """Return the pids of the workers, the oldest process first."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def end(self, number: int | None = None, *, group: bool = False) -> str:
        if number is not None:
            (os.killpg if group else os.kill)(self.process.pid, number)
        return self.process.communicate()[0]


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return True
    return state == "Z"


def until_gone(pids: list[int]) -> None:
    started = time.monotonic()
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() - started < 60
        time.sleep(0.01)


# --- one worker -----------------------------------------------------------------------------------


def test_kills_and_ctrl_c_leave_no_trace_with_one_worker(bench: Bench, tmp_path: Path) -> None:
    """In a terminal Ctrl-C reaches every process of the run."""
    stream = random.Random(5)
    arguments, run = bench.command("a3c recurrent", tmp_path), tmp_path / "run"
    moments = [
        ("files /run/", stream.randint(2, 25)),  # while the folder is created
        (POLL, stream.randint(1, 9)),  # while the worker starts
        (EVALUATE, stream.randint(62, 115)),  # without noise, after a trace was written
        (RESTORE, 1),
        ("files /checkpoints/.", stream.randint(2, 4)),  # while writing one
    ]
    for event, number in moments:
        ended = bench.run(arguments, (event, number))
        assert ended.status == -signal.SIGKILL, f"{event} {number}: {ended.said}"
    started = bench.start(arguments, CHECKPOINT, 1, number=signal.SIGINT)
    ended = started.wait()
    assert ended.status == 130, ended.said
    assert "took over the lock" in ended.said
    assert "resuming from frame" in ended.said
    assert "asynchronous" not in ended.said
    assert "Traceback" not in ended.said
    status = RunFolder(run).read_status()
    assert status is not None
    assert status["state"] == "interrupted"
    assert f"interrupted at frame {status['frames']:,} and saved; the same command" in ended.said
    with pytest.raises(ProcessLookupError):  # its group is empty: the worker has ended, too
        os.killpg(started.pid, 0)
    ended = bench.run(arguments)
    assert ended.status == 0, ended.said
    assert bench.remains(run) == bench.reference("a3c recurrent")
    assert 700 <= bench.newest(run).step < 700 + 3 * 5


# --- two workers ---------------------------------------------------------------------------------


def test_killed_and_hung_workers_are_restarted_and_all_exit_with_their_parent(
    bench: Bench, tmp_path: Path
) -> None:
    longer = ("--frames", "100M", "--patience", "3")  # a busy machine may delay a heartbeat
    arguments = bench.command("a3c two workers", tmp_path, *longer)
    run = Watched(arguments, workers=2)
    shared = run.until_each_has_updated()
    run.until(lambda: shared.steps > 400)
    workers = run.children()
    assert len(workers) == 2
    assert not any(gone(pid) for pid in workers)
    run.process.kill()
    until_gone(workers)
    run.end()
    kept = bench.newest(tmp_path / "run")
    assert kept.step > 0
    deaths = sum(worker["deaths"] for worker in kept.state["workers"])

    run = Watched(arguments, workers=2)
    run.until(lambda: len(run.children()) == 2)  # the counters are restored before
    shared = run.until_each_has_updated()
    for pid, number in zip(run.children(), (signal.SIGSTOP, signal.SIGKILL), strict=True):
        os.kill(pid, number)
    run.until_each_has_updated()
    run.until(lambda: shared.steps > kept.step + 600)
    workers = run.children()
    said = run.end(signal.SIGTERM, group=True)  # as batch systems send it
    assert run.process.returncode == 143, said
    assert "Traceback" not in said
    until_gone(workers)
    assert f"resuming from frame {kept.step:,}; workers are asynchronous" in said
    killed, hung = (
        said.count(f"died ({how}")
        for how in ("killed by SIGKILL)", "no heartbeat for 3 s, killed)")
    )
    assert min(killed, hung) >= 1  # more, if the machine is so busy that a heartbeat is missed
    deaths += killed + hung
    checkpoint = bench.newest(tmp_path / "run")
    assert checkpoint.step == shared.steps
    assert sum(worker["deaths"] for worker in checkpoint.state["workers"]) == deaths
    assert all(bool(tensor.isfinite().all()) for tensor in checkpoint.tensors.values())
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert sum(row["kind"] == "death" for row in rows) == deaths
    assert [row for row in rows if row["kind"] == "train"][-1]["worker_deaths"] == deaths


@pytest.mark.slow
def test_a_run_whose_parent_was_killed_ends_at_its_budget(bench: Bench, tmp_path: Path) -> None:
    arguments = bench.command("a3c two workers", tmp_path)
    run = Watched(arguments, workers=2)
    shared = run.until_each_has_updated()
    run.until(lambda: shared.steps > 400)
    run.process.kill()
    run.end()
    ended = bench.run(arguments)
    assert ended.status == 0, ended.said
    assert 3000 <= bench.newest(tmp_path / "run").step < 3000 + 2 * 5


# --- faults ---------------------------------------------------------------------------------------


def failing(
    bench: Bench, out: Path, fault: str, *more: str, workers: int = 1, always: bool = False
) -> list[str]:
    given = bench.command("a3c two workers", out, "--workers", str(workers), *more)
    given[given.index("gym/CartPole-v1")] = "gym/failing_environments:Failing-v0"
    arguments = json.dumps({"fault": fault, "always": always})
    given += ["--set", f"environment_options.arguments={arguments}"]
    return [*given, "--set", "learning.clip_rewards=false"]


@pytest.fixture
def with_failing_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make them importable here; forked processes and workers find them by themselves."""
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.mark.usefixtures("with_failing_environments")
def test_non_finite_gradients_are_dropped_and_counted(bench: Bench, tmp_path: Path) -> None:
    ended = bench.run(failing(bench, tmp_path, "huge", "--frames", "300"))
    assert ended.status == 0, ended.said
    run = tmp_path / "run"
    last = [row for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "train"][-1]
    # One roll-out of each episode with an odd seed, about half of all.
    assert 1 <= last["dropped_updates"] <= 14
    assert last["updates"] + last["dropped_updates"] == 300 // 5
    checkpoint = bench.newest(run)
    assert checkpoint.step == 300
    assert all(bool(tensor.isfinite().all()) for tensor in checkpoint.tensors.values())


@pytest.mark.usefixtures("with_failing_environments")
def test_consecutive_non_finite_gradients_end_the_run_and_name_the_tensor(
    bench: Bench, tmp_path: Path
) -> None:
    given = bench.command(
        "a3c two workers", tmp_path, "--workers", "1", "--set", "learning.clip_rewards=false"
    )
    given[given.index("gym/CartPole-v1")] = "gym/faulty_environments:Huge-v0"
    given += ["--set", 'environment_options.arguments={"from_step": 400}']
    ended = bench.run(given)
    assert ended.status == 1, ended.said
    assert "expected a finite gradient, got 5 consecutive gradients of worker 0" in ended.said
    assert "first in the gradient of 'hidden.0." in ended.said
    assert "Traceback" not in ended.said
    checkpoint = bench.newest(tmp_path / "run")
    assert 300 <= checkpoint.step <= 400
    assert "the last checkpoint is kept" in ended.said
    assert all(bool(tensor.isfinite().all()) for tensor in checkpoint.tensors.values())
    status = RunFolder(tmp_path / "run").read_status()
    assert status is not None
    assert status["state"] == "failed"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("with_failing_environments")
@pytest.mark.parametrize("workers", [1, 4])
def test_an_environment_that_raises_ends_the_run_with_its_error(
    workers: int, bench: Bench, tmp_path: Path
) -> None:
    """It raises in every first roll-out."""
    longer = ("--set", "learning.rollout_steps=40")
    ended = bench.run(failing(bench, tmp_path, "raise", *longer, workers=workers, always=True))
    assert ended.status == 1, ended.said
    assert "died 5 times in a row without an update in between, last with exit code 1: " in (
        ended.said
    )
    assert "RuntimeError: the emulator gave up in step 10" in ended.said
    assert "Traceback" not in ended.said
    assert (
        "RuntimeError: the emulator gave up" in (tmp_path / "run" / "worker-errors.txt").read_text()
    )
    assert bench.newest(tmp_path / "run").step >= 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("with_failing_environments")
def test_a_worker_whose_environment_hangs_is_restarted(bench: Bench, tmp_path: Path) -> None:
    ended = bench.run(failing(bench, tmp_path, "sleep", "--frames", "200", workers=2))
    assert ended.status == 0, ended.said
    assert ended.said.count("no heartbeat for 1.5 s, killed") >= 1


# --- slow -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_of_four_workers_is_killed_at_ten_random_times(bench: Bench, tmp_path: Path) -> None:
    stream = random.Random(10)
    arguments = bench.command(
        "a3c two workers", tmp_path, "--frames", "100M", "--workers", "4", "--patience", "4"
    )
    run = Watched(arguments, workers=4)
    for _ in range(10):
        shared = run.until_each_has_updated()
        time.sleep(stream.uniform(0, 0.5))
        before = [slot.updates for slot in shared.slots]
        os.kill(stream.choice(run.children()), signal.SIGKILL)
        run.until(lambda: sum(s.updates > b for s, b in zip(shared.slots, before, strict=True)) > 2)  # noqa: B023
    run.until_each_has_updated()
    said = run.end(signal.SIGTERM)
    assert run.process.returncode == 143, said
    assert said.count("died (killed by SIGKILL)") == 10
    checkpoint = bench.newest(tmp_path / "run")
    assert checkpoint.step == shared.steps
    assert sum(worker["deaths"] for worker in checkpoint.state["workers"]) == 10


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_sixty_four_workers_train_evaluate_stop_and_resume(
    bench: Bench, tmp_path: Path, record_property: Any
) -> None:
    """Many times more than there are cores: slow, but none of them counts as hung."""
    arguments = bench.command("a3c two workers", tmp_path, "--frames", "100M", "--workers", "64")
    at = arguments.index("--patience")
    del arguments[at : at + 2]  # the default
    arguments += ["--set", "evaluation.period_frames=10000"]
    arguments += ["--set", "checkpoint_period_frames=5000"]
    steps = 0
    for resumed in (False, True):
        began = time.monotonic()
        run = Watched(arguments, workers=64)
        shared = run.until_each_has_updated(3000)
        record_property("seconds until each has updated", round(time.monotonic() - began))
        run.until(lambda: shared.steps > steps + 20_000, 3000)  # noqa: B023
        record_property("memory in MB", round(run.memory_mb()))
        workers = run.children()
        began = time.monotonic()
        said = run.end(signal.SIGTERM, group=True)
        record_property("seconds to stop", round(time.monotonic() - began))
        assert run.process.returncode == 143, said
        assert "Traceback" not in said
        assert ("resuming from frame" in said) == resumed
        until_gone(workers)
        checkpoint = bench.newest(tmp_path / "run")
        assert checkpoint.step == shared.steps > steps + 20_000
        assert [worker["deaths"] for worker in checkpoint.state["workers"]] == [0] * 64
        steps = checkpoint.step
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    evaluated = [row["frames"] for row in rows if row["kind"] == "evaluation"]
    assert steps // 10_000 - len(evaluated) in (0, 1)  # the last may have been interrupted
    assert all(bool(tensor.isfinite().all()) for tensor in checkpoint.tensors.values())


class Life:
    """One process of a run with one worker that will be killed."""

    def __init__(self, arguments: list[str], run: Path) -> None:
        self.run, self.started = run, time.time_ns()
        self.watched = Watched(arguments, workers=1)

    def is_new(self, path: Path) -> bool:
        try:
            return path.stat().st_mtime_ns > self.started
        except FileNotFoundError:
            return False

    def is_resuming(self) -> bool:
        return self.is_new(self.run / "status.json")

    def is_stepping(self) -> bool:
        shared = self.watched.shared = self.watched.shared or self.watched.look()
        return shared is not None and shared.slots[0].heartbeat > 0 and shared.stop_at > 0

    def is_checkpointing(self) -> bool:
        return any((self.run / "checkpoints").glob(f".*.tmp-{self.watched.process.pid}"))

    def is_evaluating(self) -> bool:
        """The trace with noise is written, the one without is not."""
        on = [path for path in (self.run / "traces").glob("*-on.*") if self.is_new(path)]
        return bool(on) and not self.is_new(
            max(on).with_name(max(on).name.replace("-on.", "-off."))
        )

    def kill(self, target: str, stream: random.Random) -> None:
        when: dict[str, tuple[Callable[[], bool], float]] = {
            "starting": (lambda: True, stream.uniform(0, 6)),
            "resuming": (self.is_resuming, stream.uniform(0, 0.5)),
            "stepping": (self.is_stepping, stream.uniform(0, 0.6)),
            "checkpointing": (self.is_checkpointing, stream.uniform(0, 0.004)),
            "evaluating": (self.is_evaluating, stream.uniform(0, 0.05)),
        }
        condition, delay = when[target]
        while not condition() and self.watched.process.poll() is None:
            time.sleep(0.0005)
        time.sleep(delay)
        self.watched.process.kill()
        said = self.watched.end()
        # The run must not finish before it is killed.
        assert self.watched.process.returncode == -signal.SIGKILL, said


TARGETS = [
    *["starting"] * 2,
    *["resuming"] * 3,
    *["stepping"] * 8,
    *["evaluating"] * 3,
    *["checkpointing"] * 4,
]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["a3c minatar", "a3c pong"])
def test_twenty_kills_at_random_times_leave_no_trace_with_one_worker(
    kind: str, bench: Bench, tmp_path: Path, record_property: Any
) -> None:
    stream = random.Random(kind)
    more = ["--frames", "12000"] if kind == "a3c minatar" else ["--frames", "16000"]
    arguments = bench.command(kind, tmp_path, *more)
    targets = stream.sample(TARGETS, len(TARGETS))
    for target in targets:
        Life(arguments, tmp_path / "run").kill(target, stream)
    record_property("frame", bench.newest(tmp_path / "run").step)
    ended = bench.run(arguments)
    assert ended.status == 0, ended.said
    assert bench.remains(tmp_path / "run") == bench.reference(kind, *more)
