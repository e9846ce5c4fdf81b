"""The evaluation protocol: suspend learning and let the latest agent play (section 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noisynet.agents import Agent
from noisynet.config import RunConfig
from noisynet.envs import Environment, episode_seed, family_of, make_environment
from noisynet.runs import Trace


@dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation found.

    Attributes:
        score: the mean return of the completed episodes; of the unfinished one if there is none.
        completed: whether `score` is of completed episodes.
        traces: every episode as seed and actions; the last may be unfinished, and says so.
        frames: how many frames were played.
    """

    score: float
    completed: bool
    traces: list[Trace]
    frames: int

    @property
    def episodes(self) -> int:
        """How many episodes were completed."""
        return sum(trace.finished for trace in self.traces)

    @property
    def best(self) -> float:
        """The highest return among the episodes that `score` is the mean of."""
        return max(trace.score for trace in counted(self.traces))


def counted(traces: Sequence[Trace]) -> list[Trace]:
    """The completed episodes; the unfinished ones if there are no others."""
    return [trace for trace in traces if trace.finished] or list(traces)


class Stacks:
    """The newest `stack` frames of each environment, zeros before an episode's first.

    Args:
        environment: whose frames.
    """

    def __init__(self, environment: Environment) -> None:
        spec = environment.spec
        shape = (environment.num_envs, spec.stack, *spec.frame_shape)
        self.observation: NDArray[Any] = np.zeros(shape, spec.frame_dtype)

    def begin(self, env: int, frame: NDArray[Any]) -> None:
        """An episode of `env` begins with `frame`."""
        self.observation[env] = 0
        self.observation[env, -1] = frame

    def push(self, frames: NDArray[Any]) -> None:
        """Every environment shows a new frame [N, *frame]."""
        self.observation[:, :-1] = self.observation[:, 1:]
        self.observation[:, -1] = frames


def evaluate(
    agent: Agent,
    environment: Environment,
    *,
    frames: int,
    training_frames: int,
    noise: Literal["on", "off"],
    stop: Callable[[], bool] = lambda: False,
) -> EvaluationResult:
    """Play full games, unclipped, for so many frames; training is left bit-identical.

    Args:
        agent: plays with its latest weights; a noisy one redraws its noise at every action.
        environment: a single environment for evaluation only.
        frames: how long to play; the last game may remain unfinished and then does not count.
        training_frames: when the evaluation takes place; it names the random streams.
        noise: whether a noisy agent plays with noise or with mean weights.
        stop: asked at every step; true ends the evaluation by `InterruptedError`.
    """
    role = f"eval {training_frames} {noise}"
    policy = agent.evaluation_policy(noise, role)
    stacks, steps_left = Stacks(environment), -(-frames // environment.spec.frames_per_step)
    played = steps_left * environment.spec.frames_per_step
    traces: list[Trace] = []
    while steps_left:
        # Noise on and off meet the same games.
        seed = episode_seed(agent.config.seed, "eval", training_frames, len(traces))
        stacks.begin(0, environment.start([seed])[0])
        policy.begin_episode()
        actions, score, over = [], 0.0, False
        while not over and steps_left:
            if stop():
                raise InterruptedError("the evaluation was interrupted")
            action = policy.act(stacks.observation)
            step = environment.step(action)
            stacks.push(step.frame)
            actions.append(int(action[0]))
            score += float(step.reward[0])
            over = bool(step.terminated[0] or step.truncated[0])
            steps_left -= 1
        traces.append(
            Trace(
                environment=agent.config.environment,
                seed=seed,
                actions=np.array(actions, np.uint8),
                score=score,
                evaluation=training_frames,
                episode=len(traces),
                noise=noise,
                options=environment_options(agent.config),
                finished=over,
            )
        )
    mean = float(np.mean([trace.score for trace in counted(traces)]))
    return EvaluationResult(mean, any(trace.finished for trace in traces), traces, played)


def make_configured_environment(
    config: RunConfig, num_envs: int, *, alone: bool = True
) -> Environment:
    """The environments of a run, for training or for evaluation.

    Args:
        config: the run's.
        num_envs: how many to play side by side.
        alone: whether no other process of the run plays beside this one, so that it may take every
            core.
    """
    options = environment_options(config)
    if not alone and family_of(config.environment).has_threads:
        options.setdefault("threads", 1)
    return make_environment(config.environment, num_envs, **options)


def environment_options(config: RunConfig) -> dict[str, Any]:
    """What to make a run's environment with, besides its name."""
    options = dict(config.environment_options)
    if config.max_episode_frames is not None and family_of(config.environment).has_frame_limit:
        options["max_episode_frames"] = config.max_episode_frames
    return options
