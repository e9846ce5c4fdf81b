"""Runs that are killed or stopped end with the same files as uninterrupted ones."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loops.conftest import ACT, EVALUATE, LOG
from noisynet.runs import EXIT_LOCKED, RunFolder
from noisynet.runs.lock import read_owner

if TYPE_CHECKING:
    from loops.conftest import Bench

LEARN = "noisynet.agents.value:ValueAgent.learn"
VERIFY = "noisynet.replay.frames:FrameStore.restore"
FAST_FORWARD = "noisynet.loops.episodes:Episodes._fast_forward"


# --- kills at chosen events -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "every"),
    [
        ("minatar", 1),
        ("prioritised", 2),  # of the kinds of event
        pytest.param("prioritised", 1, marks=pytest.mark.slow),
        pytest.param("atari", 1, marks=pytest.mark.slow),
    ],
)
def test_kills_at_every_kind_of_event_leave_no_trace(
    kind: str, every: int, bench: Bench, tmp_path: Path
) -> None:
    stream = random.Random(kind)
    command = bench.command(kind, tmp_path)
    moments = [
        ("files /run/", stream.randint(2, 30)),  # while the folder is created
        (ACT, stream.randint(2, 14)),
        (LEARN, stream.randint(2, 8)),
        (EVALUATE, stream.randint(2, 55)),  # with noise
        (EVALUATE, stream.randint(62, 115)),  # without noise, after a trace was written
        ("files /checkpoints/.", stream.randint(2, 4)),  # in a temporary file
        ("files /checkpoints/", stream.randint(4, 12)),  # anywhere near one
        (FAST_FORWARD, 1),  # while resuming
        (VERIFY, 1),
        ("files /traces/", 2),
        (LOG, stream.randint(2, 9)),
    ]
    threads = 2  # by default; the run stores what it uses
    for event, number in moments[::every]:
        ended = bench.run(command, (event, number), threads=threads)
        assert ended.status == -signal.SIGKILL, f"{event} {number}: {ended.said}"
    ended = bench.run(command, threads=1)
    assert ended.status == 0, ended.said
    assert "took over the lock" in ended.said
    assert "resuming from frame" in ended.said
    stored = RunFolder(tmp_path / "run").read_config()["threads"]
    assert stored == (2 if kind == "atari" else 1)
    assert ("was started with 2 threads and uses them again" in ended.said) == (stored == 2)
    assert bench.remains(tmp_path / "run") == bench.reference(kind, threads=threads)


def test_kills_leave_no_trace_in_rainbow(bench: Bench, tmp_path: Path) -> None:
    """Priorities, n-step transitions and Adam's averages are as without the kills."""
    command = bench.command("rainbow", tmp_path)
    for event, number in [(LEARN, 50), ("files /checkpoints/.", 4), (EVALUATE, 70), (ACT, 60)]:
        ended = bench.run(command, (event, number))
        assert ended.status == -signal.SIGKILL, f"{event} {number}: {ended.said}"
    ended = bench.run(command)
    assert ended.status == 0, ended.said
    assert bench.remains(tmp_path / "run") == bench.reference("rainbow")


# --- kills at random times, from outside ----------------------------------------------------------


class Life:
    """One process of a run that will be killed."""

    def __init__(self, bench: Bench, command: list[str], run: Path, threads: int) -> None:
        self.run, self.started = run, time.time_ns()
        self.rows = self.newest_row()
        self.process = bench.popen(command, threads)

    def newest_row(self) -> int:
        """Return the number of rows that all processes so far have written."""
        path = self.run / "replay" / "serials.bin"
        return int(np.fromfile(path, np.uint32).max(initial=0)) if path.exists() else 0

    def is_beyond(self, row: int) -> bool:
        return self.newest_row() > row

    def is_new(self, path: Path) -> bool:
        try:
            return path.stat().st_mtime_ns > self.started
        except FileNotFoundError:
            return False

    def owns_the_lock(self) -> bool:
        owner = read_owner(self.run / "run.lock")
        return owner is not None and owner.pid == self.process.pid

    def is_checkpointing(self) -> bool:
        """This process has a temporary folder."""
        return any((self.run / "checkpoints").glob(f".*.tmp-{self.process.pid}"))

    def is_evaluating(self) -> bool:
        """The trace with noise is written, the one without is not."""
        with_noise = [p for p in (self.run / "traces").glob("*-on.*") if self.is_new(p)]
        if not with_noise:
            return False
        newest = max(with_noise)
        return not self.is_new(newest.with_name(newest.name.replace("-on.", "-off.")))

    def kill(self, when: Callable[[], bool], delay: float) -> str:
        """Kill the process some time after a condition holds; return what it was doing."""
        while not when() and self.process.poll() is None:
            time.sleep(0.0005)
        time.sleep(delay)
        self.process.kill()
        said = self.process.communicate()[0]
        assert self.process.returncode == -signal.SIGKILL, said
        if not self.owns_the_lock():
            return "starting"
        if not self.is_new(self.run / "status.json"):
            return "resuming"
        if self.is_checkpointing():
            return "checkpointing"
        if self.is_evaluating():
            return "evaluating"
        return "stepping"


