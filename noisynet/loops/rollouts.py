"""A worker's environments: roll-outs for its agent, from wherever a checkpoint has left them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from noisynet.agents import ActorCriticAgent, Rollout
from noisynet.config import ActorCriticConfig
from noisynet.envs import Environment, Step, episode_seed
from noisynet.evaluation import Stacks
from noisynet.loops.off_policy import FinishedEpisode
from noisynet.loops.replaying import RunningEpisode, play_again
from noisynet.loops.shared_state import Slot
from noisynet.runs import RunDamaged


class Actor:
    """Plays with an agent and keeps what it needs to go on: episodes as seeds and actions.

    Args:
        settings: the run's configuration.
        agent: acts.
        environment: the worker's environments.
        worker: which worker this is; its environments are numbered after those of the workers
            before.
        slot: told of every step and of every episode.
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
        self.first_env = worker * environment.num_envs
        self.stacks = Stacks(environment)
        self.episodes: list[RunningEpisode] = []
        self._buffers = _Buffers(
            settings.learning.rollout_steps, self.stacks.observation, environment.num_envs
        )

    def begin(self) -> None:
        """Start the first episodes, after all that an earlier process of this worker has begun."""
        self._begin(range(self.environment.num_envs))

    def collect(self, length: int) -> tuple[Rollout, list[FinishedEpisode]]:
        """Play `length` steps, or with one environment to the end of its episode if that is sooner.

        The arrays are overwritten by the next roll-out.
        """
        buffers, finished = self._buffers, []
        buffers.cut.fill(False)
        final: dict[int, NDArray[Any]] = {}
        steps = 0
        while steps < length:
            self._observe(steps)
            actions = self.agent.act(buffers.observation[steps], buffers.begins[steps])
            step = self.environment.step(actions)
            self.slot.beat()
            buffers.take(steps, actions, step, self.config)
            self.stacks.push(step.frame)
            if step.truncated.any():
                final[steps] = self.stacks.observation.copy()
            over = step.terminated | step.truncated
            finished += self._count(actions, step, over)
            steps += 1
            if over.any():
                self._begin(np.flatnonzero(over).tolist())
                if self.environment.num_envs == 1:
                    break
        self._observe(steps)
        return buffers.rollout(steps, final), finished

    def _observe(self, place: int) -> None:
        self._buffers.observation[place] = self.stacks.observation
        self._buffers.begins[place] = [not episode.actions for episode in self.episodes]

    def _count(
        self, actions: NDArray[np.int64], step: Step, over: NDArray[np.bool_]
    ) -> list[FinishedEpisode]:
        finished = []
        for env, episode in enumerate(self.episodes):
            episode.actions.append(int(actions[env]))
            episode.score += float(step.reward[env])
            if over[env]:
                number, length = self.first_env + env, len(episode.actions)
                finished.append(FinishedEpisode(number, episode.number, episode.score, length))
        return finished

    def _begin(self, envs: Iterable[int]) -> None:
        """Start the next episode of each of these environments, each by a seed of its own."""
        seeds: list[int | None] = [None] * self.environment.num_envs
        begun = self.slot.episode  # an environment's numbers may have gaps, never the same twice
        for env in envs:
            number = self.episodes[env].number + 1 if env < len(self.episodes) else begun + 1
            self.slot.begin_episode(number)
            seeds[env] = episode_seed(self.config.seed, "train", self.first_env + env, number)
            self.episodes[env : env + 1] = [RunningEpisode(number, seeds[env] or 0)]
        frames = self.environment.start(seeds)
        for env, seed in enumerate(seeds):
            if seed is not None:
                self.stacks.begin(env, frames[env])

    # --- state -----------------------------------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """The actions of the running episodes."""
        return {
            f"actions.{env}": torch.tensor(episode.actions, dtype=torch.int16)
            for env, episode in enumerate(self.episodes)
        }

    def state(self) -> dict[str, Any]:
        """The rest of the state, JSON-able."""
        return {
            "episodes": [
                {"number": episode.number, "seed": episode.seed, "score": episode.score}
                for episode in self.episodes
            ],
            "observation": self._digest(),
        }

    def restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Go on from a checkpoint: the running episodes are played again.

        Raises:
            RunDamaged: the environments do not show what they showed then.
        """
        self.episodes = [
            RunningEpisode(e["number"], e["seed"], tensors[f"actions.{env}"].tolist(), e["score"])
            for env, e in enumerate(state["episodes"])
        ]
        play_again(self.environment, self.stacks, self.episodes, self.slot.beat)
        if self._digest() != state["observation"]:
            raise RunDamaged(
                f"environments {self.first_env} to {self.first_env + len(self.episodes) - 1} of "
                f"{self.config.environment} did not play their episodes again as they were "
                "recorded: expected the same frames for the same seeds and actions; is it the same "
                "version of the environment?"
            )

    def _digest(self) -> str:
        return hashlib.sha256(self.stacks.observation.tobytes()).hexdigest()


class _Buffers:
    """The arrays of a roll-out, used again and again."""

    def __init__(self, length: int, observation: NDArray[Any], envs: int) -> None:
        self.observation = np.zeros((length + 1, *observation.shape), observation.dtype)
        self.begins = np.zeros((length + 1, envs), np.bool_)
        self.action = np.zeros((length, envs), np.int64)
        self.reward = np.zeros((length, envs), np.float32)
        self.discount = np.zeros((length, envs), np.float32)
        self.cut = np.zeros((length, envs), np.bool_)

    def take(
        self, place: int, actions: NDArray[np.int64], step: Step, settings: ActorCriticConfig
    ) -> None:
        """Keep a step; discount 0 stands for termination and for a lost life."""
        learning = settings.learning
        self.action[place] = actions
        self.reward[place] = np.clip(step.reward, -1, 1) if learning.clip_rewards else step.reward
        ends = step.terminated | step.life_lost
        self.discount[place] = np.where(ends, 0.0, learning.discount)
        self.cut[place] = step.truncated

    def rollout(self, steps: int, final: dict[int, NDArray[Any]]) -> Rollout:
        """The first `steps` of them."""
        return Rollout(
            observation=self.observation[: steps + 1],
            action=self.action[:steps],
            reward=self.reward[:steps],
            discount=self.discount[:steps],
            begins=self.begins[: steps + 1],
            cut=self.cut[:steps],
            final=final,
        )
