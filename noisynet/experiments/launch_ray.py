"""The runs of a sweep as tasks of a Ray cluster, whose nodes see the run folders by one path."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from noisynet.experiments.carrying import Carrier, Deaths, How, Stage
from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.progress import State, look
from noisynet.experiments.stopping import StopRequest
from noisynet.experiments.table import Display
from noisynet.runs import RunFolder

_GLANCE_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 5.0
_KNOCK_SECONDS: Final = 10.0
_INSTALL: Final = 'expected Ray for --on ray: pip install "noisynet[ray]"'
# Names of Ray's own exceptions that are the end of a process or of its machine, not of the run.
_LOST: Final = ("WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError")


@dataclass
class RayRun:
    """A run of the sweep, as the driver knows it.

    Attributes:
        spec: the run.
        stage: where it is; a task that Ray has not started yet is waiting.
        reason: why it failed.
        task: Ray's reference to the task that carries it, None if there is none.
        deaths: of its tasks.
        cancelled: whether its task was asked to end.
    """

    spec: RunSpec
    stage: Stage = Stage.WAITING
    reason: str = ""
    task: Any = None
    deaths: Deaths = field(default_factory=Deaths)
    cancelled: bool = False


class RayRuns:
    """The runs of a plan, as tasks.

    Args:
        plan: what is to be done.
        how: processes are started.
        display: shows how it goes.
        address: of the cluster; None for the one of RAY_ADDRESS, or a new one here.
        jobs: how many runs at once; None for as many as the cluster holds.

    Attributes:
        runs: in the order of the plan.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at the address.
    """

    def __init__(
        self,
        plan: Plan,
        how: How,
        display: Display,
        *,
        address: str | None = None,
        jobs: int | None = None,
    ) -> None:
        self.how, self.display, self.jobs = how, display, jobs
        self.ray = _ray()
        self._connected = not self.ray.is_initialized()
        if self._connected:
            _knock_at(address)
            self.ray.init(address=address, log_to_driver=False, logging_level="warning")
        self.runs = [RayRun(_absolute(spec)) for spec in plan.specs]
        for run in self.runs:
            if look(run.spec, ask_lock=False).state is State.DONE:
                run.stage = Stage.DONE
        self._looked_at = 0.0

    def run(self, stop: StopRequest) -> None:
        """Carry every run to its end, or to a checkpoint when somebody wants to stop."""
        try:
            while not all(run.stage.ended for run in self.runs):
                if stop.wanted:
                    self._stop()
                else:
                    self._submit()
                self._await()
                self.display.refresh(self.runs)
                if stop.at_once:
                    break
        finally:
            if self._connected:
                self.ray.shutdown()

    # --- tasks -----------------------------------------------------------------------------------

    def _submit(self) -> None:
        under_way = sum(run.task is not None for run in self.runs)
        for run in self.runs:
            if self.jobs is not None and under_way >= self.jobs:
                return
            if run.task is None and not run.stage.ended:
                run.task = self._task(run.spec)
                under_way += 1

    def _task(self, spec: RunSpec) -> Any:
        cores = max(1, min(spec.processes, self._largest_node()))
        remote = self.ray.remote(carry).options(
            name=spec.name,
            num_cpus=cores,
            max_retries=0,  # the sweep itself starts again what was lost, and says so
            **({"num_gpus": 1} if self.how.device.startswith("cuda") else {}),
        )
        how = {"device": self.how.device, "tensorboard": self.how.tensorboard}
        # Another machine has its own interpreter, unless the caller has chosen a program.
        program = None if self.how.program == How().program else list(self.how.program)
        return remote.remote(spec.to_json(), how, program, cores)

    def _largest_node(self) -> int:
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return int(max((resources.get("CPU", 0) for resources in nodes), default=1))

    def _await(self) -> None:
        by_task = {run.task: run for run in self.runs if run.task is not None}
        if not by_task:
            time.sleep(_GLANCE_SECONDS)
            return
        ready, _ = self.ray.wait(
            list(by_task), num_returns=len(by_task), timeout=_GLANCE_SECONDS, fetch_local=False
        )
        for task in ready:
            self._ended(by_task[task], task)
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            for run in self.runs:
                if run.task is not None:
                    self._see(run)

    def _ended(self, run: RayRun, task: Any) -> None:
        run.task = None
        try:
            stage, reason, node = self.ray.get(task)
        except self.ray.exceptions.TaskCancelledError:
            run.stage = Stage.STOPPED
        except self.ray.exceptions.RayError as error:
            self._lost(run, error)
        else:
            run.stage, run.reason = Stage(stage), reason
            said = f"failed: {reason}" if run.stage is Stage.FAILED else run.stage.value
            self.display.tell(run.spec, f"{said}, on node {node}")

    def _lost(self, run: RayRun, error: Exception) -> None:
        """A task came back without an answer: its worker or its machine has ended."""
        kind, frames = type(error).__name__, look(run.spec, ask_lock=False).frames
        words = str(error).strip().splitlines()
        if kind not in _LOST:
            run.stage, run.reason = Stage.FAILED, words[-1] if words else kind
        elif run.deaths.one_too_many(frames):
            run.stage = Stage.FAILED
            run.reason = f"{kind}, {run.deaths.in_a_row} times in a row without getting further"
        else:
            run.stage = Stage.WAITING
            self.display.tell(run.spec, f"{kind}; it will go on from frame {frames:,} elsewhere")
            return
        self.display.tell(run.spec, f"failed: {run.reason}")

    def _see(self, run: RayRun) -> None:
        """Whether Ray has started the task: its run's folder then has an owner."""
        taken = RunFolder(run.spec.folder).holder() is not None
        run.stage = Stage.RUNNING if taken else Stage.WAITING

    def _stop(self) -> None:
        for run in self.runs:
            if run.task is None and not run.stage.ended:
                run.stage = Stage.STOPPED
            elif run.task is not None and not run.cancelled:
                run.cancelled = True  # a second time would mean: at once
                self.ray.cancel(run.task, force=False)


