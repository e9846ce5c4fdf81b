"""Running episodes, played again from their seeds and actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from noisynet.envs import Environment
from noisynet.evaluation import Stacks


@dataclass
class RunningEpisode:
    """An episode under way: enough to play it again.

    Attributes:
        number: the environment's how-manieth.
        seed: what it was started with.
        actions: everything that was done since.
        score: the undiscounted, unclipped return so far.
    """

    number: int
    seed: int
    actions: list[int] = field(default_factory=list)
    score: float = 0.0


def play_again(
    environment: Environment,
    stacks: Stacks,
    episodes: Sequence[RunningEpisode],
    beat: Callable[[], None] = lambda: None,
) -> None:
    """Bring environments to where their episodes stand.

    Each environment starts so late that all reach the present together.

    Args:
        environment: the environments, in any state.
        stacks: gets the frames of the present.
        episodes: one for each environment.
        beat: called at every step.
    """
    longest = max(len(episode.actions) for episode in episodes)
    waits = [longest - len(episode.actions) for episode in episodes]
    running = np.zeros(environment.num_envs, bool)
    for tick in range(longest + 1):
        beat()
        due = [tick == wait for wait in waits]
        # Those whose turn has not come play anything, from any start, to keep step.
        seeds = [
            episode.seed if now or not runs else None
            for episode, now, runs in zip(episodes, due, running, strict=True)
        ]
        frames = environment.start(seeds)
        running[:] = True
        for env, now in enumerate(due):
            if now:
                stacks.begin(env, frames[env])
        if tick < longest:
            actions = [
                episode.actions[tick - wait] if tick >= wait else 0
                for episode, wait in zip(episodes, waits, strict=True)
            ]
            step = environment.step(np.array(actions, np.int64))
            running &= ~(step.terminated | step.truncated)
            stacks.push(step.frame)
