"""The environments of a worker: roll-outs for its agent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisynet.agents import ActorCriticAgent, Rollout
from noisynet.config import ActorCriticConfig
from noisynet.envs import Environment, Step
from noisynet.loops.episodes import Episodes, FinishedEpisode
from noisynet.loops.shared_state import Slot


class RolloutCollector:
    """Plays roll-outs with an agent.

    Args:
        settings: configuration of the run.
        agent: chooses the actions.
        environment: environments of the worker.
        worker: number of the worker; its environments are numbered after those of lower workers.
        slot: receives a heartbeat at every step, and the number of every episode.
    """

    def __init__(
        self,
        settings: ActorCriticConfig,
        agent: ActorCriticAgent,
        environment: Environment,
        worker: int,
        slot: Slot,
    ) -> None:
        self.config, self.agent, self.environment, self.slot = settings, agent, environment, slot
        num_envs = environment.num_envs
        self.episodes = Episodes(
            environment, settings.seed, worker * num_envs, on_start=slot.begin_episode
        )
        length = settings.learning.rollout_steps
        self._buffers = _Buffers(length, self.episodes.observation, num_envs)

    def begin(self) -> None:
        """Start the first episodes.

        Their numbers follow those of all earlier processes of this worker, so that no seed is used
        twice. Numbers of an environment may have gaps.
        """
        self.episodes.start(range(self.environment.num_envs), self.slot.episode + 1)

    def collect(self, length: int) -> tuple[Rollout, list[FinishedEpisode]]:
        """Play `length` steps; with a single environment, at most to the end of its episode.

        The next roll-out overwrites the arrays.
        """
        buffers, finished = self._buffers, []
        buffers.truncated.fill(False)
        final: dict[int, NDArray[Any]] = {}
        t = 0
        while t < length:
            self._observe(t)
            actions = self.agent.act(buffers.observation[t], buffers.begins[t])
            step = self.environment.step(actions)
            self.slot.beat()
            buffers.store(t, actions, step, self.config)
            finished += self.episodes.record(actions, step)
            if step.truncated.any():
                final[t] = self.episodes.observation.copy()  # to bootstrap from
            t += 1
            over = step.terminated | step.truncated
            if over.any():
                self.episodes.start(np.flatnonzero(over).tolist())
                if self.environment.num_envs == 1:
                    break
        self._observe(t)
        return buffers.rollout(t, final), finished

    def _observe(self, t: int) -> None:
        self._buffers.observation[t] = self.episodes.observation
        self._buffers.begins[t] = [not episode.actions for episode in self.episodes.running]


class _Buffers:
    """The arrays of a roll-out, reused by every roll-out."""

    def __init__(self, length: int, observation: NDArray[Any], envs: int) -> None:
        self.observation = np.zeros((length + 1, *observation.shape), observation.dtype)
        self.begins = np.zeros((length + 1, envs), np.bool_)
        self.action = np.zeros((length, envs), np.int64)
        self.reward = np.zeros((length, envs), np.float32)
        self.discount = np.zeros((length, envs), np.float32)
        self.truncated = np.zeros((length, envs), np.bool_)

    def store(
        self, t: int, actions: NDArray[np.int64], step: Step, settings: ActorCriticConfig
    ) -> None:
        """Store step t; the discount is 0 at a termination and at a lost life."""
        learning = settings.learning
        self.action[t] = actions
        self.reward[t] = np.clip(step.reward, -1, 1) if learning.clip_rewards else step.reward
        self.discount[t] = np.where(step.terminated | step.life_lost, 0.0, learning.discount)
        self.truncated[t] = step.truncated

    def rollout(self, steps: int, final: dict[int, NDArray[Any]]) -> Rollout:
        """Return the first `steps` steps."""
        return Rollout(
            observation=self.observation[: steps + 1],
            action=self.action[:steps],
            reward=self.reward[:steps],
            discount=self.discount[:steps],
            begins=self.begins[: steps + 1],
            cut=self.truncated[:steps],
            final=final,
        )
