"""Runs the jobs of a sweep as tasks of a Ray cluster whose nodes share a file system."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from noisynet.experiments.display import Display
from noisynet.experiments.job import Job
from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.process import Exit, LocalProcess, Process, ProcessOptions
from noisynet.experiments.progress import read_progress
from noisynet.experiments.runner import Runner
from noisynet.extras import import_extra
from noisynet.runs import RunFolder
from noisynet.runs.stop_signals import StopRequest

if TYPE_CHECKING:
    from noisynet.experiments.search import Study

_LOCK_POLL_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
# Ray's exceptions for a lost worker or node. Any other is an error of the run.
_LOST: Final = ("WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError")


class RayRunner(Runner):
    """Runs every job of a plan as a Ray task, which Ray queues until a node has the cores.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at the address.
    """

    def __init__(
        self,
        plan: Plan,
        options: ProcessOptions,
        display: Display,
        *,
        address: str | None = None,
        max_jobs: int | None = None,
        studies: Sequence[Study] = (),
    ) -> None:
        self.ray = import_extra("ray", "ray")
        self._connected = not self.ray.is_initialized()
        if self._connected:
            _check_address(address)
            self.ray.init(address=address, log_to_driver=False, logging_level="warning")
        if studies and max_jobs is None:  # no more trials than can run at once
            cores = int(self.ray.cluster_resources().get("CPU", 1))
            max_jobs = max(1, cores // max(spec.processes for spec in plan.specs))
        super().__init__(plan, options, display, max_jobs=max_jobs, studies=studies)

    def run(self, stop: StopRequest) -> None:
        """Run every job to its end, or to a checkpoint once a stop is requested."""
        try:
            super().run(stop)
        finally:
            if self._connected:
                self.ray.shutdown()

    def launch(self, spec: RunSpec, cores: int, threads: int) -> Process:
        """Submit the task of a run."""
        spec = replace(spec, out=spec.out.absolute())  # workers have other working directories
        return RayTask(self.ray, spec, self.options, cores, threads)

    def free(self) -> tuple[int, int]:
        """Ray assigns the cores: only `max_jobs` limits the number of tasks."""
        tasks = sum(job.state.has_process for job in self.jobs)
        return 1, 1 if self.max_jobs is None else self.max_jobs - tasks

    def start(self, job: Job, _free_cores: int, _free_slots: int) -> bool:
        """Submit a job with a core for each of its processes, at most those of the largest node."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        largest = int(max((resources.get("CPU", 0) for resources in nodes), default=1))
        return job.start(max(1, min(job.spec.processes, largest)), 1)


class RayTask:
    """A process on a node of the cluster, within a task of so many cores: see `run_process`."""

    def __init__(
        self, ray: Any, spec: RunSpec, options: ProcessOptions, cores: int, threads: int
    ) -> None:
        self._ray, self._spec, self._read_at = ray, spec, 0.0
        remote = ray.remote(run_process).options(
            name=spec.name,
            num_cpus=cores,
            max_retries=0,  # the job restarts lost processes itself and logs each one
            **({"num_gpus": 1} if options.device.startswith("cuda") else {}),
        )
        self._task = remote.remote(spec, options, threads)
        self._result: Future[Exit] = self._task.future()

    def has_started(self) -> bool:
        """Whether its process holds the run's lock."""
        if time.monotonic() - self._read_at < _LOCK_POLL_SECONDS:
            return False
        self._read_at = time.monotonic()
        return RunFolder(self._spec.folder).holder() is not None

    def poll(self) -> Exit | None:
        """How the process ended, also with its node; None if it has not."""
        if not self._result.done():
            return None
        try:
            return self._result.result()
        except Exception as error:  # Ray's own, or raised by the task
            kind = type(error).__name__
            message = [kind, *str(error).strip().splitlines()][-1]
            killed_by = kind if kind in _LOST else ""
            return Exit(-signal.SIGKILL, read_progress(self._spec), killed_by, message)

    def stop(self, *, kill: bool) -> None:
        """Interrupt the task, which waits for a checkpoint; or kill its worker and do not wait."""
        self._ray.cancel(self._task, force=kill)
        if kill:
            self._result = Future()
            self._result.set_exception(ConnectionError("killed"))


def run_process(spec: RunSpec, options: ProcessOptions, threads: int) -> Exit:
    """A Ray task: run a process of a run on this node."""
    # Ray cancels a task by SIGINT, which a cluster started in the background ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    node = import_extra("ray", "ray").get_runtime_context().get_node_id()
    process = LocalProcess(spec, options, threads, where=f"node {node}")
    try:
        # Ray cancels a task between two lines of Python: it cannot interrupt a call that waits.
        while (ended := process.poll()) is None:
            time.sleep(_POLL_SECONDS)
        return ended
    except (KeyboardInterrupt, SystemExit):  # cancelled: wait for the checkpoint
        process.stop(kill=False)
        process.wait()
        raise


def _check_address(address: str | None) -> None:
    """Fail at once if no cluster answers; Ray itself would retry for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return  # "auto" or None: Ray finds the cluster
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"expected a Ray cluster at {address}, got no answer ({error}); start one with "
            "`ray start --head`, or leave --address out"
        ) from error