def carry(
    stored: dict[str, Any], how: dict[str, Any], program: Sequence[str] | None, cores: int
) -> tuple[str, str, str]:
    """A task: carry one run to its end on this node.

    Args:
        stored: the run, as `RunSpec.to_json` gives it.
        how: its processes are started.
        program: what they are, None for this node's interpreter.
        cores: that the task has been given.

    Returns:
        The stage at the end, why it failed, and the node's id.
    """
    # Ray cancels a task by an interrupt, which a cluster started in the background ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    spec = RunSpec.from_json(stored)
    node = _ray().get_runtime_context().get_node_id()
    made = How(**how) if program is None else How(**how, program=tuple(program))
    threads = cores if spec.processes == 1 else 1
    carrier = Carrier(spec, made, _silent, place=f"node {node}, task of process {os.getpid()}")
    try:
        while not carrier.stage.ended:
            if carrier.stage is Stage.WAITING:
                carrier.start(cores, threads)
            carrier.tend()
            time.sleep(_GLANCE_SECONDS / 5)
    except (KeyboardInterrupt, SystemExit):  # the sweep is stopped: a checkpoint is worth waiting
        carrier.stop()
        while not carrier.stage.ended:
            carrier.tend()
            time.sleep(_GLANCE_SECONDS / 5)
        raise
    return carrier.stage.value, carrier.reason, str(node)


def _silent(_spec: RunSpec, _message: str) -> None:
    """The log has the words of the run, and the driver those of the sweep."""


def _absolute(spec: RunSpec) -> RunSpec:
    """Workers of Ray have working directories of their own."""
    return RunSpec.from_json(spec.to_json() | {"out": str(Path(spec.out).absolute())})


def _knock_at(address: str | None) -> None:
    """Find out at once that nobody is there; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return  # "auto", or none: Ray knows where to look
    try:
        socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"expected a Ray cluster at {address}, got no answer ({error}); start one with "
            "`ray start --head`, or leave --address out"
        ) from error


def _ray() -> ModuleType:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(_INSTALL) from error
