"""How a pool shares out its cores, and what it makes of the ends of processes."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from noisynet.experiments import build_plan, run_sweep
from noisynet.experiments.carrying import Carrier, Deaths, How, Stage
from noisynet.experiments.launch_local import Pool, threads_of_a_run
from noisynet.experiments.stopping import StopRequest, stopping
from noisynet.experiments.table import (
    LiveTable,
    QuietLines,
    SweepConsole,
    counts_line,
    duration,
    make_display,
)
from noisynet.runs import RunFolder, RunLocked


class Started(Carrier):
    """A carrier that starts no process."""

    shares: list[tuple[str, int, int]]

    def start(self, cores: int, threads: int) -> bool:
        self.shares.append((self.spec.label, cores, threads))
        self.stage, self.cores = Stage.RUNNING, cores
        return True


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int, int]]]:
    """Agent, cores and threads of each run that a pool starts."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("noisynet.experiments.launch_local.Carrier", Started)
    Started.shares = []
    return iter([Started.shares])


def share_out(
    out: Path, *, cores: int, jobs: int | None = None, seeds: int = 1, agents: str = "dqn"
) -> None:
    """What a pool starts at first."""
    plan = build_plan("classic", out=out, agents=agents, environments="deep_sea/4", seeds=seeds)
    display = QuietLines(Console(file=StringIO()))
    pool = Pool(plan, How(), display, cores=cores, jobs=jobs)
    pool._start_what_fits()


@pytest.mark.parametrize(
    ("cores", "jobs", "seeds", "expected"),
    [
        (2, None, 5, [1, 1]),
        (8, None, 3, [2, 3, 3]),  # every core is used, and none twice
        (8, None, 8, [1] * 8),
        (8, 2, 5, [4, 4]),
        (2, 3, 5, [1, 1, 1]),  # whoever asks for more than there are cores has them
        (4, None, 1, [4]),
    ],
)
def test_all_cores_are_used_and_none_twice(
    tmp_path: Path,
    shares: Iterator[list[tuple[str, int, int]]],
    cores: int,
    jobs: int | None,
    seeds: int,
    expected: list[int],
) -> None:
    share_out(tmp_path, cores=cores, jobs=jobs, seeds=seeds)
    assert next(shares) == [("dqn", share, share) for share in expected]


def test_workers_count_as_many_as_they_are_or_as_there_are_cores(
    tmp_path: Path, shares: Iterator[list[tuple[str, int, int]]]
) -> None:
    share_out(tmp_path, cores=6, seeds=2, agents="a3c,dqn")
    # Four workers of one thread each; what is left is shared by the runs that fit there.
    assert next(shares) == [("a3c", 4, 1), ("dqn", 1, 1), ("dqn", 1, 1)]


def test_a_run_with_more_workers_than_cores_has_them_all(
    tmp_path: Path, shares: Iterator[list[tuple[str, int, int]]]
) -> None:
    share_out(tmp_path, cores=2, agents="a3c,dqn")
    assert next(shares) == [("a3c", 2, 1)]


def test_the_number_of_threads_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_of_a_run(8) == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads_of_a_run(8) == 8


# --- ends -----------------------------------------------------------------------------------------


def test_deaths_are_counted_anew_when_a_run_has_got_further() -> None:
    deaths = Deaths()
    assert [deaths.one_too_many(frames) for frames in (0, 0, 0, 10, 10, 10, 10)] == [False] * 6 + [
        True
    ]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; sys.exit(3)", "its process ended with exit code 3 and no word"),
        ("raise ValueError('no such game')", "ValueError: no such game"),
        (
            "import sys; sys.stderr.write('hello\\nnoisynet: one\\nnoisynet: two\\n'); sys.exit(2)",
            "one; two",
        ),
    ],
)
def test_the_reason_of_a_failure_is_the_last_that_the_run_has_said(
    tmp_path: Path, program: str, reason: str
) -> None:
    how = How(program=(sys.executable, "-c", program))
    console = Console(file=StringIO())
    summary = run_sweep(
        *("classic",),
        out=tmp_path,
        agents="dqn",
        environments="deep_sea/4",
        seeds=1,
        how=how,
        console=console,
    )
    assert [failure.reason for failure in summary.failures] == [reason]
    assert summary.exit_code == 1


