"""A value agent's training as a run sees it: replay files, snapshots and resumption."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from noisynet.agents import ValueAgent
from noisynet.config import Config
from noisynet.envs import Environment
from noisynet.layers import sigma_summary
from noisynet.loops.off_policy import OffPolicyLoop, Tick
from noisynet.loops.run_log import RunLog
from noisynet.replay import FrameStore
from noisynet.runs import RunDamaged, RunFolder
from noisynet.runs.files import storage_errors
from noisynet.state_dicts import add_prefix, strip_prefix

SCHEMA: Final = "value-agent/5"
"""Version of the tensors and the state in a checkpoint."""


class OffPolicyTrainer:
    """Trains a value agent with replay files in the run folder.

    Args:
        agent: the agent to train.
        environment: training environments.
        folder: the run folder.
        log: receives metrics.

    Attributes:
        loop: the training loop.
        store: storage of the replay.
    """

    deterministic: Final = True

    def __init__(
        self, agent: ValueAgent, environment: Environment, folder: RunFolder, log: RunLog
    ) -> None:
        self.agent, self.environment, self.folder, self.log = agent, environment, folder, log
        self.store = _make_store(agent.config, environment, folder.replay_path)
        self.loop = OffPolicyLoop(agent.config, agent, environment, self.store)
        self._checkpoint_rows = _rows_between_checkpoints(agent.config, environment)
        self._rows_at_checkpoint = self.store.written.copy()

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
        with storage_errors("sync the replay in", self.folder.replay_path):
            self.store.flush()
        tensors, state = snapshot_loop(self.loop)
        return tensors, {"loop": state}

    def restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Return to a snapshot.

        Raises:
            RunDamaged: the replay files are not those of the snapshot, or the environments do not
                show the stored frames.
        """
        with _replay_damage(self.folder.replay_path):
            restore_loop(self.loop, tensors, state["loop"])
        self.loop.episodes.restore(tensors, state["loop"]["episodes"])
        self._rows_at_checkpoint = self.store.written.copy()


def record_tick(tick: Tick, loop: OffPolicyLoop, log: RunLog) -> None:
    """Log the updates and the episodes of a tick, and a row of metrics if it is due."""
    for learnt in tick.learnt:
        log.add_update({"loss": learnt.loss})
    for episode in tick.finished:
        log.add_episode(episode, tick.steps)
    if log.row_is_due(tick.steps - loop.environment.num_envs, tick.steps):
        log.add_row(tick.steps, loop.agent.updates, sigma_summary(loop.agent.online))


def snapshot_loop(loop: OffPolicyLoop) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the state of a loop, without the frames that are in the replay files."""
    tensors = add_prefix("agent.", loop.agent.tensors()) | loop.episodes.tensors()
    replay = loop.replay.state()
    if "priorities" in replay:
        tensors["priorities"] = torch.from_numpy(replay.pop("priorities"))
    return tensors, {
        "steps": loop.steps,
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
    replay = dict(state["replay"])
    if "priorities" in tensors:
        replay["priorities"] = tensors["priorities"].numpy()
    loop.replay.restore(replay)
    loop.stream.bit_generator.state = state["stream"]
    loop.steps = state["steps"]


def _make_store(config: Config, environment: Environment, path: Path) -> FrameStore:
    """Open the replay files, large enough for what two checkpoints refer to."""
    spec, learning = environment.spec, config.learning
    with storage_errors("make the replay in", path), _replay_damage(path):
        return FrameStore(
            max(config.replay.capacity_steps, config.num_envs * (spec.stack + learning.n_step)),
            spec.frame_shape,
            frame_dtype=spec.frame_dtype,
            num_actions=spec.num_actions,
            num_envs=config.num_envs,
            stack=spec.stack,
            n_step=learning.n_step,
            slack_rows=2 * (_rows_between_checkpoints(config, environment) + 2),
            folder=path,
        )


@contextmanager
def _replay_damage(path: Path) -> Iterator[None]:
    """Turn a ValueError into RunDamaged: the files come from this run, so the settings fit."""
    try:
        yield
    except ValueError as error:
        raise RunDamaged(f"the replay in {path} cannot be used: {error}") from error


def _rows_between_checkpoints(config: Config, environment: Environment) -> int:
    """Rows of one environment. Not steps: an episode of T steps takes T + 1 rows."""
    steps = config.checkpoint_period_frames // environment.spec.frames_per_step
    return max(1, steps // config.num_envs)
