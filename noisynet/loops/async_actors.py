"""A run of A3C from its folder: workers that learn at once, and stops at which it is saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch

from noisynet.agents import ActorCriticAgent, NonFiniteLoss
from noisynet.config import ActorCriticConfig
from noisynet.envs import EnvironmentSpec
from noisynet.evaluation import make_configured_environment
from noisynet.layers import sigma_summary
from noisynet.loops.crew import Crew
from noisynet.loops.handover import Job, Report
from noisynet.loops.journal import Journal, Observer
from noisynet.loops.off_policy import FinishedEpisode
from noisynet.loops.process import prepare_process
from noisynet.loops.supervisor import PATIENCE_SECONDS, PROGRAM, Death, Supervisor
from noisynet.loops.training import Outcome
from noisynet.runs import (
    Checkpoint,
    RunDamaged,
    RunError,
    RunFolder,
    RunState,
    StorageError,
    load_newest,
    save_checkpoint,
)

SCHEMA: Final = "actor-critic/1"
"""The version of what a checkpoint's tensors and state mean."""

DROPPED_IN_A_ROW: Final = 5
"""So many updates of one worker that had to be dropped one after the other end the run."""

_HEALTH_SECONDS: Final = 0.5


class WorkersFailed(RunError):  # noqa: N818 — says what happened
    """A worker could not be kept alive; the run is saved, and the message says how it died."""


def make_actor_training(
    config: ActorCriticConfig,
    folder: RunFolder,
    device: torch.device | str,
    observers: Sequence[Observer],
    stop: Callable[[], bool],
    patience_seconds: float = PATIENCE_SECONDS,
) -> ActorTraining:
    """Build a run's parts and take up its newest checkpoint; no worker is started yet.

    What a new run cannot be made of leaves no folder.
    """
    prepare_process()
    try:
        with make_configured_environment(config, 1) as environment:
            spec = environment.spec
        agent = ActorCriticAgent(config, spec, device)
        training = ActorTraining(config, folder, spec, agent, observers, stop, patience_seconds)
        try:
            training.resume()
        except BaseException:
            training.close()
            raise
    except BaseException:
        folder.remove_if_unused()
        raise
    return training


