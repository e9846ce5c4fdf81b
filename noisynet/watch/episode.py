"""Which traced episode to watch, and what the newest weights make of each of its states."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noisynet.agents import Agent
from noisynet.config import ActorCriticLearning, Learning
from noisynet.envs import Environment, Step, make_environment, parse_environment, screen_options
from noisynet.evaluation import Stacks, counted
from noisynet.runs import RunError, RunFolder, Trace, list_traces, read_metrics, read_traces
from noisynet.watch.value_sampling import Values, make_meter

_STATES_AT_ONCE = 16


class ReplayDiffers(RunError):  # noqa: N818 — says what happened
    """An episode played again is not what its trace says."""


@dataclass(frozen=True)
class Played:
    """A traced episode, played again.

    Attributes:
        rewards: the raw reward after each action [T].
        returns: the discounted return from each state on, of rewards as the agent learns from them:
            what Q and V estimate [T].
        ended: whether the game was over after the last action.
        values: of the states to be shown, the first of the episode's.
    """

    rewards: NDArray[np.float64]
    returns: NDArray[np.float64]
    ended: bool
    values: Values


def choose_trace(
    folder: RunFolder, episode: str | int, noise: Literal["on", "off"]
) -> tuple[Trace, list[str]]:
    """Find the trace that is meant.

    Args:
        folder: the run's.
        episode: "best" for the highest score of all evaluations, the newest of equals; "last" for
            the newest evaluation's last; or a number within the newest evaluation, from 0. The
            first two pass over episodes that the end of an evaluation cut off, where others are.
        noise: whether to choose among the episodes played with noise or with mean weights; where
            there are none, among the others.

    Returns:
        The trace, and what the user should be told about the choice.

    Raises:
        RunError: there is no such episode.
        ValueError: `episode` or `noise` is none of these.
    """
    number = _checked_episode(episode)
    if noise not in ("on", "off"):
        raise ValueError(f"expected noise 'on' or 'off', got {noise!r}")
    notes, files = [], list_traces(folder.traces_path)
    chosen = [file for file in files if file.noise == noise]
    if files and not chosen:
        chosen = files
        notes.append(
            f"no evaluation with noise {noise} is traced in {folder.path}, so this episode was "
            f"played with noise {files[0].noise}"
        )
    if not chosen:
        raise RunError(
            f"expected traced evaluation episodes in {folder.traces_path}, got none; train beyond "
            "evaluation.period_frames first"
        )
    if episode == "best":
        # The score of a game that was cut off by the end of the evaluation is not comparable.
        traces = _whole([trace for file in chosen for trace in read_traces(file.path)], folder)
        traces.sort(key=lambda trace: (trace.score, trace.evaluation))
    else:
        traces = read_traces(chosen[-1].path)
        traces = _whole(traces, folder) if episode == "last" else traces
    if number is not None:
        known = [trace.episode for trace in traces]
        traces = [trace for trace in traces if trace.episode == number]
        if not traces:
            raise RunError(
                f"the newest evaluation, at {chosen[-1].evaluation:,} frames with noise "
                f"{chosen[-1].noise}, has no episode {number}: expected a number in 0..{max(known)}"
            )
    return traces[-1], notes


def _checked_episode(episode: str | int) -> int | None:
    if episode in ("best", "last"):
        return None
    if isinstance(episode, bool) or not str(episode).isdecimal():
        raise ValueError(
            f"expected the episode as 'best', 'last' or a number from 0, got {episode!r}"
        )
    return int(episode)


def _whole(traces: list[Trace], folder: RunFolder) -> list[Trace]:
    """The completed episodes; the unfinished ones if there are no others."""
    # Old traces do not say it themselves, but their evaluations do.
    cut = {
        (row["frames"], row["noise"])
        for row in read_metrics(folder.metrics_path)
        if row.get("kind") == "evaluation" and not row["completed"]
    }
    whole = [trace for trace in traces if (trace.evaluation, trace.noise) not in cut]
    return counted(whole or traces)


def play(trace: Trace, agent: Agent, *, steps: int, samples: int) -> Played:
    """Play a trace again as the agent saw it, and ask the agent about its first `steps` states.

    Raises:
        ReplayDiffers: the score is not the trace's, or the episode ends early.
    """
    measure = make_meter(agent, trace, samples)
    rewards, discounts, ended = [], [], False
    waiting: list[NDArray[Any]] = []
    with make_environment(trace.environment, 1, **trace.options) as environment:
        if environment.spec != agent.spec:
            raise ReplayDiffers(
                f"the trace's environment is {environment.spec}, the agent's is {agent.spec}: "
                "expected the same; the trace is of another run"
            )
        stacks = Stacks(environment)
        stacks.begin(0, environment.start([trace.seed])[0])
        for number, step in enumerate(_steps(environment, trace)):
            if number < steps:
                waiting.append(stacks.observation[0].copy())
            if len(waiting) == _STATES_AT_ONCE:
                measure.add(np.stack(waiting))
                waiting = []
            stacks.push(step.frame)
            rewards.append(float(step.reward[0]))
            ended = bool(step.terminated[0] or step.truncated[0])
            over = step.terminated[0] or step.life_lost[0]
            discounts.append(0.0 if over else agent.config.learning.discount)
    if waiting:
        measure.add(np.stack(waiting))
    if sum(rewards) != trace.score:  # added up in the evaluation's order: equal to the last bit
        raise ReplayDiffers(
            f"episode {trace.episode} of the evaluation at {trace.evaluation:,} frames scored "
            f"{sum(rewards):g} when played again, expected the {trace.score:g} of its trace; "
            + _WHY_DIFFERENT
        )
    returns = _returns(rewards, discounts, agent.config.learning)
    return Played(np.array(rewards), returns, ended, measure.values())


def screens(trace: Trace, played: Played, steps: int) -> Iterator[NDArray[np.uint8]]:
    """The game in colour, uint8 [H, W, 3]: `steps` states, then what the last action led to.

    Raises:
        ReplayDiffers: a reward is not the one that the agent's own view had.
    """
    options = {**trace.options, **screen_options(trace.environment)}
    with make_environment(trace.environment, 1, **options) as environment:
        environment.start([trace.seed])
        yield environment.screen(0)
        for number, step in enumerate(_steps(environment, trace)):
            if number == steps:
                return
            if step.reward[0] != played.rewards[number]:
                raise ReplayDiffers(
                    f"step {number} of {trace.environment} in colour gave reward "
                    f"{step.reward[0]:g}, expected the {played.rewards[number]:g} of the agent's "
                    "own view; " + _WHY_DIFFERENT
                )
            yield environment.screen(0)


_WHY_DIFFERENT = (
    "the trace was changed, or the game's package is of another version than at training: "
    "install that one, or evaluate again"
)


def _steps(environment: Environment, trace: Trace) -> Iterator[Step]:
    """Play the actions of a trace in an environment that was started with its seed."""
    for number, action in enumerate(trace.actions):
        step = environment.step(np.array([action], np.int64))
        yield step
        if (step.terminated[0] or step.truncated[0]) and number + 1 < len(trace.actions):
            raise ReplayDiffers(
                f"episode {trace.episode} of the evaluation at {trace.evaluation:,} frames ended "
                f"after {number + 1} actions when played again, expected the {len(trace.actions)} "
                "of its trace; " + _WHY_DIFFERENT
            )


def _returns(
    rewards: list[float], discounts: list[float], learning: Learning | ActorCriticLearning
) -> NDArray[np.float64]:
    returns, following = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        reward = float(np.clip(rewards[t], -1, 1)) if learning.clip_rewards else rewards[t]
        following = returns[t] = reward + discounts[t] * following
    return returns


def action_names(trace: Trace, num_actions: int) -> list[str]:
    """What to call the actions of the trace's environment."""
    family, game = parse_environment(trace.environment)
    names = [f"action {action}" for action in range(num_actions)]
    if family == "atari":
        names = _atari_names(game, original=trace.options.get("pong_actions") == "original")
    elif family == "minatar":
        names = ["no-op", "left", "up", "right", "down", "fire"]
        if trace.options.get("minimal_actions"):
            minatar: Any = importlib.import_module("minatar")
            names = [names[action] for action in minatar.Environment(game).minimal_action_set()]
    return names


def _atari_names(game: str, *, original: bool) -> list[str]:
    from ale_py import ALEInterface, roms

    from noisynet.envs.atari import ORIGINAL_PONG_ACTIONS

    ale, rom = ALEInterface(), roms.get_rom_path(game)
    assert rom is not None  # the environment has just been made of it
    ale.loadROM(rom)
    names = [_spelt_out(action.name) for action in ale.getMinimalActionSet()]
    return [names[action] for action in ORIGINAL_PONG_ACTIONS] if original else names


def _spelt_out(name: str) -> str:
    """ALE's "UPRIGHTFIRE" as "up right fire"."""
    if name == "NOOP":
        return "no-op"
    for word in ("UP", "DOWN", "LEFT", "RIGHT", "FIRE"):
        name = name.replace(word, f"{word.lower()} ")
    return name.strip()