def test_a_program_that_there_is_not_fails_its_runs_only(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4", seeds=1)
    told: list[str] = []
    carrier = Carrier(
        plan.specs[0], How(program=("/no/such/program",)), lambda _, said: told.append(said)
    )
    assert not carrier.start(1, 1)
    assert carrier.stage is Stage.FAILED
    assert "could not be started" in told[-1]


def test_a_run_that_was_refused_the_lock_is_left_to_whoever_has_it(tmp_path: Path) -> None:
    """The words are the lock's own: a process that was slower ends with them."""
    plan = build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4", seeds=1)
    other = tmp_path / "other"
    other.mkdir()
    with RunFolder(other).lock(), pytest.raises(RunLocked) as refused:
        RunFolder(other).lock()
    words = f"import sys; sys.stderr.write({str(refused.value)!r}); sys.exit(1)"
    carrier = Carrier(
        plan.specs[0], How(program=(sys.executable, "-c", words)), lambda _spec, _said: None
    )
    assert carrier.start(1, 1)
    while carrier.stage is Stage.RUNNING:
        carrier.tend()
    assert carrier.stage is Stage.ELSEWHERE


def test_the_second_signal_means_at_once() -> None:
    with stopping() as request:
        assert not request.wanted
        signal.raise_signal(signal.SIGTERM)
        assert (request.wanted, request.at_once, request.signal) == (True, False, signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert (request.at_once, request.signal) == (True, signal.SIGTERM)


def test_a_hang_up_is_a_request_unless_it_is_ignored() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        for disposition, wanted in ((signal.SIG_DFL, True), (signal.SIG_IGN, False)):
            signal.signal(signal.SIGHUP, disposition)
            with stopping() as request:
                signal.raise_signal(signal.SIGHUP)
            assert request.wanted is wanted
            assert signal.getsignal(signal.SIGHUP) is disposition
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_stopped_pool_starts_nothing(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path, seeds=1)
    pool = Pool(plan, How(), QuietLines(Console(file=StringIO())))
    request = StopRequest()
    request.receive(signal.SIGTERM, None)
    pool.run(request)
    assert {run.stage for run in pool.runs} == {Stage.STOPPED}
    assert list(tmp_path.iterdir()) == []


# --- what is shown --------------------------------------------------------------------------------


def test_the_live_table_has_every_run_that_fits_and_counts_all(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path)
    console = Console(file=StringIO(), width=100, height=10, force_terminal=True, color_system=None)
    pool = Pool(plan, How(), QuietLines(Console(file=StringIO())))
    pool.runs[5].stage = Stage.RUNNING
    pool.runs[7].stage = Stage.FAILED
    with LiveTable(console) as table:
        table.tell(plan.specs[7], "failed: [bold]not markup")
        table.refresh(pool.runs)
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert f"{plan.specs[7].name}: failed: [bold]not markup" in shown
    for part in (f"{plan.specs[5].name}", "0/50,000", "time left", "steps/s"):
        assert part in shown
    assert "12 runs: 1 running, 1 failed, 10 waiting" in shown
    assert counts_line(pool.runs[5:6]) == "1 run: 1 running"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_sweep_goes_on_when_nobody_listens_any_more(tmp_path: Path, terminal: bool) -> None:
    class Broken(StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    plan = build_plan("classic", out=tmp_path)
    display = make_display(SweepConsole(file=Broken(), force_terminal=terminal))
    with display:
        display.tell(plan.specs[0], "started")
        display.refresh([])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(45, "45 s"), (720, "12 min"), (12_000, "3 h 20 min"), (442_800, "5 d 3 h")],
)
def test_times_are_told_in_units_that_matter(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_without_ray_the_line_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "noisynet\[ray\]"'):
        run_sweep("classic", out=tmp_path, on="ray", console=Console(file=StringIO()))
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_there_is_not_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"expected a Ray cluster at {address}"):
            run_sweep("classic", out=tmp_path, on="ray", address=address)
