"""A value agent's training as a run sees it: replay files, snapshots and resumption."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from noisynet.agents import ValueAgent
from noisynet.agents.exploration import epsilon_at
from noisynet.config import Config, EpsilonGreedy
from noisynet.envs import Environment
from noisynet.layers import sigma_summary
from noisynet.loops.off_policy import OffPolicyLoop, Tick
from noisynet.loops.run_log import RunLog
from noisynet.replay import FrameStore, RowLayout, delete_columns
from noisynet.runs import RunDamaged, RunFolder
from noisynet.runs.files import storage_errors
from noisynet.state_dicts import add_prefix, strip_prefix

SCHEMA: Final = "value-agent/5"
"""Version of the tensors and the state in a checkpoint."""


class OffPolicyTrainer:
    """Trains a value agent with replay files in the run folder.

    Once the budget is spent the replay is no longer needed: checkpoints leave it out, and `finish`
    deletes its files. A run that is continued with a longer budget fills a new one.

    Attributes:
        loop: the training loop, made by `start` or `restore`.
    """

    deterministic: Final = True
    loop: OffPolicyLoop

    def __init__(
        self,
        agent: ValueAgent,
        environment: Environment,
        folder: RunFolder,
        log: RunLog,
        keep_replay: bool = False,
    ) -> None:
        self.agent, self.environment, self.folder, self.log = agent, environment, folder, log
        self.keep_replay, self._saved_replay = keep_replay, True
        self._checkpoint_rows = _rows_between_checkpoints(agent.config, environment)

    def start(self) -> None:
        """Make the loop of a new run."""
        self._make_loop(self.folder.replay_path)

    def _make_loop(self, replay: Path | None) -> None:
        store = _make_store(self.agent.config, self.environment, replay)
        self.loop = OffPolicyLoop(self.agent.config, self.agent, self.environment, store)
        self._rows_at_checkpoint = store.written.copy()

    @property
    def store(self) -> FrameStore:
        """The storage of the replay."""
        return self.loop.store

    @property
    def is_finished(self) -> bool:
        """Whether the budget is spent."""
        return self.loop.steps >= self.loop.total_steps

    @property
    def disk_bytes(self) -> int:
        """Size of the replay while the run trains, and of two checkpoints."""
        spec, config = self.environment.spec, self.agent.config
        row = RowLayout(spec.frame_shape, spec.frame_dtype, spec.num_actions).nbytes
        checkpoint = sum(tensor.nbytes for tensor in self.agent.tensors().values())
        return row * config.num_envs * _ring_rows(config, self.environment) + 2 * checkpoint

    @property
    def steps(self) -> int:
        """Agent steps so far."""
        return self.loop.steps

    @property
    def updates(self) -> int:
        """Updates so far."""
        return self.agent.updates

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether so many rows were written since the last snapshot that the next one is due."""
        written = self.store.written - self._rows_at_checkpoint
        return int(written.max()) >= self._checkpoint_rows

    def advance(self, stop: Callable[[], bool]) -> Generator[None, None, None]:  # noqa: ARG002
        """Train, and yield after every step of all environments."""
        for tick in self.loop.run():
            record_tick(tick, self.loop, self.log)
            yield

    def poll(self) -> None:
        """Do nothing: there are no workers."""

    def snapshot(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the tensors and the JSON-able state that resuming needs; sync the replay files."""
        self._rows_at_checkpoint = self.store.written.copy()
        tensors, state = snapshot_loop(self.loop)
        if self.is_finished and not self.keep_replay:
            tensors.pop("priorities", None)
            state["replay"] = None
        else:
            with storage_errors("sync the replay in", self.folder.replay_path):
                self.store.flush()
        self._saved_replay = state["replay"] is not None
        return tensors, {"loop": state}

    def restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Return to a snapshot.

        Raises:
            RunDamaged: the replay files are not those of the snapshot, or the environments do not
                show the stored frames.
        """
        state, path = state["loop"], self.folder.replay_path
        if not os.path.lexists(path):  # deleted when the run finished, or by the user
            state = state | {"replay": None}
        self._saved_replay = state["replay"] is not None
        if self._saved_replay:
            self._make_loop(path)
            with _replay_damage(path):
                restore_loop(self.loop, tensors, state)
            self.loop.episodes.restore(tensors, state["episodes"])
        else:
            self._make_loop(None)
            if state["steps"] < self.loop.total_steps:
                _delete(path)  # what a killed process may have left
                self._make_loop(path)
            restore_loop(self.loop, tensors, state)
            self.loop.episodes.restore(tensors, state["episodes"])
            if not self.is_finished:
                self._refill()
        self._rows_at_checkpoint = self.store.written.copy()

    def _refill(self) -> None:
        """Continue with an empty replay; updates wait as they do in a new run."""
        wait = self.agent.config.learning.starts_steps
        self.loop.starts_steps = self.steps + wait
        for env, episode in enumerate(self.loop.episodes.running):
            age = len(episode.actions)
            self.store.begin_within(env, self.loop.episodes.observation[env], age)
        self.log.message(
            f"the replay was deleted, as it is when a run finishes (no --keep-replay): it refills, "
            f"and learning continues after {wait:,} steps"
        )

    def finish(self) -> None:
        """Delete the replay of a finished run, unless the newest checkpoint refers to it."""
        if not self._saved_replay:
            _delete(self.folder.replay_path)


def record_tick(tick: Tick, loop: OffPolicyLoop, log: RunLog) -> None:
    """Log the updates and the episodes of a tick, and a row of metrics if it is due."""
    for learnt in tick.learnt:
        log.add_update(learnt.measures())
    for episode in tick.finished:
        log.add_episode(episode, tick.steps)
    if log.row_is_due(tick.steps - loop.environment.num_envs, tick.steps):
        exploration, more = loop.config.exploration, {}
        if isinstance(exploration, EpsilonGreedy):
            starts = loop.config.learning.starts_steps
            more["epsilon"] = epsilon_at(exploration, tick.steps, starts)
        log.add_row(tick.steps, loop.agent.updates, sigma_summary(loop.agent.online), more)


def snapshot_loop(loop: OffPolicyLoop) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the state of a loop, without the frames that are in the replay files."""
    tensors = add_prefix("agent.", loop.agent.tensors()) | loop.episodes.tensors()
    replay = loop.replay.state()
    if "priorities" in replay:
        tensors["priorities"] = torch.from_numpy(replay.pop("priorities"))
    return tensors, {
        "steps": loop.steps,
        "starts_steps": loop.starts_steps,
        "agent": loop.agent.state(),
        "replay": replay,
        "stream": loop.stream.bit_generator.state,
        "episodes": loop.episodes.state(),
    }


def restore_loop(
    loop: OffPolicyLoop, tensors: dict[str, torch.Tensor], state: dict[str, Any]
) -> None:
    """Load what `snapshot_loop` returned, except the running episodes."""
    loop.agent.restore(strip_prefix("agent.", tensors), state["agent"])
    if state["replay"] is not None:
        replay = dict(state["replay"])
        if "priorities" in tensors:
            replay["priorities"] = tensors["priorities"].numpy()
        loop.replay.restore(replay)
    loop.stream.bit_generator.state = state["stream"]
    loop.steps = state["steps"]
    loop.starts_steps = state.get("starts_steps", loop.starts_steps)


def _make_store(config: Config, environment: Environment, path: Path | None) -> FrameStore:
    """Open the replay files; without a path, the smallest store in memory, for a finished run."""
    spec, n_step = environment.spec, config.learning.n_step
    where = path or Path()
    with storage_errors("make the replay in", where), _replay_damage(where):
        return FrameStore(
            max(config.replay.capacity_steps, config.num_envs * (spec.stack + n_step)),
            spec.frame_shape,
            frame_dtype=spec.frame_dtype,
            num_actions=spec.num_actions,
            num_envs=config.num_envs,
            stack=spec.stack,
            n_step=n_step,
            slack_rows=_slack_rows(config, environment),
            most_rows=_ring_rows(config, environment) if path else 0,
            folder=path,
        )


def _ring_rows(config: Config, environment: Environment) -> int:
    """Rows of one environment: the window and its slack, or fewer if the budget has fewer.

    At worst every step is an episode, which takes two rows. A refilled replay begins with a stack.
    """
    spec, n_step = environment.spec, config.learning.n_step
    least = spec.stack + n_step
    window = max(config.replay.capacity_steps // config.num_envs, least)
    steps = -(-config.frames // (spec.frames_per_step * config.num_envs))
    return min(window + _slack_rows(config, environment) + least, 2 * steps + least)


def _slack_rows(config: Config, environment: Environment) -> int:
    return 2 * (_rows_between_checkpoints(config, environment) + 2)


def _delete(path: Path) -> None:
    if not os.path.lexists(path):
        return
    with storage_errors("delete the replay in", path):
        delete_columns(path)


@contextmanager
def _replay_damage(path: Path) -> Iterator[None]:
    """Turn a ValueError into RunDamaged: the files come from this run, so the settings fit."""
    try:
        yield
    except ValueError as error:
        raise RunDamaged(
            f"the replay in {path} cannot be used: {error}. Without a backup, delete this folder: "
            "the run continues with an empty replay, which refills"
        ) from error


def _rows_between_checkpoints(config: Config, environment: Environment) -> int:
    """Rows of one environment. Not steps: an episode of T steps takes T + 1 rows."""
    steps = config.checkpoint_period_frames // environment.spec.frames_per_step
    return max(1, steps // config.num_envs)
