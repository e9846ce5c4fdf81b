"""The running episodes of a set of environments, and how a resumed run returns to them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from noisynet.envs import Environment, Step, episode_seed
from noisynet.evaluation import Stacks
from noisynet.runs import RunDamaged


class NotReproduced(RunDamaged):
    """An environment does not repeat its episode: the fault is not in the run's files."""


@dataclass(frozen=True)
class FinishedEpisode:
    """An episode that has ended."""

    env: int
    number: int
    score: float
    steps: int


@dataclass
class RunningEpisode:
    """An episode in progress. Its seed and actions are enough to replay it."""

    number: int
    seed: int
    actions: list[int] = field(default_factory=list)
    score: float = 0.0


class Episodes:
    """Starts the episodes of N environments and records their actions and returns.

    Args:
        environment: the environments.
        run_seed: seed of the run; every episode's seed derives from it.
        first_env: index in the run of the first environment.
        on_start: called with the number of every episode before it starts.

    Attributes:
        stacks: the current observations.
        running: one episode per environment; empty before the first `start`.
    """

    def __init__(
        self,
        environment: Environment,
        run_seed: int,
        first_env: int = 0,
        on_start: Callable[[int], None] = lambda _number: None,
    ) -> None:
        self.environment, self.run_seed, self.first_env = environment, run_seed, first_env
        self.stacks = Stacks(environment)
        self.running: list[RunningEpisode] = []
        self._on_start = on_start

    @property
    def observation(self) -> NDArray[Any]:
        """Current observations [N, stack, *frame]."""
        return self.stacks.observation

    def start(self, envs: Iterable[int], first_number: int = 0) -> NDArray[Any]:
        """Start the next episode of each given environment; return the first frames [N, *frame]."""
        seeds: list[int | None] = [None] * self.environment.num_envs
        for env in envs:
            number = self.running[env].number + 1 if env < len(self.running) else first_number
            self._on_start(number)
            seed = episode_seed(self.run_seed, "train", self.first_env + env, number)
            self.running[env : env + 1] = [RunningEpisode(number, seed)]
            seeds[env] = seed
        frames = self.environment.start(seeds)
        for env, started in enumerate(seeds):
            if started is not None:
                self.stacks.begin(env, frames[env])
        return frames

    def record(self, actions: NDArray[np.int64], step: Step) -> list[FinishedEpisode]:
        """Record one step of all environments; return the episodes that it ended."""
        self.stacks.push(step.frame)
        over = step.terminated | step.truncated
        finished = []
        for env, episode in enumerate(self.running):
            episode.actions.append(int(actions[env]))
            episode.score += float(step.reward[env])
            if over[env]:
                index, length = self.first_env + env, len(episode.actions)
                finished.append(FinishedEpisode(index, episode.number, episode.score, length))
        return finished

    # --- state -----------------------------------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the actions of the running episodes."""
        return {
            f"actions.{env}": torch.tensor(episode.actions, dtype=torch.int16)
            for env, episode in enumerate(self.running)
        }

    def state(self) -> dict[str, Any]:
        """Return the rest of the state, JSON-able."""
        running = [{"number": e.number, "seed": e.seed, "score": e.score} for e in self.running]
        return {"episodes": running, "observation": self._digest()}

    def restore(
        self,
        tensors: dict[str, torch.Tensor],
        state: dict[str, Any],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Load what `tensors` and `state` returned, and replay the running episodes.

        Raises:
            NotReproduced: the environments do not show the same observations.
        """
        self.running = [
            RunningEpisode(e["number"], e["seed"], tensors[f"actions.{env}"].tolist(), e["score"])
            for env, e in enumerate(state["episodes"])
        ]
        if self.running:
            self._fast_forward(beat)
        if self._digest() != state["observation"]:
            first, count = self.first_env, self.environment.num_envs
            raise NotReproduced(
                f"environments {first} to {first + count - 1} of {self.environment.spec.name} did "
                "not reproduce their episodes: expected the same observations for the same seeds "
                "and actions; check that the version of the environment is the one that the run "
                "was started with, and that its reset(seed=...) seeds everything random"
            )

    def _fast_forward(self, beat: Callable[[], None]) -> None:
        """Replay all episodes. Environments step together, so shorter episodes start later."""
        lengths = [len(episode.actions) for episode in self.running]
        longest = max(lengths)
        playing = np.zeros(self.environment.num_envs, np.bool_)
        for tick in range(longest + 1):
            beat()
            due = [tick == longest - length for length in lengths]
            # Environments that are not due yet play an arbitrary episode with action 0.
            seeds = [
                episode.seed if now or not plays else None
                for episode, now, plays in zip(self.running, due, playing, strict=True)
            ]
            frames = self.environment.start(seeds)
            playing[:] = True
            for env in np.flatnonzero(due).tolist():
                self.stacks.begin(env, frames[env])
            if tick < longest:
                times = [tick - longest + length for length in lengths]
                actions = [
                    episode.actions[time] if time >= 0 else 0
                    for episode, time in zip(self.running, times, strict=True)
                ]
                step = self.environment.step(np.array(actions, np.int64))
                playing &= ~(step.terminated | step.truncated)
                self.stacks.push(step.frame)

    def _digest(self) -> str:
        return hashlib.sha256(self.observation.tobytes()).hexdigest()
