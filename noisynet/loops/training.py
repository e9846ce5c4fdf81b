"""A run from its folder: start or continue, checkpoint, stop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from noisynet.agents import NonFiniteLoss, ValueAgent
from noisynet.config import Config
from noisynet.envs import Environment, EnvironmentSpec
from noisynet.evaluation import make_configured_environment
from noisynet.loops.journal import Journal, Observer
from noisynet.loops.off_policy import OffPolicyLoop
from noisynet.loops.process import prepare_process
from noisynet.replay import FrameStore
from noisynet.runs import (
    Checkpoint,
    RunDamaged,
    RunFolder,
    RunState,
    SegmentHashes,
    StorageError,
    load_newest,
    save_checkpoint,
)

SCHEMA: Final = "value-agent/3"
"""The version of what a checkpoint's tensors and state mean."""

# A segment of Atari frames is 29 MB: about 20 ms to hash, each once.
_SEGMENT_ROWS: Final = 4096


@dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended.

    Attributes:
        finished: whether the budget is spent.
        frames: frames so far.
        score: the last evaluation's score, None before the first.
    """

    finished: bool
    frames: int
    score: float | None


def train(
    config: Config,
    folder: RunFolder,
    *,
    device: torch.device | str = "cpu",
    observers: Sequence[Observer] = (),
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train to the end of the budget, from where the folder's newest checkpoint stands.

    The caller holds the folder's lock.

    Args:
        config: the run's configuration.
        folder: where everything is kept.
        device: where the networks live.
        observers: are told how it goes.
        stop: asked at every step; true checkpoints and returns.

    Raises:
        NonFiniteLoss: the loss became NaN or infinite; the last checkpoint is kept.
        ValueError: the environment gave a reward that is not finite; likewise.
        StorageError: the disk refused twice in a row to take a checkpoint, or a metric.
        RunDamaged: the folder's files are not what its checkpoints say.
    """
    with make_training(config, folder, device, observers, stop) as training:
        return training.run()


def make_training(
    config: Config,
    folder: RunFolder,
    device: torch.device | str,
    observers: Sequence[Observer],
    stop: Callable[[], bool],
) -> Training:
    """Build a run's parts and take up its newest checkpoint.

    What a new run cannot be made of, such as a disk without room for the replay, leaves no folder.
    """
    prepare_process()
    try:
        environment = make_configured_environment(config, config.num_envs)
        try:
            agent = ValueAgent(config, environment.spec, device)
            training = Training(config, folder, environment, agent, observers, stop)
            training.resume()
        except BaseException:
            environment.close()
            raise
    except BaseException:
        folder.remove_if_unused()
        raise
    return training


