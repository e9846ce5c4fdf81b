"""The training loop of the value agents (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisynet import config
from noisynet.agents import Learnt, ValueAgent, numpy_stream
from noisynet.envs import Environment, Step
from noisynet.loops.episodes import Episodes, FinishedEpisode
from noisynet.replay import FrameStore, PrioritisedReplay, TransitionBatch, UniformReplay


@dataclass(frozen=True)
class Tick:
    """One step of all environments."""

    steps: int
    finished: list[FinishedEpisode]
    learnt: list[Learnt]


class OffPolicyLoop:
    """Acts, stores and learns; iterate over `run()`, and leave it after any tick.

    Attributes:
        steps: agent steps so far.
        total_steps: agent steps of the budget.
        starts_steps: updates begin after this step; later than configured while a replay refills.
    """

    def __init__(
        self,
        settings: config.Config,
        agent: ValueAgent,
        environment: Environment,
        store: FrameStore,
    ) -> None:
        self.config, self.agent, self.environment, self.store = settings, agent, environment, store
        self.replay: UniformReplay | PrioritisedReplay = UniformReplay(store)
        if isinstance(settings.replay, config.PrioritisedReplay):
            self.replay = PrioritisedReplay(store, alpha=settings.replay.alpha)
        self.stream = numpy_stream(settings.seed, "replay")
        self.episodes = Episodes(environment, settings.seed)
        self.steps, self.starts_steps = 0, settings.learning.starts_steps
        self.total_steps = -(-settings.frames // environment.spec.frames_per_step)

    def run(self) -> Generator[Tick, None, None]:
        """Train until the budget is spent, one tick at a time."""
        num_envs = self.environment.num_envs
        if not self.episodes.running:
            self._start_episodes(range(num_envs))
        while self.steps < self.total_steps:
            # ξ ~ ε, a ← argmax_b Q(x, b, ξ; ζ)
            actions = self.agent.act(self.episodes.observation, self.steps)
            self.environment.send(actions)  # the emulator runs while the agent learns
            learnt = self._learn()
            step = self.environment.recv()  # y ~ P(·|x, a), r = R(x, a)
            finished = self._store(actions, step)
            self.steps += num_envs
            yield Tick(self.steps, finished, learnt)

    def _learn(self) -> list[Learnt]:
        """Make the updates and target copies that are due in this tick."""
        learning, learnt = self.config.learning, []
        for step in range(self.steps + 1, self.steps + self.environment.num_envs + 1):
            if step <= self.starts_steps:
                continue
            if step % learning.update_period_steps == 0:
                batch = self._sample()
                learnt.append(self.agent.learn(batch))  # Eq. 14, or Eqs. 15 and 16 with double Q
                if isinstance(self.replay, PrioritisedReplay):
                    self.replay.update_priorities(batch.index, learnt[-1].error)
            if step % learning.sync_target_steps == 0:
                self.agent.sync_target()  # ζ⁻ ← ζ
        return learnt

    def _sample(self) -> TransitionBatch:
        """Sample a mini-batch (x, a, r, y) ~ D."""
        size, settings = self.config.learning.batch_size, self.config.replay
        if isinstance(self.replay, UniformReplay):
            return self.replay.sample(size, self.stream)
        assert isinstance(settings, config.PrioritisedReplay)
        progress = min(1.0, self.steps / self.total_steps)
        beta = settings.beta_initial + (1 - settings.beta_initial) * progress
        return self.replay.sample(size, self.stream, beta=beta)

    def _store(self, actions: NDArray[np.int64], step: Step) -> list[FinishedEpisode]:
        """Add the transitions (x, a, r, y) to the replay and start the episodes that are next."""
        learning = self.config.learning
        rewards = np.clip(step.reward, -1, 1) if learning.clip_rewards else step.reward
        # A lost life ends the return but not the episode; a time limit ends the episode only.
        ends = step.terminated | step.life_lost
        over = step.terminated | step.truncated
        for env, action in enumerate(actions.tolist()):
            discount = 0.0 if ends[env] else learning.discount
            reward, frame = float(rewards[env]), step.frame[env]
            self.store.append(env, action, reward, discount, frame, bool(over[env]))
        finished = self.episodes.record(actions, step)
        if over.any():
            self._start_episodes(np.flatnonzero(over).tolist())
        return finished

    def _start_episodes(self, envs: Sequence[int]) -> None:
        frames = self.episodes.start(envs)
        for env in envs:
            self.store.begin(env, frames[env])
            self.agent.begin_episode()
