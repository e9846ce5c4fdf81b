"""The command of a process, and how its end is read."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from noisynet.experiments import RunSpec, build_plan
from noisynet.experiments.process import LocalProcess, ProcessOptions
from noisynet.experiments.progress import ProgressState


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    plan = build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4", seeds=1)
    return plan.specs[0]


def start(spec: RunSpec, code: str, where: str = "") -> LocalProcess:
    return LocalProcess(spec, ProcessOptions(program=(sys.executable, "-c", code)), 3, where)


def test_the_command_of_a_process(spec: RunSpec) -> None:
    options = ProcessOptions("cuda:1", tensorboard=False, program=("program",))
    assert options.command(spec) == [
        *("program", str(os.getpid()), *spec.arguments()),
        *("--device", "cuda:1", "--no-tensorboard"),
    ]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import sys; sys.exit(3)", "the process exited with code 3 and no error message"),
        ("raise ValueError('no such game')", "ValueError: no such game"),
        (
            "import sys; sys.stderr.write('hello\\nnoisynet: one\\nnoisynet: two\\n'); sys.exit(2)",
            "one; two",
        ),
    ],
)
def test_the_error_is_that_of_the_newest_process(spec: RunSpec, code: str, error: str) -> None:
    start(spec, "raise ValueError('of an earlier process')").wait()
    ended = start(spec, code).wait()
    assert (ended.error, ended.killed_by, ended.progress.state) == (error, "", ProgressState.NEW)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_end_by_a_signal_names_it(spec: RunSpec, number: signal.Signals) -> None:
    process = start(spec, "import time; time.sleep(600)")
    assert process.poll() is None
    process.stop(kill=number is signal.SIGKILL)
    assert process.wait().killed_by == number.name


def test_a_run_that_was_asked_to_stop_was_killed_by_its_signal(spec: RunSpec) -> None:
    ended = start(spec, f"raise SystemExit({128 + signal.SIGINT})").wait()
    assert (ended.code, ended.killed_by) == (130, "SIGINT")


def test_the_log_file_names_the_machine_and_the_threads_are_set(spec: RunSpec) -> None:
    start(spec, "import os; print(os.environ['OMP_NUM_THREADS'])").wait()
    assert start(spec, "", where="node 7").wait().where == "node 7"
    first, threads, second = spec.log.read_text().splitlines()
    assert ", this machine: " in first
    assert threads == "3"
    assert f", node 7, task of process {os.getpid()}: " in second