def _kill_often(
    bench: Bench,
    command: list[str],
    run: Path,
    targets: list[str],
    stream: random.Random,
    threads: int = 1,
) -> Counter[str]:
    landed: Counter[str] = Counter()
    for target in targets:
        life = Life(bench, command, run, threads)
        when: dict[str, tuple[Callable[[], bool], float]] = {
            "starting": (lambda: True, stream.uniform(0, 3)),
            "resuming": (life.owns_the_lock, stream.uniform(0, 0.05)),
            "stepping": (
                partial(life.is_beyond, life.rows + stream.randint(0, 20)),
                stream.uniform(0, 0.02),
            ),
            "checkpointing": (life.is_checkpointing, stream.uniform(0, 0.004)),
            "evaluating": (life.is_evaluating, stream.uniform(0, 0.01)),
        }
        landed[life.kill(*when[target])] += 1
    return landed


def _finish(bench: Bench, command: list[str]) -> str:
    process = bench.popen(command)
    said: str = process.communicate()[0]
    assert process.returncode == 0, said
    return said


def test_kills_from_outside_leave_no_trace(bench: Bench, tmp_path: Path) -> None:
    command = bench.command("deep_sea", tmp_path)
    targets = ["checkpointing", "evaluating"]
    landed = _kill_often(bench, command, tmp_path / "run", targets, random.Random(0))
    assert landed.total() == 2
    assert bench.run(command).status == 0
    assert bench.remains(tmp_path / "run") == bench.reference("deep_sea")


TARGETS = [
    *["starting"] * 2,
    *["resuming"] * 3,
    *["stepping"] * 7,
    *["evaluating"] * 4,
    *["checkpointing"] * 4,
]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("kind", ["minatar", "atari"])
def test_twenty_kills_at_random_times_leave_no_trace(
    kind: str, num_envs: int, bench: Bench, tmp_path: Path, record_property: Any
) -> None:
    stream = random.Random(f"{kind} {num_envs}")
    targets = stream.sample(TARGETS, len(TARGETS))
    longer = "4000" if kind == "atari" else "1200"
    more = ["--set", f"num_envs={num_envs}", "--frames", longer]
    command = bench.command(kind, tmp_path, *more)
    landed = _kill_often(bench, command, tmp_path / "run", targets, stream, threads=2)
    record_property("landed", dict(landed))
    _finish(bench, command)
    assert bench.remains(tmp_path / "run") == bench.reference(kind, *more, threads=2)
    assert landed.total() == 20
    assert {"resuming", "stepping", "evaluating", "checkpointing"} <= set(landed), landed


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("compute", ["auto", "torch"])
def test_twelve_kills_at_random_times_leave_no_trace_in_rainbow(
    compute: str, bench: Bench, tmp_path: Path, record_property: Any
) -> None:
    stream = random.Random(f"rainbow {compute}")
    targets = [*["starting"], *["resuming"] * 2, *["stepping"] * 4, *["evaluating"] * 2]
    targets += ["checkpointing"] * 3
    stream.shuffle(targets)
    more = ["--frames", "1200", "--set", f"compute={compute}"]
    command = bench.command("rainbow", tmp_path, *more)
    landed = _kill_often(bench, command, tmp_path / "run", targets, stream)
    record_property("landed", dict(landed))
    _finish(bench, command)
    found, expected = bench.remains(tmp_path / "run"), bench.reference("rainbow", *more)
    record_property("sha256", found[f"{1200:012}.safetensors"])
    assert found == expected
    assert landed.total() == 12
    assert {"stepping", "evaluating", "checkpointing"} <= set(landed), landed


