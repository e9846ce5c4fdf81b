"""The evaluation protocol: learning is suspended and the latest agent plays (section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from noisynet.agents import Agent
from noisynet.config import RunConfig
from noisynet.envs import (
    Environment,
    EnvironmentLike,
    environment_name,
    episode_seed,
    family_of,
    make_environment,
)
from noisynet.runs import Trace

MODES: Final[tuple[Literal["on", "off"], ...]] = ("on", "off")
"""A noisy agent is evaluated with noise and with mean weights."""


@dataclass(frozen=True)
class EvaluationResult:
    """Result of an evaluation.

    Attributes:
        score: mean return of the completed episodes; if there is none, of the unfinished one.
        completed: whether `score` is of completed episodes.
        traces: every episode as seed and actions; the last may be unfinished.
        frames: frames played.
    """

    score: float
    completed: bool
    traces: list[Trace]
    frames: int

    @property
    def episodes(self) -> int:
        """Number of completed episodes."""
        return sum(trace.finished for trace in self.traces)

    @property
    def standard_deviation(self) -> float:
        """Of the returns that `score` is the mean of (n - 1 in the divisor); 0 for a single one."""
        returns = [trace.score for trace in counted(self.traces)]
        return float(np.std(returns, ddof=1)) if len(returns) > 1 else 0.0

    @property
    def best(self) -> float:
        """Highest return of the episodes that `score` is the mean of."""
        return max(trace.score for trace in counted(self.traces))


def counted(traces: Sequence[Trace]) -> list[Trace]:
    """Select the completed episodes; if there is none, the unfinished ones."""
    return [trace for trace in traces if trace.finished] or list(traces)


class Stacks:
    """The newest `stack` frames of each environment; zeros before the first of an episode."""

    def __init__(self, environment: Environment) -> None:
        spec = environment.spec
        shape = (environment.num_envs, spec.stack, *spec.frame_shape)
        self.observation: NDArray[Any] = np.zeros(shape, spec.frame_dtype)

    def begin(self, env: int, frame: NDArray[Any]) -> None:
        """Start an episode of `env` with its first frame."""
        self.observation[env] = 0
        self.observation[env, -1] = frame

    def push(self, frames: NDArray[Any]) -> None:
        """Add a new frame of every environment [N, *frame]."""
        self.observation[:, :-1] = self.observation[:, 1:]
        self.observation[:, -1] = frames


def evaluate(
    agent: Agent,
    environment: Environment,
    *,
    frames: int | None,
    episodes: int | None = None,
    training_frames: int,
    noise: Literal["on", "off"],
    stop: Callable[[], bool] = lambda: False,
) -> EvaluationResult:
    """Play full games with unclipped rewards; the agent's training state is not changed.

    Args:
        agent: plays with its latest weights; a noisy one resamples its noise at every action.
        environment: a single environment, used for evaluation only.
        frames: frames to play; an episode that is unfinished at the end does not count. None for
            no limit.
        episodes: episodes to play; None for no limit.
        training_frames: training frames so far; they name the random streams.
        noise: whether a noisy agent plays with noise or with mean weights.
        stop: asked at every step; true raises `InterruptedError`.
    """
    policy = agent.evaluation_policy(noise, f"eval {training_frames} {noise}")
    stacks, per_step, steps = Stacks(environment), environment.spec.frames_per_step, 0
    most_steps = math.inf if frames is None else -(-frames // per_step)
    most_episodes = math.inf if episodes is None else episodes
    few = environment.spec.num_actions <= 256
    traces: list[Trace] = []
    while steps < most_steps and len(traces) < most_episodes:
        # The seed does not depend on the noise: both modes play the same games.
        seed = episode_seed(agent.config.seed, "eval", training_frames, len(traces))
        stacks.begin(0, environment.start([seed])[0])
        policy.begin_episode()
        actions, score, over = [], 0.0, False
        while not over and steps < most_steps:
            if stop():
                raise InterruptedError("the evaluation was interrupted")
            action = policy.act(stacks.observation)
            step = environment.step(action)
            stacks.push(step.frame)
            actions.append(int(action[0]))
            score += float(step.reward[0])
            over = bool(step.terminated[0] or step.truncated[0])
            steps += 1
        traces.append(
            Trace(
                environment=agent.config.environment,
                seed=seed,
                actions=np.array(actions, np.uint8) if few else np.array(actions, np.uint16),
                score=score,
                evaluation=training_frames,
                episode=len(traces),
                noise=noise,
                options=environment_options(agent.config),
                finished=over,
            )
        )
    mean = float(np.mean([trace.score for trace in counted(traces)]))
    return EvaluationResult(mean, any(trace.finished for trace in traces), traces, steps * per_step)


def evaluation_modes(
    agent: Agent,
    training_frames: int,
    frames: int | None = None,
    episodes: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    environment: EnvironmentLike | None = None,
) -> Iterator[tuple[Literal["on", "off"], EvaluationResult]]:
    """Evaluate an agent in each of its modes; a plain agent has only noise "off".

    Without frames and episodes, the configured number of frames is played.
    """
    if frames is None and episodes is None:
        frames = agent.config.evaluation.frames
    for noise in MODES if agent.noisy else MODES[1:]:
        with make_configured_environment(agent.config, 1, environment) as game:
            result = evaluate(
                agent,
                game,
                frames=frames,
                episodes=episodes,
                training_frames=training_frames,
                noise=noise,
                stop=stop,
            )
        yield noise, result


def make_configured_environment(
    config: RunConfig,
    num_envs: int,
    environment: EnvironmentLike | None = None,
    *,
    alone: bool = True,
) -> Environment:
    """Make the environments of a run, for training or for evaluation.

    Args:
        config: configuration of the run.
        num_envs: number of environments.
        environment: the object or the function that the run was given; None for the configured
            name.
        alone: whether this is the only process of the run that plays, and may use every core.

    Raises:
        ValueError: `environment` is not what the run was configured for.
    """
    given = config.environment if environment is None else environment
    if environment_name(given) != config.environment:
        raise ValueError(
            f"expected the environment {config.environment} of the run, got "
            f"{environment_name(given)}"
        )
    options = environment_options(config)
    if not alone and family_of(config.environment).has_threads:
        options.setdefault("threads", 1)
    return make_environment(given, num_envs, **options)


def environment_options(config: RunConfig) -> dict[str, Any]:
    """Return the keyword arguments that a run's environment is made with."""
    options = dict(config.environment_options)
    if config.max_episode_frames is not None and family_of(config.environment).has_frame_limit:
        options["max_episode_frames"] = config.max_episode_frames
    return options
