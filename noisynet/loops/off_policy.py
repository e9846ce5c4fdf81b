"""Acting, storing and learning, one tick at a time (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from noisynet.agents import Learnt, ValueAgent, numpy_stream
from noisynet.config import Config
from noisynet.config import PrioritisedReplay as PrioritisedSettings
from noisynet.envs import Environment, Step, episode_seed
from noisynet.evaluation import Stacks
from noisynet.loops.replaying import RunningEpisode, play_again
from noisynet.replay import FrameStore, PrioritisedReplay, TransitionBatch, UniformReplay
from noisynet.runs import RunDamaged


@dataclass(frozen=True)
class FinishedEpisode:
    """An episode that ended in this tick.

    Attributes:
        env: in which environment.
        number: its how-manieth.
        score: the undiscounted, unclipped return.
        steps: its length.
    """

    env: int
    number: int
    score: float
    steps: int


@dataclass(frozen=True)
class Tick:
    """What happened while every environment made one step.

    Attributes:
        steps: agent steps of the run so far.
        finished: episodes that ended.
        learnt: the updates that were made.
    """

    steps: int
    finished: list[FinishedEpisode]
    learnt: list[Learnt]


class OffPolicyLoop:
    """The value agents' training loop; iterate over `run()`, which can be left after any tick.

    Args:
        settings: the run's configuration.
        agent: acts and learns.
        environment: the training environments.
        store: keeps the frames.
    """

    def __init__(
        self, settings: Config, agent: ValueAgent, environment: Environment, store: FrameStore
    ) -> None:
        self.config, self.agent, self.environment, self.store = settings, agent, environment, store
        self.replay: UniformReplay | PrioritisedReplay = UniformReplay(store)
        if isinstance(settings.replay, PrioritisedSettings):
            self.replay = PrioritisedReplay(store, alpha=settings.replay.alpha)
        self.stream = numpy_stream(settings.seed, "replay")
        self.stacks = Stacks(environment)
        self.steps = 0
        self.total_steps = -(-settings.frames // environment.spec.frames_per_step)
        self.episodes: list[RunningEpisode] = []
        self.pending: TransitionBatch | None = None

    def run(self) -> Iterator[Tick]:
        """Yield a tick at a time until the budget is spent."""
        if not self.episodes:
            self._begin(range(self.environment.num_envs))
        while self.steps < self.total_steps:
            actions = self.agent.act(self.stacks.observation, self.steps)
            self.environment.send(actions)  # the emulator runs while the agent draws and learns
            learnt = self._learn()
            step = self.environment.recv()
            finished = self._store(actions, step)
            self.steps += self.environment.num_envs
            yield Tick(self.steps, finished, learnt)

    def _learn(self) -> list[Learnt]:
        """The updates and target copies that fall due with this tick's steps."""
        learning, learnt = self.config.learning, []
        for step in range(self.steps + 1, self.steps + self.environment.num_envs + 1):
            if step <= learning.starts_steps:
                continue
            due = step % learning.update_period_steps == 0
            if due:
                if self.pending is None:
                    self._begin_update()
                learnt.append(self._finish_update())
            if step % learning.sync_target_steps == 0:
                self.agent.sync_target()
        return learnt

    def _begin_update(self) -> None:
        size = self.config.learning.batch_size
        if isinstance(self.replay, UniformReplay):
            self.pending = self.replay.sample(size, self.stream)
        else:
            assert isinstance(self.config.replay, PrioritisedSettings)
            initial = self.config.replay.beta_initial
            beta = initial + (1 - initial) * min(1.0, self.steps / self.total_steps)
            self.pending = self.replay.sample(size, self.stream, beta=beta)

    def _finish_update(self) -> Learnt:
        assert self.pending is not None
        batch, self.pending = self.pending, None
        learnt = self.agent.learn(batch)
        if isinstance(self.replay, PrioritisedReplay):
            self.replay.update_priorities(batch.index, learnt.error)
        return learnt

    def _store(self, actions: NDArray[np.int64], step: Step) -> list[FinishedEpisode]:
        """Keep the transitions; discount 0 stands for termination and for a lost life."""
        learning, finished = self.config.learning, []
        rewards = np.clip(step.reward, -1, 1) if learning.clip_rewards else step.reward
        over = step.terminated | step.truncated
        for env, episode in enumerate(self.episodes):
            ends = bool(step.terminated[env] or step.life_lost[env])
            self.store.append(
                env,
                int(actions[env]),
                float(rewards[env]),
                0.0 if ends else learning.discount,
                step.frame[env],
                bool(over[env]),
            )
            episode.actions.append(int(actions[env]))
            episode.score += float(step.reward[env])
            if over[env]:
                length = len(episode.actions)
                finished.append(FinishedEpisode(env, episode.number, episode.score, length))
        self.stacks.push(step.frame)
        self._begin(np.flatnonzero(over).tolist())
        return finished

    def _begin(self, envs: Any) -> None:
        """Start the next episode of each of these environments, each by a seed of its own."""
        seeds: list[int | None] = [None] * self.environment.num_envs
        for env in envs:
            number = self.episodes[env].number + 1 if env < len(self.episodes) else 0
            seeds[env] = episode_seed(self.config.seed, "train", env, number)
            episode = RunningEpisode(number, seeds[env] or 0)
            self.episodes[env : env + 1] = [episode]
        if any(seed is not None for seed in seeds):
            frames = self.environment.start(seeds)
            for env in envs:
                self.store.begin(env, frames[env])
                self.stacks.begin(env, frames[env])
                self.agent.begin_episode()

    # --- state -----------------------------------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every array that continuing needs, but for the frames that lie in the replay's files."""
        named = {f"agent.{name}": value for name, value in self.agent.tensors().items()}
        for env, episode in enumerate(self.episodes):
            named[f"actions.{env}"] = torch.tensor(episode.actions, dtype=torch.int16)
        if self.pending is not None:
            for column in fields(self.pending):
                values = np.ascontiguousarray(getattr(self.pending, column.name))
                named[f"pending.{column.name}"] = torch.from_numpy(values)
        if isinstance(self.replay, PrioritisedReplay):
            named["priorities"] = torch.from_numpy(self.replay.state()["priorities"])
        return named

    def state(self) -> dict[str, Any]:
        """The rest of the state, JSON-able."""
        replay = self.replay.state()
        replay.pop("priorities", None)
        return {
            "steps": self.steps,
            "agent": self.agent.state(),
            "replay": replay,
            "stream": self.stream.bit_generator.state,
            "episodes": [
                {"number": episode.number, "seed": episode.seed, "score": episode.score}
                for episode in self.episodes
            ],
        }

    def restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Go on from a checkpoint; `play_again` must follow before the next step."""
        agent = {k.removeprefix("agent."): v for k, v in tensors.items() if k.startswith("agent.")}
        self.agent.restore(agent, state["agent"])
        replay = dict(state["replay"])
        if "priorities" in tensors:
            replay["priorities"] = tensors["priorities"].numpy()
        self.replay.restore(replay)
        self.stream.bit_generator.state = state["stream"]
        self.steps = state["steps"]
        self.episodes = [
            RunningEpisode(e["number"], e["seed"], tensors[f"actions.{env}"].tolist(), e["score"])
            for env, e in enumerate(state["episodes"])
        ]
        columns = {
            name.removeprefix("pending."): value.numpy()
            for name, value in tensors.items()
            if name.startswith("pending.")
        }
        if columns:  # an update was under way
            self.pending = TransitionBatch(**columns)

    def play_again(self) -> None:
        """Bring the environments to where a restored run stands: seeds and actions say where.

        Raises:
            RunDamaged: the frames are not those in the replay.
        """
        if not self.episodes:  # restored from before the first step
            return
        play_again(self.environment, self.stacks, self.episodes)
        self._check_replayed()

    def _check_replayed(self) -> None:
        for env, written in enumerate(self.store.written.tolist()):
            stored = self.store.stacks(np.array([env]), np.array([written - 1]))[0]
            if not np.array_equal(stored, self.stacks.observation[env]):
                raise RunDamaged(
                    f"environment {env} of {self.config.environment} did not play its episode "
                    "again as it was recorded: expected the same frames for the same seed and "
                    "actions; is it the same version of the environment?"
                )
