"""A run of any agent: status, evaluations, checkpoints, stop and resume."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from noisynet.agents import NonFiniteLoss
from noisynet.config import ActorCriticConfig, Config
from noisynet.envs import EnvironmentLike, EnvironmentSpec
from noisynet.evaluation import evaluation_modes
from noisynet.loops import async_actors, off_policy_trainer
from noisynet.loops.async_actors import WorkersFailed
from noisynet.loops.episodes import NotReproduced
from noisynet.loops.run_log import RunLog, evaluation_row
from noisynet.loops.watchdog import watch_steps
from noisynet.runs import (
    Checkpoint,
    RunDamaged,
    RunError,
    RunFolder,
    RunStatus,
    StorageError,
    load_newest,
    save_checkpoint,
    write_traces,
)
from noisynet.runs.checkpoint import mark_corrupt

Trainer: TypeAlias = off_policy_trainer.OffPolicyTrainer | async_actors.AsyncTrainer
"""What a run trains with: a loop in this process, or worker processes."""


@dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended.

    Attributes:
        finished: whether the budget is spent.
        frames: frames so far.
        score: score of the last evaluation, None before the first.
    """

    finished: bool
    frames: int
    score: float | None


class Run:
    """Trains in a run folder, and saves everything that resuming needs.

    Attributes:
        checkpointed_at: step of the newest checkpoint, −1 before the first.
        score: score of the last evaluation, None before the first.
    """

    def __init__(
        self,
        trainer: Trainer,
        config: Config | ActorCriticConfig,
        spec: EnvironmentSpec,
        folder: RunFolder,
        log: RunLog,
        stop: Callable[[], bool] = lambda: False,
        environment: EnvironmentLike | None = None,
    ) -> None:
        self.trainer, self.config, self.spec = trainer, config, spec
        self.folder, self.log, self.stop = folder, log, stop
        self.environment = environment
        self.checkpointed_at = -1
        self.score: float | None = None
        self._failed_checkpoints = 0
        self._files: dict[str, Any] = {}  # digests of the logs at the last checkpoint

    @property
    def steps(self) -> int:
        """Agent steps so far."""
        return self.trainer.steps

    @property
    def frames(self) -> int:
        """Frames so far."""
        return self.steps * self.spec.frames_per_step

    # --- training --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Train until the budget is spent or `stop` is true."""
        self._write_status("running")
        self.log.start(self.steps, self.config)
        try:
            with watch_steps(self.log.idle_seconds, self.log.message):
                finished = self._train()
        except Exception as error:
            with suppress(RunError):  # the error itself matters more than a full disk
                self._write_status("failed", reason=str(error)[:10_000])
            self.log.end(complete=False)
            raise
        self.log.end(complete=not self._evaluation_is_due()[1])
        self._write_status("finished" if finished else "interrupted")
        return Outcome(finished, self.frames, self.score)

    def _write_status(self, status: RunStatus, **more: Any) -> None:
        more |= {"frames": self.frames, "score": self.score, "files": self._files}
        self.folder.write_status(status, **more)

    def _train(self) -> bool:
        """Train; return whether the budget is spent."""
        finished = True
        try:
            if self.checkpointed_at < 0:
                self.checkpoint()
            self._evaluate_if_due()  # the run may have been killed before its last evaluation
            with closing(self.trainer.advance(self.stop)) as progress:
                for _ in progress:
                    self.log.progress(self.steps)
                    self._evaluate_if_due()
                    if self.trainer.checkpoint_is_due:
                        self.checkpoint()
                    if self.stop():
                        raise InterruptedError
        except InterruptedError:
            finished = False
        except WorkersFailed:
            self.checkpoint()
            raise
        while self.steps > self.checkpointed_at:  # a second failure in a row ends the run
            self.checkpoint()
        if finished:
            try:
                self.trainer.finish()
            except StorageError as error:
                self.log.message(str(error))
        return finished

    def _evaluate_if_due(self) -> None:
        """Play the evaluation protocol if its period has passed or the run ends, and save the run.

        An evaluation at the end of the budget, off the schedule, is no longer than the training.
        """
        protocol = self.config.evaluation
        scheduled, is_due = self._evaluation_is_due()
        if not is_due:
            return
        started, agent, rows = time.monotonic(), self.trainer.agent, []
        for noise, result in evaluation_modes(
            agent,
            self.frames,
            protocol.frames if scheduled else min(protocol.frames, self.frames),
            stop=self._poll_and_stop,
            environment=self.environment,
        ):
            self.folder.check_lock()
            _, sha256 = write_traces(
                self.folder.traces_path, self.frames, result.traces, noise=noise
            )
            rows.append(evaluation_row(self.frames, noise, result, sha256))
            if agent.noisy is None or noise == agent.noisy.evaluation:
                self.score = result.score
        # Only now: an interrupted evaluation leaves no row and is played again.
        self.log.add_evaluation(rows, time.monotonic() - started)
        self.checkpoint()  # so that a long evaluation is never repeated
        self.log.restart_clock(self.steps)

    def _evaluation_is_due(self) -> tuple[bool, bool]:
        """Whether the period of the evaluations has passed; whether to evaluate for any reason."""
        period, before = self.config.evaluation.period_frames, self.log.evaluated_at
        scheduled = self.frames // period > before // period
        return scheduled, scheduled or (self.trainer.is_finished and self.frames != before)

    def _poll_and_stop(self) -> bool:
        self.trainer.poll()
        self.log.progress(self.steps, evaluating=True)
        return self.stop()

    # --- checkpoints -----------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write a checkpoint; tolerate a single failure of the disk.

        Raises:
            NonFiniteLoss: a tensor is NaN or infinite.
            StorageError: two checkpoints in a row, or the first of the run, could not be written.
        """
        try:
            self._save()
        except StorageError as error:
            self._failed_checkpoints += 1
            # After a third failure the replay would no longer hold what the last one refers to.
            if self._failed_checkpoints > 1 or self.checkpointed_at < 0:
                raise
            self.log.message(f"{error}; the previous checkpoint is kept and training continues")
        else:
            self._failed_checkpoints = 0
            self.checkpointed_at = self.steps
            self.log.saved(self.steps)

    def _save(self) -> None:
        tensors, state = self.trainer.snapshot()
        for name, tensor in tensors.items():  # every checkpoint can be resumed from
            if not bool(tensor.isfinite().all()):
                raise NonFiniteLoss(
                    f"expected finite tensors after update {self.trainer.updates}, got NaN or "
                    f"infinite values: first in {name!r}"
                )
        state |= self.log.state() | {"score": self.score}
        self.folder.check_lock()
        save_checkpoint(
            self.folder.checkpoints_path,
            Checkpoint(self.steps, tensors, state),
            **checkpoint_identity(self.config, self.spec),
        )
        self._files = self.log.digests()
        self._write_status("running")

    def resume(self) -> None:
        """Restore the newest checkpoint that verifies, or start a new run.

        Where the replay or the metrics do not match it, the one before is tried.
        """
        checkpoint = self._load()
        if checkpoint is None:
            if self.log.metrics.offset():  # the first checkpoint comes before the first row
                raise RunDamaged(
                    f"{self.folder.path} has metrics but no checkpoints: restore them from a "
                    "backup, or move the run folder away to start again"
                )
            self.trainer.start()
            return
        try:
            self._restore(checkpoint)
        except NotReproduced:  # nor would it from the checkpoint before
            raise
        except RunDamaged as error:
            older = self._load(before=checkpoint.step)
            if older is None:
                raise
            self.log.message(f"{error}; trying the checkpoint before, of step {older.step}")
            self._restore(older)
            name = f"{checkpoint.step:012d}.safetensors"
            mark_corrupt(self.folder.checkpoints_path / name)  # the run writes these steps again
            self._files = self.log.digests()
            self._write_status("running")

    def _load(self, before: int | None = None) -> Checkpoint | None:
        checkpoint, skipped = load_newest(
            self.folder.checkpoints_path,
            **checkpoint_identity(self.config, self.spec),
            before=before,
        )
        for bad in skipped:
            self.log.message(
                f"checkpoint {bad.step} is damaged and was renamed to {bad.path.name}: {bad.reason}"
            )
        return checkpoint

    def _restore(self, checkpoint: Checkpoint) -> None:
        if checkpoint.step:
            how = (
                ""
                if self.trainer.deterministic
                else "; workers are asynchronous, so the result is not bit-identical to that of an "
                "uninterrupted run"
            )
            frames = checkpoint.step * self.spec.frames_per_step
            self.log.message(f"resuming from frame {frames:,}{how}")
        try:
            self.log.check(checkpoint.state)
            self.trainer.restore(checkpoint.tensors, checkpoint.state)
            self.log.restore(checkpoint.state)
            self.score = checkpoint.state["score"]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RunDamaged(
                f"the checkpoint of step {checkpoint.step} in {self.folder.checkpoints_path} "
                f"verifies but does not fit this run: {error!r}"
            ) from error
        self.checkpointed_at = checkpoint.step


def checkpoint_identity(
    config: Config | ActorCriticConfig, spec: EnvironmentSpec
) -> dict[str, Any]:
    """Return the schema and the identity that a checkpoint and a run must have in common."""
    identity = {
        "agent": config.agent,
        "environment": config.environment,
        "num_actions": spec.num_actions,
        "seed": config.seed,
    }
    if isinstance(config, Config):
        identity["num_envs"] = config.num_envs
        return {"schema": off_policy_trainer.SCHEMA, "identity": identity}
    identity |= {"workers": config.workers, "envs_per_worker": config.envs_per_worker}
    return {"schema": async_actors.SCHEMA, "identity": identity}
