"""Chooses a traced episode, replays it, and evaluates the newest weights on its states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisynet.agents import Agent
from noisynet.config import ActorCriticLearning, Learning
from noisynet.envs import (
    Environment,
    EnvironmentLike,
    Step,
    make_environment,
    screen_options,
)
from noisynet.evaluation import Stacks, counted, evaluate, make_configured_environment
from noisynet.runs import RunError, RunFolder, Trace, list_traces, read_traces
from noisynet.runs.reading import EvaluationRow, read_rows
from noisynet.watch.value_sampling import SampledValues, make_sampler

Noise: TypeAlias = Literal["on", "off"]

_BATCH_SIZE = 16
_MAX_PLAYED_STEPS = 10_000  # not every environment ends its episodes


class ReplayMismatch(RunError):  # noqa: N818 — named by its cause
    """A replayed episode differs from its trace."""


@dataclass(frozen=True)
class ReplayedEpisode:
    """A replayed episode.

    `rewards` are unclipped; `returns` are discounted, from each state, with rewards clipped as in
    training: what Q and V estimate. `values` are those of the states to be shown.
    """

    rewards: NDArray[np.float64]
    returns: NDArray[np.float64]
    ended: bool
    values: SampledValues
    actions: tuple[str, ...]


def choose_trace(folder: RunFolder, episode: str | int, noise: Noise) -> tuple[Trace, list[str]]:
    """Choose the trace to show.

    Args:
        folder: the run's.
        episode: "best" for the highest score of all evaluations, the newest of equal ones; "last"
            for the last of the newest evaluation; or a number within the newest evaluation, from 0.
            "best" and "last" prefer completed episodes to truncated ones.
        noise: choose among the episodes played with noise or with mean weights; if there are none,
            among the others.

    Returns:
        The trace, and notes for the user.

    Raises:
        RunError: the episode does not exist.
        ValueError: `episode` or `noise` is invalid.
    """
    number = check_episode(episode)
    if noise not in ("on", "off"):
        raise ValueError(f"expected noise 'on' or 'off', got {noise!r}")
    notes, files = [], list_traces(folder.traces_path)
    if not files:
        raise RunError(
            f"expected traced evaluation episodes in {folder.traces_path}, got none; train beyond "
            "evaluation.period_frames first, or play a new episode with --play"
        )
    chosen = [file for file in files if file.noise == noise]
    if not chosen:
        chosen = files
        notes.append(
            f"{folder.path} has no traced evaluation with noise {noise}; this episode was played "
            f"with noise {files[0].noise}"
        )
    evaluations, _ = read_rows(folder.metrics_path, 1, 0)
    rows = {(row.frames, row.noise): row for row in evaluations}
    traces = []
    for file in chosen if episode == "best" else chosen[-1:]:
        row = rows.get((file.evaluation, file.noise))
        traces += read_traces(file.path, row.traces if row else None)
    if number is None:
        # The score of an episode truncated by the end of the evaluation is not comparable.
        traces = _completed(traces, rows)
    if episode == "best":
        traces.sort(key=lambda trace: (trace.score, trace.evaluation))
    if number is not None:
        known = [trace.episode for trace in traces]
        traces = [trace for trace in traces if trace.episode == number]
        if not traces:
            raise RunError(
                f"the newest evaluation, at {chosen[-1].evaluation:,} frames with noise "
                f"{chosen[-1].noise}, has no episode {number}: expected a number in 0..{max(known)}"
            )
    return traces[-1], notes


def check_episode(episode: str | int) -> int | None:
    """The number of an episode; None for "best", "last" and "new", a `ValueError` for others."""
    if episode in ("best", "last", "new"):
        return None
    if isinstance(episode, bool) or not str(episode).isdecimal():
        raise ValueError(
            f"expected the episode as 'best', 'last', 'new' or a number from 0, got {episode!r}"
        )
    return int(episode)


def play_episode(
    agent: Agent,
    weights_frames: int,
    *,
    noise: Noise = "on",
    environment: EnvironmentLike | None = None,
) -> Trace:
    """Play one episode, at most 10,000 steps of it; training frames name the random streams."""
    with make_configured_environment(agent.config, 1, environment) as games:
        result = evaluate(
            agent,
            games,
            frames=_MAX_PLAYED_STEPS * games.spec.frames_per_step,
            episodes=1,
            training_frames=weights_frames,
            noise=noise if agent.noisy else "off",
        )
    return result.traces[0]


def _completed(traces: list[Trace], rows: Mapping[tuple[int, Noise], EvaluationRow]) -> list[Trace]:
    """The completed episodes; the truncated ones if there are no others."""
    # Old traces do not have the flag, but the rows of their evaluations do.
    truncated = {key for key, row in rows.items() if not row.completed}
    completed = [trace for trace in traces if (trace.evaluation, trace.noise) not in truncated]
    return counted(completed or traces)


def replay(
    trace: Trace,
    agent: Agent,
    *,
    steps: int,
    samples: int,
    environment: EnvironmentLike | None = None,
) -> ReplayedEpisode:
    """Replay a trace in the agent's environment and sample the values of its first `steps` states.

    Raises:
        ReplayMismatch: the score differs from the trace's, or the episode ends early.
    """
    sampler = make_sampler(agent, trace, samples)
    rewards, discounts, score, ended = [], [], 0.0, False
    batch: list[NDArray[Any]] = []
    given = trace.environment if environment is None else environment
    with make_environment(given, 1, **trace.options) as games:
        actions = games.spec.action_names
        if games.spec != agent.spec:
            raise ReplayMismatch(
                f"the trace's environment is {games.spec}, the agent's is {agent.spec}: "
                "expected the same; the trace belongs to another run"
            )
        stacks = Stacks(games)
        stacks.begin(0, games.start([trace.seed])[0])
        for number, step in enumerate(_steps(games, trace)):
            if number < steps:
                batch.append(stacks.observation[0].copy())
            if len(batch) == _BATCH_SIZE:
                sampler.add(np.stack(batch))
                batch = []
            stacks.push(step.frame)
            rewards.append(float(step.reward[0]))
            score += rewards[-1]  # as in the evaluation; `sum` compensates since Python 3.12
            ended = bool(step.terminated[0] or step.truncated[0])
            over = step.terminated[0] or step.life_lost[0]
            discounts.append(0.0 if over else agent.config.learning.discount)
    if batch:
        sampler.add(np.stack(batch))
    if score != trace.score:
        raise ReplayMismatch(
            f"episode {trace.episode} of the evaluation at {trace.evaluation:,} frames scored "
            f"{score:g} when replayed, expected the {trace.score:g} of its trace; " + _CAUSES
        )
    returns = _returns(rewards, discounts, agent.config.learning)
    return ReplayedEpisode(np.array(rewards), returns, ended, sampler.values(), actions)


def screens(
    trace: Trace,
    replayed: ReplayedEpisode,
    steps: int,
    environment: EnvironmentLike | None = None,
) -> Iterator[NDArray[np.uint8]]:
    """The screen in colour, uint8 [H, W, 3], at `steps` states and after the last action.

    Raises:
        ReplayMismatch: a reward differs from the replay's.
    """
    options = {**trace.options, **screen_options(trace.environment)}
    given = trace.environment if environment is None else environment
    with make_environment(given, 1, **options) as games:
        games.start([trace.seed])
        yield games.screen(0)
        for number, step in enumerate(_steps(games, trace)):
            if number == steps:
                return
            if step.reward[0] != replayed.rewards[number]:
                raise ReplayMismatch(
                    f"step {number} of {trace.environment} in colour gave reward "
                    f"{step.reward[0]:g}, expected the {replayed.rewards[number]:g} of the replay; "
                    + _CAUSES
                )
            yield games.screen(0)


_CAUSES = (
    "the trace was changed, or the environment's package has another version than in training: "
    "install that version, or evaluate again"
)


def _steps(environment: Environment, trace: Trace) -> Iterator[Step]:
    """Step through the actions of a trace in an environment started with its seed."""
    for number, action in enumerate(trace.actions):
        step = environment.step(np.array([action], np.int64))
        yield step
        if (step.terminated[0] or step.truncated[0]) and number + 1 < len(trace.actions):
            raise ReplayMismatch(
                f"episode {trace.episode} of the evaluation at {trace.evaluation:,} frames ended "
                f"after {number + 1} actions when replayed, expected the {len(trace.actions)} "
                "of its trace; " + _CAUSES
            )


def _returns(
    rewards: list[float], discounts: list[float], learning: Learning | ActorCriticLearning
) -> NDArray[np.float64]:
    returns, next_return = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        reward = float(np.clip(rewards[t], -1, 1)) if learning.clip_rewards else rewards[t]
        next_return = returns[t] = reward + discounts[t] * next_return
    return returns
