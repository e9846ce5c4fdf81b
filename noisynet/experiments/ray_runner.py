"""Runs the jobs of a sweep as tasks of a Ray cluster whose nodes share a file system."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import time
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final

from noisynet.experiments.display import Display
from noisynet.experiments.job import Job, JobState, KillCounter, ProcessOptions
from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.progress import ProgressState, read_progress
from noisynet.runs import RunFolder
from noisynet.runs.stop_signals import StopRequest

_WAIT_SECONDS: Final = 0.5
_LOCK_POLL_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 10.0
_INSTALL: Final = '--on ray requires Ray: pip install "noisynet[ray]"'
# Ray's exceptions for a lost worker or node. Any other is an error of the run.
_LOST: Final = ("WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError")


@dataclass
class RayJob:
    """One run of the sweep, as the driver sees it.

    Attributes:
        spec: the run.
        state: of the job; waiting until Ray has started its task.
        reason: why it failed.
        task: Ray's reference to its task, None if there is none.
        kills: of its tasks.
        cancelled: whether its task was cancelled.
    """

    spec: RunSpec
    state: JobState = JobState.WAITING
    reason: str = ""
    task: Any = None
    kills: KillCounter = field(default_factory=KillCounter)
    cancelled: bool = False


class RayRunner:
    """Runs every job of a plan as a Ray task.

    Args:
        plan: the runs.
        options: how processes are started.
        display: shows the progress.
        address: of the cluster; None for RAY_ADDRESS, or a new local cluster.
        max_jobs: how many runs at once; None for as many as the cluster allows.

    Attributes:
        jobs: in the order of the plan.

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
    ) -> None:
        self.options, self.display, self.max_jobs = options, display, max_jobs
        self.ray = _import_ray()
        self._connected = not self.ray.is_initialized()
        if self._connected:
            _check_address(address)
            self.ray.init(address=address, log_to_driver=False, logging_level="warning")
        out = plan.out.absolute()  # workers have other working directories
        self.jobs = [RayJob(replace(spec, out=out)) for spec in plan.specs]
        for job in self.jobs:
            if read_progress(job.spec, check_lock=False).state is ProgressState.DONE:
                job.state = JobState.DONE
        self._read_at = 0.0

    def run(self, stop: StopRequest) -> None:
        """Run every job to its end, or to a checkpoint once a stop is requested."""
        try:
            while not all(job.state.ended for job in self.jobs):
                if stop():
                    self._cancel()
                else:
                    self._submit()
                self._wait()
                self.display.refresh(self.jobs)
                if stop.immediate:
                    break
        finally:
            if self._connected:
                self.ray.shutdown()

    # --- tasks ------------------------------------------------------------------------------------

    def _submit(self) -> None:
        submitted = sum(job.task is not None for job in self.jobs)
        for job in self.jobs:
            if self.max_jobs is not None and submitted >= self.max_jobs:
                return
            if job.task is None and not job.state.ended:
                job.task = self._make_task(job.spec)
                submitted += 1

    def _make_task(self, spec: RunSpec) -> Any:
        cores = max(1, min(spec.processes, self._largest_node()))
        remote = self.ray.remote(run_job).options(
            name=spec.name,
            num_cpus=cores,
            max_retries=0,  # the driver retries lost tasks itself and logs each one
            **({"num_gpus": 1} if self.options.device.startswith("cuda") else {}),
        )
        return remote.remote(spec, self.options, cores)

    def _largest_node(self) -> int:
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return int(max((resources.get("CPU", 0) for resources in nodes), default=1))

    def _wait(self) -> None:
        by_task = {job.task: job for job in self.jobs if job.task is not None}
        if not by_task:
            time.sleep(_WAIT_SECONDS)
            return
        ready, _ = self.ray.wait(
            list(by_task), num_returns=len(by_task), timeout=_WAIT_SECONDS, fetch_local=False
        )
        for task in ready:
            self._collect(by_task[task], task)
        if time.monotonic() - self._read_at > _LOCK_POLL_SECONDS:
            self._read_at = time.monotonic()
            for job in self.jobs:
                if job.task is not None:  # Ray has started it if the run's folder is locked
                    locked = RunFolder(job.spec.folder).holder() is not None
                    job.state = JobState.RUNNING if locked else JobState.WAITING

    def _collect(self, job: RayJob, task: Any) -> None:
        job.task = None
        try:
            state, reason, node = self.ray.get(task)
        except self.ray.exceptions.TaskCancelledError:
            job.state = JobState.STOPPED
        except self.ray.exceptions.RayError as error:
            self._handle_error(job, error)
        else:
            job.state, job.reason = JobState(state), reason
            message = f"failed: {reason}" if job.state is JobState.FAILED else job.state.value
            self.display.log(job.spec, f"{message}, on node {node}")

    def _handle_error(self, job: RayJob, error: Exception) -> None:
        """Retry a task whose worker or node was lost; fail on any other error of Ray."""
        kind, frames = type(error).__name__, read_progress(job.spec, check_lock=False).frames
        lines = str(error).strip().splitlines()
        if kind not in _LOST:
            job.state, job.reason = JobState.FAILED, lines[-1] if lines else kind
        elif job.kills.exceeds_retries(frames):
            job.state = JobState.FAILED
            job.reason = f"{kind}, {job.kills.in_a_row} times in a row without progress"
        else:
            job.state = JobState.WAITING
            self.display.log(job.spec, f"{kind}; will resume from frame {frames:,} on another node")
            return
        self.display.log(job.spec, f"failed: {job.reason}")

    def _cancel(self) -> None:
        for job in self.jobs:
            if job.task is None and not job.state.ended:
                job.state = JobState.STOPPED
            elif job.task is not None and not job.cancelled:
                job.cancelled = True  # a second interrupt would skip the checkpoint
                self.ray.cancel(job.task, force=False)


def run_job(spec: RunSpec, options: ProcessOptions, cores: int) -> tuple[str, str, str]:
    """A Ray task: run one job to its end on this node.

    Args:
        spec: the run.
        options: how its processes are started.
        cores: assigned to the task.

    Returns:
        The job's final state, why it failed, and the node's id.
    """
    # Ray cancels a task by SIGINT, which a cluster started in the background ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    node = _import_ray().get_runtime_context().get_node_id()
    threads = cores if spec.processes == 1 else 1
    job = Job(spec, options, _no_log, host=f"node {node}, task of process {os.getpid()}")
    try:
        while not job.state.ended:
            if job.state is JobState.WAITING:
                job.start(cores, threads)
            job.poll()
            time.sleep(_WAIT_SECONDS / 5)
    except (KeyboardInterrupt, SystemExit):  # cancelled: wait for the checkpoint
        job.stop()
        while not job.state.ended:
            job.poll()
            time.sleep(_WAIT_SECONDS / 5)
        raise
    return job.state.value, job.reason, str(node)


def _no_log(_spec: RunSpec, _message: str) -> None:
    """The driver logs the events; the output of the run is in its log file."""


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


def _import_ray() -> ModuleType:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(_INSTALL) from error