class ActorTraining:
    """The parts of a run, and what is done while its workers are stopped.

    Args:
        config: the run's configuration.
        folder: where everything is kept.
        spec: the environment's.
        agent: evaluates; its weights are brought up to date before.
        observers: are told how it goes.
        stop: asked several times a second; true checkpoints and returns.
        patience_seconds: how long a worker may be without a heartbeat.

    Attributes:
        supervisor: of the workers, while they are there.
        program: what the interpreter of a worker runs.
    """

    def __init__(
        self,
        config: ActorCriticConfig,
        folder: RunFolder,
        spec: EnvironmentSpec,
        agent: ActorCriticAgent,
        observers: Sequence[Observer],
        stop: Callable[[], bool],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.config, self.folder, self.spec, self.agent = config, folder, spec, agent
        self.stop, self.patience_seconds = stop, patience_seconds
        self.total_steps = -(-config.frames // spec.frames_per_step)
        self.crew = Crew(config.workers, agent.parameters)
        self.journal = Journal(agent, folder, spec.frames_per_step, observers)
        self.supervisor: Supervisor | None = None
        self.program = PROGRAM
        self.logged_steps = 0
        self.failed_checkpoints = 0
        self.checkpointed_at = -1
        self._told_at = 0.0

    def __enter__(self) -> ActorTraining:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the files and the memory."""
        self.journal.close()
        self.crew.close()

    @property
    def steps(self) -> int:
        """Agent steps of the run so far, as far as they were reported."""
        return self.crew.steps

    @property
    def frames(self) -> int:
        """Frames of the run so far."""
        return self.steps * self.spec.frames_per_step

    # --- run -------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Go on until the budget is spent or somebody says stop."""
        self.folder.write_status("running", frames=self.frames, score=self.journal.score)
        self.journal.begin(self.steps)
        try:
            interrupted = self._run()
        except Exception as error:
            with suppress(StorageError):  # on a full disk the error itself matters more
                self.folder.write_status("failed", frames=self.frames, reason=str(error))
            raise
        state: RunState = "interrupted" if interrupted else "finished"
        self.folder.write_status(state, frames=self.frames, score=self.journal.score)
        return Outcome(not interrupted, self.frames, self.journal.score)

    def _run(self) -> bool:
        interrupted = False
        try:
            if self.checkpointed_at < 0:
                self.checkpoint()
            self._evaluate_if_due()  # a run may have been killed between a stop and its evaluation
            if self.steps < self.total_steps:
                with self._supervised():
                    self._train()
        except InterruptedError:
            interrupted = True
        while self.steps > self.checkpointed_at:  # a second refusal ends the run as failed
            self.checkpoint()
        return interrupted

    def _supervised(self) -> Supervisor:
        stored, size = self.config.model_dump(mode="json"), self.agent.parameters.numel()
        device = str(self.agent.device)
        self.supervisor = Supervisor(
            self.crew.shared,
            self.crew.members,
            lambda member: Job(
                member.number, member.incarnation, stored, size, device, member.state
            ),
            reported=self._note,
            died=self._mourn,
            patience_seconds=self.patience_seconds,
            program=self.program,
        )
        return self.supervisor

    def _train(self) -> None:
        assert self.supervisor is not None
        while self.steps < self.total_steps:
            self.supervisor.release(self._next_stop())
            self._until_stopped(self.supervisor)
            if self.journal.evaluation_is_due(self.steps):
                self._evaluate_if_due()
            elif self.steps // self._period > self.checkpointed_at // self._period:
                self.checkpoint()

    @property
    def _period(self) -> int:
        """Steps from checkpoint to checkpoint."""
        return max(1, self.config.checkpoint_period_frames // self.spec.frames_per_step)

    def _next_stop(self) -> int:
        """The step at which something is to be done: a function of the steps so far alone."""
        frames, period = self.spec.frames_per_step, self.config.evaluation.period_frames
        evaluation = -(-(self.frames // period + 1) * period // frames)
        checkpoint = (self.steps // self._period + 1) * self._period
        return min(evaluation, checkpoint, self.total_steps)

    def _until_stopped(self, supervisor: Supervisor) -> None:
        while not supervisor.all_stopped:
            supervisor.tend()
            if self.stop() or supervisor.failure:
                supervisor.call_in()
            self._tell_of_workers(supervisor)
        if supervisor.failure:
            self._give_up(supervisor.failure)
        if self.stop():
            raise InterruptedError

    def _evaluate_if_due(self) -> None:
        if self.journal.evaluation_is_due(self.steps):
            self.crew.copy_weights_to(self.agent.parameters)
            self.journal.evaluate(self.steps, self._stop_while_evaluating)
            self.checkpoint()  # so that a long evaluation is never played twice
            self.journal.restart_clock(self.steps)

    def _stop_while_evaluating(self) -> bool:
        """Whether to stop; and a worker that dies meanwhile is found, too."""
        if self.supervisor is not None and time.monotonic() - self._told_at > _HEALTH_SECONDS:
            self.supervisor.tend(0.0)
            self._tell_of_workers(self.supervisor)
        return self.stop()

    # --- what the workers tell -------------------------------------------------------------------

    def _note(self, worker: int, report: Report) -> None:
        """Keep what a roll-out brought, and write the rows that are due."""
        self.crew.take(worker, report)
        if report.not_finite is None:
            self.journal.learnt(report.measures)
        elif self.crew.reported[worker].dropped_in_a_row >= DROPPED_IN_A_ROW:
            raise NonFiniteLoss(
                f"expected a finite gradient, got {DROPPED_IN_A_ROW} in a row of worker {worker} "
                f"with NaN or infinite values: first in {report.not_finite}; those updates were "
                f"dropped, and the last checkpoint, at frame "
                f"{self.checkpointed_at * self.spec.frames_per_step:,}, is kept"
            )
        steps = self.steps
        for episode in report.finished:
            self.journal.finished(FinishedEpisode(*episode), steps)
        period = self.config.log_period_steps
        if steps // period > self.logged_steps // period:
            sigma = report.sigma
            if sigma is None:  # another worker's roll-out was counted in between
                self.crew.copy_weights_to(self.agent.parameters)
                sigma = sigma_summary(self.agent.online)
            counts = {"dropped_updates": self.crew.dropped, "worker_deaths": self.crew.deaths}
            self.journal.log(steps, self.crew.updates, sigma, counts)
        self.logged_steps = steps

    def _mourn(self, death: Death) -> None:
        """A worker died: what it did and did not come to report is counted, and people are told."""
        self.crew.settle(death.worker)
        self.journal.metrics.append(
            {"kind": "death", "frames": self.frames, "worker": death.worker, "how": death.how}
        )
        self.journal.say(
            f"worker {death.worker} died ({death.how}): death {death.in_a_row} in a row without an "
            "update in between"
        )
        if death.traceback:
            with suppress(OSError), self._errors_path.open("a", encoding="utf-8") as file:
                file.write(f"worker {death.worker}, frame {self.frames}:\n{death.traceback}\n")

    @property
    def _errors_path(self) -> Path:
        return self.folder.path / "worker-errors.txt"

    def _give_up(self, death: Death) -> None:
        self.checkpoint()
        more = f"; see {self._errors_path}" if death.traceback else ""
        raise WorkersFailed(
            f"worker {death.worker} died {death.in_a_row} times in a row without an update in "
            f"between, at last so: {death.how}{more}. The run is saved at frame {self.frames:,}; "
            "put this right, and the same command continues it"
        )

    def _tell_of_workers(self, supervisor: Supervisor) -> None:
        now = time.monotonic()
        if now - self._told_at > _HEALTH_SECONDS:
            self._told_at = now
            self.journal.watched(supervisor.health())

    # --- checkpoints -----------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write everything that continuing needs; one refusal of the disk is borne."""
        try:
            self._save()
        except StorageError as error:
            self.failed_checkpoints += 1
            if self.failed_checkpoints > 1 or self.checkpointed_at < 0:
                raise
            self.journal.say(f"{error}; the checkpoint before is kept, and training goes on")
        else:
            self.failed_checkpoints = 0
            self.checkpointed_at = self.steps

    def _save(self) -> None:
        self.crew.copy_weights_to(self.agent.parameters)
        tensors = {f"agent.{name}": value for name, value in self.agent.weights().items()}
        tensors |= self.crew.tensors()
        for name, tensor in tensors.items():  # a checkpoint is always one to go on from
            if not bool(tensor.isfinite().all()):
                raise NonFiniteLoss(
                    f"expected finite tensors after update {self.crew.updates}, got NaN or "
                    f"infinite values: first in {name!r}"
                )
        save_checkpoint(
            self.folder.checkpoints_path,
            Checkpoint(self.steps, tensors, {"workers": self.crew.state(), **self.journal.state()}),
            schema=SCHEMA,
            identity=identity(self.config, self.spec),
        )
        self.folder.write_status("running", frames=self.frames, score=self.journal.score)

    def resume(self) -> None:
        """Take up the newest checkpoint that verifies, if there is one."""
        checkpoint, skipped = load_newest(
            self.folder.checkpoints_path, schema=SCHEMA, identity=identity(self.config, self.spec)
        )
        for bad in skipped:
            self.journal.say(f"checkpoint {bad.step} is set aside as {bad.path.name}: {bad.reason}")
        if checkpoint is None:
            if self.journal.metrics.offset():  # the first checkpoint comes before the first row
                raise RunDamaged(
                    f"{self.folder.path} has metrics but no checkpoints: expected those it was "
                    "written with; bring them back, or move the run folder away to start afresh"
                )
            return
        self.agent.load_weights(checkpoint.tensors, "agent.")
        workers = checkpoint.state["workers"]
        self.crew.restore(self.agent.parameters, checkpoint.tensors, workers)
        self.journal.restore(checkpoint.state)
        self.checkpointed_at = self.logged_steps = checkpoint.step
        if checkpoint.step:
            self.journal.say(f"continuing from frame {self.frames:,}{self._how_exactly()}")

    def _how_exactly(self) -> str:
        if self.config.workers == 1:
            return ""
        return (
            f" with weights, statistics, counters and streams of {self.config.workers} workers, "
            "which are asynchronous: this is not bit for bit what an uninterrupted run does"
        )


def identity(config: ActorCriticConfig, spec: EnvironmentSpec) -> dict[str, Any]:
    """What a checkpoint and a run must have in common."""
    return {
        "agent": config.agent,
        "environment": config.environment,
        "num_actions": spec.num_actions,
        "workers": config.workers,
        "envs_per_worker": config.envs_per_worker,
        "seed": config.seed,
    }
