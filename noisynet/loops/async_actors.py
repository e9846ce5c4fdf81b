"""The training of A3C as a run sees it: workers that learn, and stops at which they are saved."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from noisynet.agents import ActorCriticAgent, NonFiniteLoss
from noisynet.envs import EnvironmentLike, EnvironmentSpec, encode_function
from noisynet.layers import sigma_summary
from noisynet.loops.episodes import FinishedEpisode
from noisynet.loops.messages import RolloutReport, WorkerSetup, decode_snapshot, encode_snapshot
from noisynet.loops.run_log import RunLog
from noisynet.loops.shared_state import SharedState
from noisynet.loops.supervisor import PATIENCE_SECONDS, PROGRAM, Death, Supervisor, WorkerHandle
from noisynet.runs import RunError, RunFolder
from noisynet.runs.files import open_file
from noisynet.state_dicts import add_prefix, strip_prefix

SCHEMA: Final = "actor-critic/1"
"""Version of the tensors and the state in a checkpoint."""

MAX_DROPPED_IN_A_ROW: Final = 5
"""The run ends when so many consecutive updates of one worker are dropped."""

_HEALTH_SECONDS: Final = 0.5


class WorkersFailed(RunError):  # noqa: N818 - says what happened
    """A worker died too often in a row; the message says how."""


@dataclass
class Progress:
    """What a worker has reported so far; its slot may be slightly ahead."""

    steps: int = 0
    updates: int = 0
    dropped: int = 0
    dropped_in_a_row: int = 0


class AsyncTrainer:
    """Trains an actor-critic agent in worker processes that share their weights.

    Workers stop together at every step at which the run is saved or evaluated.

    Attributes:
        shared: weights, statistics and counters.
        handles: one per worker, with the snapshot that it starts from or has sent last.
        progress: one per worker.
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
        self.shared = SharedState.create(self.config.workers, agent.parameters.numel())
        self.shared.parameters[:] = agent.parameters.cpu().numpy()
        self.shared.squares[:] = self.config.optimiser.initial_square
        self.handles = [WorkerHandle(number) for number in range(self.config.workers)]
        self.progress = [Progress() for _ in self.handles]
        self.supervisor: Supervisor | None = None
        self.program = PROGRAM
        self._errors_path: Path = folder.path / "worker-errors.txt"
        self._logged_steps = 0
        self._steps_at_checkpoint = 0
        self._health_at = 0.0

    @property
    def is_finished(self) -> bool:
        """Whether the budget is spent."""
        return self.steps >= self.total_steps

    @property
    def disk_bytes(self) -> int:
        """Size of two checkpoints, of weights and statistics."""
        return 4 * self.shared.parameters.nbytes

    @property
    def deterministic(self) -> bool:
        """Whether a resumed run repeats an uninterrupted one bit for bit."""
        return self.config.workers == 1

    @property
    def steps(self) -> int:
        """Agent steps that the workers have reported."""
        return sum(progress.steps for progress in self.progress)

    @property
    def updates(self) -> int:
        """Updates that the workers have reported."""
        return sum(progress.updates for progress in self.progress)

    @property
    def counts(self) -> dict[str, int]:
        """Dropped updates and deaths of all workers, as in a row of metrics."""
        return {
            "dropped_updates": sum(progress.dropped for progress in self.progress),
            "worker_deaths": sum(handle.deaths for handle in self.handles),
        }

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

        Raises:
            WorkersFailed: a worker died too often; the others are stopped.
            NonFiniteLoss: too many consecutive updates of a worker were dropped.
        """
        if self.is_finished:
            return
        self.supervisor = Supervisor(
            self.shared,
            self.handles,
            self._make_setup,
            on_report=self._on_report,
            on_death=self._on_death,
            patience_seconds=self.patience_seconds,
            program=self.program,
        )
        try:
            with self.supervisor:
                while not self.is_finished:
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

    def start(self) -> None:
        """Do nothing: workers start when training does."""

    def finish(self) -> None:
        """Do nothing: there is no replay."""

    def close(self) -> None:
        """Release the shared memory."""
        self.shared.close()

    def _make_setup(self, handle: WorkerHandle) -> WorkerSetup:
        stored, size = self.config.model_dump(mode="json"), self.agent.parameters.numel()
        device = str(self.agent.device)
        return WorkerSetup(
            handle.number,
            handle.incarnation,
            stored,
            size,
            device,
            handle.snapshot,
            self._function,
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
            self.log.progress(self.steps)
        self._copy_weights()
        if (death := supervisor.failure) is not None:
            more = f"; see {self._errors_path}" if death.traceback else ""
            raise WorkersFailed(
                f"worker {death.worker} died {death.in_a_row} times in a row without an update in "
                f"between, last with {death.cause}{more}. The run is saved at frame "
                f"{self.steps * self.spec.frames_per_step:,}; fix the cause, then give the same "
                "command to resume"
            )

    def _copy_weights(self) -> None:
        self.agent.parameters.copy_(torch.from_numpy(self.shared.parameters))

    # --- events ----------------------------------------------------------------------------------

    def _on_report(self, worker: int, report: RolloutReport) -> None:
        """Count a roll-out and write the rows that are due."""
        progress = self.progress[worker]
        progress.steps, progress.updates = report.steps, report.updates
        progress.dropped = report.dropped
        progress.dropped_in_a_row += 1
        if report.not_finite is None:
            progress.dropped_in_a_row = 0
            self.log.add_update(report.measures)
        elif progress.dropped_in_a_row >= MAX_DROPPED_IN_A_ROW:
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
                self._copy_weights()
                sigma = sigma_summary(self.agent.online)
            self.log.add_row(self.steps, self.updates, sigma, self.counts)
        self._logged_steps = self.steps

    def _on_death(self, death: Death) -> None:
        """Count what the worker did not report, and log its death."""
        self._read_slot(death.worker)
        frames = self.steps * self.spec.frames_per_step
        self.log.metrics.append(
            {"kind": "death", "frames": frames, "worker": death.worker, "how": death.cause}
        )
        self.log.message(
            f"worker {death.worker} died ({death.cause}); {death.in_a_row} in a row without an "
            "update in between"
        )
        if death.traceback:
            text = f"worker {death.worker}, frame {frames}:\n{death.traceback}\n"
            with suppress(OSError, RunError):
                descriptor = open_file(self._errors_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
                    file.write(text)

    def _read_slot(self, worker: int) -> None:
        """Take the progress of a worker that is not running from its slot."""
        progress, slot = self.progress[worker], self.shared.slots[worker]
        progress.steps, progress.updates = slot.steps, slot.updates
        progress.dropped = slot.dropped

    # --- state, while no worker runs -------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the tensors and the JSON-able state that resuming needs."""
        self._steps_at_checkpoint = self.steps
        self._copy_weights()
        tensors = add_prefix("agent.", self.agent.weights())
        tensors["squares"] = torch.from_numpy(self.shared.squares)
        workers = []
        for handle, progress in zip(self.handles, self.progress, strict=True):
            own = None
            if handle.snapshot is not None:
                named, own = decode_snapshot(handle.snapshot)
                tensors |= add_prefix(f"worker.{handle.number}.", named)
            workers.append(
                {
                    "counters": self.shared.slots[handle.number].state(),
                    "dropped_in_a_row": progress.dropped_in_a_row,
                    "incarnation": handle.incarnation,
                    "deaths": handle.deaths,
                    "state": own,
                }
            )
        return tensors, {"workers": workers}

    def restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Return to a snapshot, before any worker starts."""
        self.load_weights(tensors, "agent.")
        self.shared.squares[:] = tensors["squares"].numpy()
        for handle, stored in zip(self.handles, state["workers"], strict=True):
            self.shared.slots[handle.number].restore(stored["counters"])
            self._read_slot(handle.number)
            self.progress[handle.number].dropped_in_a_row = stored["dropped_in_a_row"]
            handle.incarnation, handle.deaths = stored["incarnation"], stored["deaths"]
            if stored["state"] is not None:
                own = strip_prefix(f"worker.{handle.number}.", tensors)
                handle.snapshot = encode_snapshot(own, stored["state"])
        self._steps_at_checkpoint = self._logged_steps = self.steps

    def load_weights(self, tensors: dict[str, torch.Tensor], prefix: str = "") -> None:
        """Load weights that the workers begin with; the names begin with `prefix`."""
        self.agent.load_weights(tensors, prefix)
        self.shared.parameters[:] = self.agent.parameters.cpu().numpy()