# --- signals --------------------------------------------------------------------------------------


def _until(started: Any, seen: Callable[[], bool]) -> None:
    while not seen():
        os.kill(started.pid, 0)
        time.sleep(0.002)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_the_run_and_the_same_command_resumes_it(
    number: int, status: int, bench: Bench, tmp_path: Path
) -> None:
    command, run = bench.command("deep_sea", tmp_path), tmp_path / "run"
    ended = bench.run(command, (ACT, 130), number)
    assert ended.status == status, ended.said
    status_file = RunFolder(run).read_status()
    assert status_file is not None
    assert status_file["state"] == "interrupted"
    assert (
        f"interrupted at frame {status_file['frames']:,} and saved; the same command resumes it"
        in ended.said
    )
    assert bench.newest(run).step == status_file["frames"]  # a frame is a step here
    ended = bench.run(command)
    assert ended.status == 0, ended.said
    assert f"resuming from frame {status_file['frames']:,}" in ended.said
    assert "took over" not in ended.said
    assert bench.remains(run) == bench.reference("deep_sea")


def test_an_evaluation_interrupted_by_sigterm_is_repeated_after_the_resume(
    bench: Bench, tmp_path: Path
) -> None:
    command, run = bench.command("deep_sea", tmp_path), tmp_path / "run"
    ended = bench.run(command, (EVALUATE, 80), signal.SIGTERM)
    assert ended.status == 143, ended.said
    assert "interrupted at frame 150 and saved" in ended.said
    assert (run / "traces" / "000000000150-on.safetensors").exists()
    assert not (run / "traces" / "000000000150-off.safetensors").exists()
    assert "evaluation" not in (run / "metrics.jsonl").read_text()
    ended = bench.run(command)
    assert ended.status == 0, ended.said
    assert bench.remains(run) == bench.reference("deep_sea")


# --- one writer -----------------------------------------------------------------------------------


def test_a_run_locked_by_another_process_is_not_touched(bench: Bench, tmp_path: Path) -> None:
    command, run = bench.command("deep_sea", tmp_path), tmp_path / "run"
    first = bench.start(command)
    _until(first, (run / "status.json").exists)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        before = (run / "metrics.jsonl").read_bytes()
        second = bench.run(command)
        assert second.status == EXIT_LOCKED
        assert f"is locked by process {first.pid} on " in second.said
        assert "Traceback" not in second.said
        assert (run / "metrics.jsonl").read_bytes() == before
    finally:
        os.kill(first.pid, signal.SIGCONT)
    ended = first.wait()
    assert ended.status == 0, ended.said
    assert bench.remains(run) == bench.reference("deep_sea")


# --- budgets and evaluations ---------------------------------------------------------------------


def test_a_larger_budget_resumes_a_run_as_if_it_had_been_given_at_once(
    bench: Bench, tmp_path: Path
) -> None:
    short = bench.command("deep_sea", tmp_path, "--frames", "300")
    assert bench.run(short).status == 0
    ended = bench.run(bench.command("deep_sea", tmp_path))
    assert ended.status == 0, ended.said
    assert "resuming from frame 300" in ended.said
    assert RunFolder(tmp_path / "run").read_config()["frames"] == 400
    assert bench.remains(tmp_path / "run") == bench.reference("deep_sea")


def test_evaluations_leave_training_bit_identical(bench: Bench, tmp_path: Path) -> None:
    finals = []
    for period in (40, 150, 10_000):
        out = tmp_path / str(period)
        more = ["--set", f"evaluation.period_frames={period}"]
        ended = bench.run(bench.command("deep_sea", out, *more))
        assert ended.status == 0, ended.said
        finals.append(bench.newest(out / "run"))
        assert len(list((out / "run" / "traces").iterdir())) == 2 * -(-400 // period)
    first = finals[0]
    for other in finals[1:]:
        assert other.tensors.keys() == first.tensors.keys()
        for name, tensor in first.tensors.items():
            assert tensor.equal(other.tensors[name]), name
        assert other.state["loop"] == first.state["loop"]
