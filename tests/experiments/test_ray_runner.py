"""The Ray runner against a fake Ray; sweeps on a cluster: test_ray_cluster.py."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from noisynet.experiments import SweepSummary, build_plan, run_sweep
from noisynet.experiments.display import Display
from noisynet.experiments.dry_run import DryRun
from noisynet.experiments.process import ProcessOptions
from noisynet.experiments.ray_runner import RayRunner, run_process


class WorkerCrashedError(Exception):
    """Ray's."""


class FakeTask:
    """The reference to a task that runs at once, in this process."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments

    def future(self) -> Future[Any]:
        result: Future[Any] = Future()
        try:
            result.set_result(self.function(*self.arguments))
        except Exception as error:
            result.set_exception(error)
        return result


class FakeRay:
    """Runs every task at once, in this process.

    Attributes:
        crashes: how many tasks are lost before one succeeds.
        requests: the resources and arguments of every task.
    """

    def __init__(self) -> None:
        self.crashes = 0
        self.requests: list[tuple[dict[str, Any], tuple[Any, ...]]] = []

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {}}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "node-7")

    def remote(self, function: Callable[..., Any]) -> Any:
        def run(*arguments: Any) -> Any:
            if self.crashes:
                self.crashes -= 1
                raise WorkerCrashedError("the worker died")
            return function(*arguments)

        def options(**resources: Any) -> Any:
            def submit(*arguments: Any) -> FakeTask:
                self.requests.append((resources, arguments))
                return FakeTask(run, arguments)

            return SimpleNamespace(remote=submit)

        return SimpleNamespace(options=options)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    made, handler = FakeRay(), signal.getsignal(signal.SIGINT)
    monkeypatch.setitem(sys.modules, "ray", made)
    yield made
    signal.signal(signal.SIGINT, handler)


def sweep(
    out: Path, program: tuple[str, ...] | None, agents: str = "dqn"
) -> tuple[SweepSummary, str]:
    log = StringIO()
    plan = build_plan("classic", out=out, agents=agents, environments="deep_sea/4", seeds=1)
    summary = run_sweep(
        plan,
        on="ray",
        console=Console(file=log, width=200),
        options=ProcessOptions("cuda", tensorboard=False, program=program),
    )
    assert not isinstance(summary, DryRun)
    return summary, log.getvalue()


def test_a_failed_run_is_reported_with_its_node(tmp_path: Path, ray: FakeRay) -> None:
    program = (sys.executable, "-c", "raise ValueError('no such game')")
    summary, log = sweep(tmp_path, program)
    assert [failure.reason for failure in summary.failures] == ["ValueError: no such game"]
    assert "failed: ValueError: no such game, on node node-7" in log
    (resources, arguments) = ray.requests[0]
    assert (resources["num_cpus"], resources["num_gpus"]) == (1, 1)
    assert arguments[0].out == tmp_path.absolute()


def test_workers_have_a_core_each_up_to_the_largest_node(tmp_path: Path, ray: FakeRay) -> None:
    sweep(tmp_path, (sys.executable, "-c", "raise SystemExit(3)"), agents="a3c")
    assert ray.requests[0][0]["num_cpus"] == 2


@pytest.mark.parametrize(
    ("agents", "jobs", "expected"), [("dqn", None, 2), ("a3c", None, 1), ("dqn", 7, 7)]
)
def test_a_search_has_as_many_jobs_as_fit_into_the_cluster(
    tmp_path: Path, ray: FakeRay, agents: str, jobs: int | None, expected: int
) -> None:
    plan = build_plan("classic", out=tmp_path, agents=agents, environments="deep_sea/4", seeds=1)
    studies: Any = [SimpleNamespace(specs=list)]
    display = Display(Console(file=StringIO()))
    runner = RayRunner(plan, ProcessOptions(), display, max_jobs=jobs, studies=studies)
    assert (runner.max_jobs, runner.jobs) == (expected, [])
    assert RayRunner(plan, ProcessOptions(), display).max_jobs is None  # Ray queues a sweep's runs


@pytest.mark.parametrize(("crashes", "lost"), [(3, False), (4, True)])
def test_a_lost_worker_is_retried_a_few_times(
    tmp_path: Path, ray: FakeRay, crashes: int, lost: bool
) -> None:
    ray.crashes = crashes
    summary, log = sweep(tmp_path, (sys.executable, "-c", "raise SystemExit(3)"))
    assert "killed by WorkerCrashedError; will resume from frame 0" in log
    (failure,) = summary.failures
    assert (
        failure.reason == "killed by WorkerCrashedError, 4 times in a row without progress"
    ) is lost


def test_the_default_program_is_that_of_the_node(tmp_path: Path, ray: FakeRay) -> None:
    ray.crashes = 99
    sweep(tmp_path, None)
    assert ray.requests[0][1][1] == ProcessOptions("cuda", tensorboard=False, program=None)


def test_a_task_names_its_node_in_the_log_file(tmp_path: Path, ray: FakeRay) -> None:
    plan = build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4", seeds=1)
    options = ProcessOptions(program=(sys.executable, "-c", "raise SystemExit(3)"))
    ended = run_process(plan.specs[0], options, 1)
    assert (ended.code, ended.where) == (3, "node node-7")
    assert ended.error == "the process exited with code 3 and no error message"
    assert "node node-7, task of process" in plan.specs[0].log.read_text()


def test_an_error_of_the_cluster_fails_the_run(tmp_path: Path, ray: FakeRay) -> None:
    summary, log = sweep(tmp_path, ("/no/such/program",))
    assert summary.exit_code == 1
    assert "No such file or directory: '/no/such/program'" in log


def test_without_ray_the_error_names_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    plan = build_plan("classic", out=tmp_path)
    with pytest.raises(ImportError, match=r'pip install "noisynet\[ray\]"'):
        run_sweep(plan, on="ray", console=Console(file=StringIO()))
    assert list(tmp_path.iterdir()) == []


def test_an_address_without_a_cluster_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound, but not listening
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"expected a Ray cluster at {address}"):
            run_sweep(build_plan("classic", out=tmp_path), on="ray", address=address)