class Training:
    """The parts of a run, and what is done around its loop."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        environment: Environment,
        agent: ValueAgent,
        observers: Sequence[Observer],
        stop: Callable[[], bool],
    ) -> None:
        self.config, self.folder, self.environment, self.agent = config, folder, environment, agent
        self.stop = stop
        self.checkpoint_rows = _rows_between_checkpoints(config, environment)
        self.store = make_store(config, environment, folder)
        self.loop = OffPolicyLoop(config, agent, environment, self.store)
        self.hashes = [SegmentHashes(_SEGMENT_ROWS) for _ in range(config.num_envs)]
        self.journal = Journal(agent, folder, environment.spec.frames_per_step, observers)
        self.failed_checkpoints = 0
        self.checkpointed_at = -1
        self.rows_at_checkpoint = self.store.written.copy()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.environment.close()
        self.journal.close()

    @property
    def frames(self) -> int:
        """Frames of the run so far."""
        return self.loop.steps * self.environment.spec.frames_per_step

    def run(self) -> Outcome:
        """Go on until the budget is spent or somebody says stop."""
        self.folder.write_status("running", frames=self.frames, score=self.journal.score)
        self.journal.begin(self.loop.steps)
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
        try:
            if self.loop.steps == 0 and self.checkpointed_at < 0:
                self.checkpoint()
            self._evaluate_if_due()  # a run may have been killed between a step and its evaluation
            for tick in self.loop.run():
                self.journal.note(tick)
                self._evaluate_if_due()
                if (self.store.written - self.rows_at_checkpoint).max() >= self.checkpoint_rows:
                    self.checkpoint()
                if self.stop():
                    raise InterruptedError
        except InterruptedError:
            if self.loop.steps > self.checkpointed_at:
                self.checkpoint()
            return True
        if self.loop.steps > self.checkpointed_at:
            self.checkpoint()
        return False

    def _evaluate_if_due(self) -> None:
        if self.journal.evaluation_is_due(self.loop.steps):
            self.journal.evaluate(self.loop.steps, self.stop)
            self.checkpoint()  # so that a long evaluation is never played twice
            self.journal.restart_clock(self.loop.steps)

    # --- checkpoints -----------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write everything that continuing bit for bit needs; one refusal of the disk is borne."""
        self.rows_at_checkpoint = self.store.written.copy()
        try:
            self._save()
        except StorageError as error:
            self.failed_checkpoints += 1
            # A third would outlive what the replay still holds; before the first, nothing is kept.
            if self.failed_checkpoints > 1 or self.checkpointed_at < 0:
                raise
            self.journal.say(f"{error}; the checkpoint before is kept, and training goes on")
        else:
            self.failed_checkpoints = 0
            self.checkpointed_at = self.loop.steps

    def _save(self) -> None:
        tensors = self.loop.tensors()
        for name, tensor in tensors.items():  # a checkpoint is always one to go on from
            if not bool(tensor.isfinite().all()):
                raise NonFiniteLoss(
                    f"expected finite tensors after update {self.agent.updates}, got NaN or "
                    f"infinite values: first in {name!r}"
                )
        with _refusals("sync the replay in", self.folder.replay_path):
            self.store.flush()
        state = {
            "loop": self.loop.state(),
            **self.journal.state(),
            "replay_hashes": [
                self.hashes[env].state(*self._window(env), self._read_rows(env))
                for env in range(self.config.num_envs)
            ],
        }
        checkpoint = Checkpoint(self.loop.steps, tensors, state)
        save_checkpoint(
            self.folder.checkpoints_path,
            checkpoint,
            schema=SCHEMA,
            identity=identity(self.config, self.environment.spec),
        )
        self.folder.write_status("running", frames=self.frames, score=self.journal.score)

    def resume(self) -> None:
        """Take up the newest checkpoint that verifies, if there is one."""
        checkpoint, skipped = load_newest(
            self.folder.checkpoints_path,
            schema=SCHEMA,
            identity=identity(self.config, self.environment.spec),
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
        state = checkpoint.state
        with _damage(self.folder.replay_path):
            self.loop.restore(checkpoint.tensors, state["loop"])
        self._verify_replay(state["replay_hashes"])
        self.loop.play_again()
        self.journal.restore(state)
        self.checkpointed_at = checkpoint.step
        self.rows_at_checkpoint = self.store.written.copy()
        if checkpoint.step:
            self.journal.say(f"continuing from frame {self.frames:,}")

    def _verify_replay(self, states: list[dict[str, Any]]) -> None:
        for env, state in enumerate(states):
            wrong = self.hashes[env].verify(state, *self._window(env), self._read_rows(env))
            if wrong:
                raise RunDamaged(
                    f"the replay of environment {env} in {self.folder.replay_path} is not what the "
                    f"checkpoint says: {wrong[0]} Expected the files as they were written; restore "
                    "them, or start a new run under another --name."
                )
            self.hashes[env] = SegmentHashes.from_state(state)

    def _window(self, env: int) -> tuple[int, int]:
        settled = self.store.settled(env)
        return max(0, int(self.store.written[env]) - self.store.window_rows), settled

    def _read_rows(self, env: int) -> Callable[[int, int], list[memoryview]]:
        return lambda start, stop: self.store.rows(env, start, stop)


def identity(config: Config, spec: EnvironmentSpec) -> dict[str, Any]:
    """What a checkpoint and a run must have in common."""
    return {
        "agent": config.agent,
        "environment": config.environment,
        "num_actions": spec.num_actions,
        "num_envs": config.num_envs,
        "seed": config.seed,
    }


def make_store(config: Config, environment: Environment, folder: RunFolder) -> FrameStore:
    """The replay's files, with room for what two checkpoints refer to."""
    spec, learning = environment.spec, config.learning
    with _refusals("make the replay in", folder.replay_path), _damage(folder.replay_path):
        return FrameStore(
            max(config.replay.capacity_steps, config.num_envs * (spec.stack + learning.n_step)),
            spec.frame_shape,
            frame_dtype=spec.frame_dtype,
            num_actions=spec.num_actions,
            num_envs=config.num_envs,
            stack=spec.stack,
            n_step=learning.n_step,
            slack_rows=2 * (_rows_between_checkpoints(config, environment) + 2),
            folder=folder.replay_path,
        )


@contextmanager
def _refusals(doing: str, path: Path) -> Iterator[None]:
    """What the disk refuses, worded for the user; the replay's own words where it has some."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.strerror != os.strerror(error.errno):
            raise StorageError(f"cannot {doing} {path}: {error.strerror}") from error
        raise StorageError.from_os_error(doing, path, error) from error


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """The replay's files come from this run: what they do not fit is damage, not a bad setting."""
    try:
        yield
    except ValueError as error:
        raise RunDamaged(f"the replay in {path} cannot be used: {error}") from error


def _rows_between_checkpoints(config: Config, environment: Environment) -> int:
    """Of one environment. Rows, not steps: an episode of T steps takes T + 1 rows."""
    steps = config.checkpoint_period_frames // environment.spec.frames_per_step
    return max(1, steps // config.num_envs)
