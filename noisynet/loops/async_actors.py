"""The training of A3C as a run sees it: workers that learn, and stops at which they are saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch

from noisynet.agents import ActorCriticAgent, NonFiniteLoss
from noisynet.envs import EnvironmentLike, EnvironmentSpec, encode_function
from noisynet.layers import sigma_summary
from noisynet.loops.episodes import FinishedEpisode
from noisynet.loops.messages import RolloutReport, WorkerSetup
from noisynet.loops.run_log import RunLog
from noisynet.loops.supervisor import PATIENCE_SECONDS, PROGRAM, Death, Supervisor
from noisynet.loops.worker_pool import WorkerPool
from noisynet.runs import RunError, RunFolder
from noisynet.state_dicts import add_prefix

SCHEMA: Final = "actor-critic/1"
"""Version of the tensors and the state in a checkpoint."""

MAX_DROPPED_IN_A_ROW: Final = 5
"""The run ends when so many consecutive updates of one worker are dropped."""

_HEALTH_SECONDS: Final = 0.5


class WorkersFailed(RunError):  # noqa: N818 - says what happened
    """A worker died too often in a row; the message says how."""


class AsyncTrainer:
    """Trains an actor-critic agent in worker processes that share their weights.

    Workers stop together at every step at which the run is saved or evaluated.

    Args:
        agent: receives the shared weights at every stop.
        spec: specification of the environment.
        folder: the run folder.
        log: receives metrics.
        patience_seconds: longest time between two heartbeats of a worker.
        environment: a function that makes the environment; None for the configured name.

    Attributes:
        pool: the workers and what they share.
        supervisor: starts and watches the workers; None while there are none.
        program: what the interpreter of a worker runs.
    """

    def __init__(
        self,
        agent: ActorCriticAgent,
        spec: EnvironmentSpec,
        folder: RunFolder,
        log: RunLog,
        patience_seconds: float = PATIENCE_SECONDS,
        environment: EnvironmentLike | None = None,
    ) -> None:
        self.agent, self.spec, self.log, self.config = agent, spec, log, agent.config
        self.patience_seconds = patience_seconds
        self._function = None if environment is None else encode_function(environment)
        self.total_steps = -(-self.config.frames // spec.frames_per_step)
        self.pool = WorkerPool(self.config.workers, agent.parameters)
        self.supervisor: Supervisor | None = None
        self.program = PROGRAM
        self._errors_path: Path = folder.path / "worker-errors.txt"
        self._logged_steps = 0
        self._steps_at_checkpoint = 0
        self._health_at = 0.0

    @property
    def deterministic(self) -> bool:
        """Whether a resumed run repeats an uninterrupted one bit for bit."""
        return self.config.workers == 1

    @property
    def steps(self) -> int:
        """Agent steps that the workers have reported."""
        return self.pool.steps

    @property
    def updates(self) -> int:
        """Updates that the workers have reported."""
        return self.pool.updates

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether a multiple of the checkpoint period was passed since the last snapshot."""
        period = self._checkpoint_period
        return self.steps // period > self._steps_at_checkpoint // period

    @property
    def _checkpoint_period(self) -> int:
        return max(1, self.config.checkpoint_period_frames // self.spec.frames_per_step)

    # --- training --------------------------------------------------------------------------------

    def advance(self, stop: Callable[[], bool]) -> Generator[None, None, None]:
        """Train, and yield at every stop; all workers are waiting then.

        Args:
            stop: asked several times a second; true stops the workers early.

        Raises:
            WorkersFailed: a worker died too often; the others are stopped.
            NonFiniteLoss: too many consecutive updates of a worker were dropped.
        """
        if self.steps >= self.total_steps:
            return
        self.supervisor = self._supervise()
        try:
            with self.supervisor:
                while self.steps < self.total_steps:
                    self.supervisor.release(self._next_stop())
                    self._wait_until_stopped(self.supervisor, stop)
                    yield
        finally:
            self.supervisor = None

    def poll(self) -> None:
        """Watch the workers and log their health, about twice a second."""
        now = time.monotonic()
        if self.supervisor is not None and now - self._health_at > _HEALTH_SECONDS:
            self._health_at = now
            self.supervisor.poll(0.0)
            self.log.workers(self.supervisor.health())

    def close(self) -> None:
        """Release the shared memory."""
        self.pool.close()

    def _supervise(self) -> Supervisor:
        stored, size = self.config.model_dump(mode="json"), self.agent.parameters.numel()
        device = str(self.agent.device)
        return Supervisor(
            self.pool.shared,
            self.pool.handles,
            lambda handle: WorkerSetup(
                handle.number,
                handle.incarnation,
                stored,
                size,
                device,
                handle.snapshot,
                self._function,
            ),
            on_report=self._on_report,
            on_death=self._on_death,
            patience_seconds=self.patience_seconds,
            program=self.program,
        )

    def _next_stop(self) -> int:
        """The next step with a checkpoint, an evaluation or the end; a function of `steps` only."""
        frames, period = self.spec.frames_per_step, self.config.evaluation.period_frames
        evaluation = -(-(self.steps * frames // period + 1) * period // frames)
        checkpoint = (self.steps // self._checkpoint_period + 1) * self._checkpoint_period
        return min(evaluation, checkpoint, self.total_steps)

    def _wait_until_stopped(self, supervisor: Supervisor, stop: Callable[[], bool]) -> None:
        while not supervisor.all_stopped:
            supervisor.poll()
            if stop() or supervisor.failure:
                supervisor.request_stop()
            self.poll()
        self.pool.copy_weights_to(self.agent.parameters)
        if (death := supervisor.failure) is not None:
            more = f"; see {self._errors_path}" if death.traceback else ""
            raise WorkersFailed(
                f"worker {death.worker} died {death.in_a_row} times in a row without an update in "
                f"between, last with {death.cause}{more}. The run is saved at frame "
                f"{self.steps * self.spec.frames_per_step:,}; fix the cause, then give the same "
                "command to resume"
            )

    # --- events ----------------------------------------------------------------------------------

    def _on_report(self, worker: int, report: RolloutReport) -> None:
        """Count a roll-out and write the rows that are due."""
        self.pool.record(worker, report)
        if report.not_finite is None:
            self.log.add_update(report.measures)
        elif self.pool.progress[worker].dropped_in_a_row >= MAX_DROPPED_IN_A_ROW:
            raise NonFiniteLoss(
                f"expected a finite gradient, got {MAX_DROPPED_IN_A_ROW} consecutive gradients of "
                f"worker {worker} with NaN or infinite values, first in {report.not_finite}; those "
                "updates were dropped, and the last checkpoint is kept"
            )
        for episode in report.finished:
            self.log.add_episode(FinishedEpisode(*episode), self.steps)
        if self.log.row_is_due(self._logged_steps, self.steps):
            sigma = report.sigma
            if sigma is None:  # another worker's roll-out was counted in between
                self.pool.copy_weights_to(self.agent.parameters)
                sigma = sigma_summary(self.agent.online)
            counts = {"dropped_updates": self.pool.dropped, "worker_deaths": self.pool.deaths}
            self.log.add_row(self.steps, self.updates, sigma, counts)
        self._logged_steps = self.steps

    def _on_death(self, death: Death) -> None:
        """Count what the worker did not report, and log its death."""
        self.pool.record_slot(death.worker)
        frames = self.steps * self.spec.frames_per_step
        self.log.metrics.append(
            {"kind": "death", "frames": frames, "worker": death.worker, "how": death.cause}
        )
        self.log.message(
            f"worker {death.worker} died ({death.cause}); {death.in_a_row} in a row without an "
            "update in between"
        )
        if death.traceback:
            with suppress(OSError), self._errors_path.open("a", encoding="utf-8") as file:
                file.write(f"worker {death.worker}, frame {frames}:\n{death.traceback}\n")

    # --- state -----------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the tensors and the JSON-able state that resuming needs; workers are stopped."""
        self._steps_at_checkpoint = self.steps
        self.pool.copy_weights_to(self.agent.parameters)
        tensors = add_prefix("agent.", self.agent.weights()) | self.pool.tensors()
        return tensors, {"workers": self.pool.state()}

    def restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Return to a snapshot; no worker runs yet."""
        self.agent.load_weights(tensors, "agent.")
        self.pool.restore(self.agent.parameters, tensors, state["workers"])
        self._steps_at_checkpoint = self._logged_steps = self.steps
