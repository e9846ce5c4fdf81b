"""How the runner assigns cores to runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from noisynet.experiments import build_plan
from noisynet.experiments.display import Display
from noisynet.experiments.job import Job, JobState
from noisynet.experiments.process import ProcessOptions
from noisynet.experiments.runner import Runner, threads_per_run
from noisynet.runs.stop_signals import StopRequest


class FakeJob(Job):
    """A job that starts no process."""

    shares: list[tuple[str, int, int]]

    def start(self, cores: int, threads: int) -> bool:
        self.shares.append((self.spec.label, cores, threads))
        self.state, self.cores = JobState.RUNNING, cores
        return True


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int, int]]]:
    """Agent, cores and threads of each run that the runner starts."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("noisynet.experiments.runner.Job", FakeJob)
    FakeJob.shares = []
    return iter([FakeJob.shares])


def start_jobs(
    out: Path, *, cores: int, jobs: int | None = None, seeds: int = 1, agents: str = "dqn"
) -> None:
    """Start the first runs."""
    plan = build_plan("classic", out=out, agents=agents, environments="deep_sea/4", seeds=seeds)
    display = Display(Console(file=StringIO()))
    runner = Runner(plan, ProcessOptions(), display, cores=cores, max_jobs=jobs)
    runner.start_jobs()


@pytest.mark.parametrize(
    ("cores", "jobs", "seeds", "expected"),
    [
        (2, None, 5, [1, 1]),
        (8, None, 3, [2, 3, 3]),  # every core is used, and none twice
        (8, None, 8, [1] * 8),
        (8, 2, 5, [4, 4]),
        (2, 3, 5, [1, 1, 1]),  # --jobs may oversubscribe the cores
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
    start_jobs(tmp_path, cores=cores, jobs=jobs, seeds=seeds)
    assert next(shares) == [("dqn", share, share) for share in expected]


def test_each_worker_of_an_actor_critic_agent_has_a_core(
    tmp_path: Path, shares: Iterator[list[tuple[str, int, int]]]
) -> None:
    start_jobs(tmp_path, cores=6, seeds=2, agents="a3c,dqn")
    # Four workers of one thread each; two cores are left.
    assert next(shares) == [("a3c", 4, 1), ("dqn", 1, 1), ("dqn", 1, 1)]


def test_a_run_with_more_workers_than_cores_has_all_cores(
    tmp_path: Path, shares: Iterator[list[tuple[str, int, int]]]
) -> None:
    start_jobs(tmp_path, cores=2, agents="a3c,dqn")
    assert next(shares) == [("a3c", 2, 1)]


def test_omp_num_threads_overrides_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_per_run(8) == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads_per_run(8) == 8


def test_a_stopped_runner_starts_nothing(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path, seeds=1)
    runner = Runner(plan, ProcessOptions(), Display(Console(file=StringIO())))
    request = StopRequest()
    request.receive(signal.SIGTERM)
    runner.run(request)
    assert {job.state for job in runner.jobs} == {JobState.STOPPED}
    assert list(tmp_path.iterdir()) == []
