"""The evaluation protocol: scores, traces, and that training is not changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet.agents import ValueAgent, ValuePolicy
from noisynet.config import Config, build_config
from noisynet.envs import Environment, EnvironmentSpec, Step, episode_seed, make_environment
from noisynet.evaluation import (
    Stacks,
    environment_options,
    evaluate,
    make_configured_environment,
)
from noisynet.loops import OffPolicyLoop
from noisynet.loops.off_policy_trainer import snapshot_loop
from noisynet.replay import FrameStore
from noisynet.runs import Trace

FIXED = ("network.hidden=[8]", "learning.starts_steps=32", "learning.batch_size=32")
MODES: tuple[Literal["on", "off"], ...] = ("on", "off")


def configure(agent: str, environment: str, *settings: str) -> Config:
    config = build_config(agent, environment, settings=[*FIXED, *settings])
    assert isinstance(config, Config)
    return config


def make(agent: str, environment: str, *settings: str) -> tuple[ValueAgent, Environment]:
    config = configure(agent, environment, *settings)
    made = make_configured_environment(config, 1)
    return ValueAgent(config, made.spec), made


def snapshot(agent: ValueAgent) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return {k: v.clone() for k, v in agent.tensors().items()}, dict(agent.state())


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert not [name for name in first if not torch.equal(first[name], second[name])]


class Counting(Environment):
    """Episodes of five steps with rewards 1 to 5, and four frames per step."""

    def __init__(self, truncates: bool = False) -> None:
        super().__init__(EnvironmentSpec("deep_sea/4", 2, (2,), "float32", 3, 4, 1.0), 1)
        self.t, self.truncates, self.seeds = 0, truncates, list[int | None]()

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        self.t = 0
        self.seeds += seeds
        return self._frame()

    def _recv(self, actions: NDArray[np.int64]) -> Step:
        self.t += 1
        over, never = np.array([self.t == 5]), np.array([False])
        terminated, truncated = (never, over) if self.truncates else (over, never)
        return Step(self._frame(), np.array([float(self.t)]), terminated, truncated, never)

    def _screen(self, index: int) -> NDArray[np.uint8]:
        raise NotImplementedError

    def _frame(self) -> NDArray[np.float32]:
        return np.array([[1.0, self.t]], np.float32)


def counting_agent(environment: Environment, *settings: str) -> ValueAgent:
    return ValueAgent(configure("noisynet-dqn", "deep_sea/4", *settings), environment.spec)


# --- scores ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "played", "lengths", "episodes", "score"),
    [
        (4 * 12, 48, [5, 5, 2], 2, 15.0),  # two episodes and two steps of a third
        (4 * 10, 40, [5, 5], 2, 15.0),  # exactly two
        (4 * 5, 20, [5], 1, 15.0),
        (4 * 3, 12, [3], 0, 6.0),  # none: the partial return 1 + 2 + 3
        (4 * 4 + 1, 20, [5], 1, 15.0),  # a step that has started is completed
    ],
)
def test_only_completed_episodes_count_unless_there_is_none(
    frames: int, played: int, lengths: list[int], episodes: int, score: float
) -> None:
    environment = Counting()
    result = evaluate(
        counting_agent(environment),
        environment,
        frames=frames,
        training_frames=1_000,
        noise="on",
    )
    assert result.frames == played
    assert [len(trace.actions) for trace in result.traces] == lengths
    assert [trace.finished for trace in result.traces] == [length == 5 for length in lengths]
    assert result.score == result.best == score
    assert result.completed is (episodes > 0)
    assert result.episodes == episodes


def test_an_unfinished_episode_is_never_the_best_of_completed_ones() -> None:
    class Falling(Counting):
        def _recv(self, actions: NDArray[np.int64]) -> Step:
            step = super()._recv(actions)
            return step._replace(reward=np.array([-float(self.t)]))

    environment = Falling()
    agent = counting_agent(environment)
    result = evaluate(agent, environment, frames=4 * 6, training_frames=0, noise="on")
    assert [trace.score for trace in result.traces] == [-15.0, -1.0]
    assert result.best == result.score == -15.0


def test_an_episode_truncated_by_the_time_limit_is_complete() -> None:
    environment = Counting(truncates=True)
    result = evaluate(
        counting_agent(environment), environment, frames=44, training_frames=0, noise="off"
    )
    assert (result.episodes, result.score) == (2, 15.0)


def test_rewards_are_not_clipped_even_if_training_clips_them() -> None:
    environment = Counting()
    agent = counting_agent(environment, "learning.clip_rewards=true")
    result = evaluate(agent, environment, frames=20, training_frames=0, noise="on")
    assert result.score == 1 + 2 + 3 + 4 + 5


def test_the_score_is_the_mean_over_episodes() -> None:
    agent, environment = make("noisynet-dqn", "gym/CartPole-v1")
    result = evaluate(agent, environment, frames=300, training_frames=0, noise="on")
    scores = [trace.score for trace in result.traces if trace.finished]
    assert len(set(scores)) > 2
    assert len(scores) == len(result.traces) - 1
    assert result.score == pytest.approx(sum(scores) / len(scores))
    assert sum(scores) < 300  # one for each step: the unfinished episode is not among them
    assert sum(trace.score for trace in result.traces) == 300  # but it is traced


def test_the_seed_of_an_episode_derives_from_run_evaluation_and_number() -> None:
    environment = Counting()
    agent = counting_agent(environment, "seed=7")
    result = evaluate(agent, environment, frames=4 * 12, training_frames=1_000, noise="on")
    expected = [episode_seed(7, "eval", 1_000, number) for number in range(3)]
    assert environment.seeds == expected
    assert [trace.seed for trace in result.traces] == expected
    assert [trace.episode for trace in result.traces] == [0, 1, 2]
    assert {trace.evaluation for trace in result.traces} == {1_000}


def test_the_agent_sees_stacks_that_begin_with_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    environment, seen = Counting(), list[NDArray[Any]]()

    class Watching(ValuePolicy):
        def act(self, observation: NDArray[Any]) -> NDArray[np.int64]:
            seen.append(observation[0].copy())
            return super().act(observation)

    monkeypatch.setattr("noisynet.agents.value.ValuePolicy", Watching)
    evaluate(counting_agent(environment), environment, frames=28, training_frames=0, noise="on")
    times = [[int(frame[1]) if frame[0] else None for frame in stack] for stack in seen]
    assert times == [
        [None, None, 0],
        [None, 0, 1],
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [None, None, 0],  # nothing of the previous episode
        [None, 0, 1],
    ]


# --- noise ---------------------------------------------------------------------------------------


def test_both_modes_play_the_same_games_with_different_actions() -> None:
    agent, _ = make("noisynet-dqn", "minatar/breakout")
    results = {}
    for noise in MODES:
        with make_configured_environment(agent.config, 1) as environment:
            results[noise] = evaluate(
                agent, environment, frames=200, training_frames=5, noise=noise
            )
    on, off = results["on"].traces[0], results["off"].traces[0]
    assert on.seed == off.seed
    assert (on.noise, off.noise) == ("on", "off")
    assert on.actions.tolist() != off.actions.tolist()


def test_mean_weights_repeat_a_deterministic_game_and_noise_does_not() -> None:
    played = {}
    for noise in MODES:
        agent, environment = make("noisynet-dqn", "deep_sea/4")
        result = evaluate(agent, environment, frames=80, training_frames=0, noise=noise)
        played[noise] = {tuple(trace.actions.tolist()) for trace in result.traces}
    assert len(played["off"]) == 1
    assert len(played["on"]) > 1


def test_an_evaluation_depends_on_the_weights_and_the_training_frames_only() -> None:
    def actions(when: int) -> list[list[int]]:
        agent, environment = make("noisynet-dueling", "deep_sea/4")
        torch.manual_seed(when)  # no effect
        result = evaluate(agent, environment, frames=80, training_frames=when, noise="on")
        return [trace.actions.tolist() for trace in result.traces]

    assert actions(100) == actions(100)
    assert actions(100) != actions(200)


# --- traces --------------------------------------------------------------------------------------


def replayed(trace: Trace) -> tuple[float, bool]:
    """Replay a trace; return its score and whether the episode ended."""
    options = json.loads(json.dumps(dict(trace.options)))
    with make_environment(trace.environment, 1, **options) as environment:
        environment.start([trace.seed])
        score, over = 0.0, False
        for action in trace.actions.tolist():
            assert not over
            step = environment.step(np.array([action]))
            score += float(step.reward[0])
            over = bool(step.terminated[0] or step.truncated[0])
    return score, over


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ("deep_sea/4", ["environment_options.mapping_seed=3"]),
        ("minatar/breakout", ["environment_options.sticky_action_prob=0.3"]),
        ("minatar/breakout", ["max_episode_frames=7"]),
        ("gym/CartPole-v1", []),
        ("gym/CartPole-v1", ["max_episode_frames=9"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("agent", ["dqn", "noisynet-dueling"])
def test_a_replayed_trace_has_the_same_score(
    agent: str, environment: str, settings: list[str]
) -> None:
    built, made = make(agent, environment, *settings)
    result = evaluate(built, made, frames=150, training_frames=30, noise="on")
    assert result.completed
    for trace in result.traces:
        assert replayed(trace) == (trace.score, trace.finished)


def test_an_unfinished_trace_can_be_replayed() -> None:
    built, made = make("noisynet-dqn", "gym/CartPole-v1")
    result = evaluate(built, made, frames=4, training_frames=0, noise="on")
    assert not result.completed
    assert not result.traces[0].finished
    assert replayed(result.traces[0]) == (4.0, False)


def test_the_time_limit_is_that_of_gymnasium_unless_one_is_set() -> None:
    assert environment_options(configure("dqn", "gym/CartPole-v1")) == {}
    limited = configure("dqn", "gym/CartPole-v1", "max_episode_frames=9")
    assert environment_options(limited) == {"max_episode_frames": 9}
    assert environment_options(configure("dqn", "minatar/breakout")) == {
        "max_episode_frames": 108_000
    }
    deep = configure("dqn", "deep_sea/4", "environment_options.mapping_seed=3")
    assert environment_options(deep) == {"mapping_seed": 3}


def test_cartpole_is_truncated_after_500_steps() -> None:
    with make_configured_environment(configure("dqn", "gym/CartPole-v1"), 1) as environment:
        frame, steps, over = environment.start([1])[0], 0, False
        while not over:
            position, speed, angle, turn = frame.tolist()
            push = angle + 0.5 * turn + 0.01 * position + 0.1 * speed > 0
            step = environment.step(np.array([int(push)]))
            frame, steps = step.frame[0], steps + 1
            over = bool(step.terminated[0] or step.truncated[0])
        assert (steps, bool(step.truncated[0])) == (500, True)


# --- training state ------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", MODES)
@pytest.mark.parametrize("agent", ["dqn", "noisynet-dqn", "noisynet-dueling"])
def test_an_evaluation_leaves_the_agent_bit_identical(
    agent: str, noise: Literal["on", "off"]
) -> None:
    built, environment = make(
        agent,
        "deep_sea/4",
        "exploration.evaluation=0.1" if agent == "dqn" else "exploration.redraw=episode",
    )
    built.act(np.ones((1, 1, 16), np.float32), 32)
    tensors, state = snapshot(built)
    stream = torch.get_rng_state()
    evaluate(built, environment, frames=60, training_frames=10, noise=noise)
    assert_same(built.tensors(), tensors)
    assert built.state() == state
    assert torch.equal(torch.get_rng_state(), stream)


def trained(evaluations: bool) -> OffPolicyLoop:
    config = configure("noisynet-dueling", "deep_sea/4", "frames=80")
    environment = make_configured_environment(config, 1)
    agent = ValueAgent(config, environment.spec)
    store = FrameStore(100, (16,), frame_dtype="float32", num_actions=2, stack=1)
    loop = OffPolicyLoop(config, agent, environment, store)
    for tick in loop.run():
        if evaluations and tick.steps % 20 == 0:
            for noise in MODES:
                with make_configured_environment(config, 1) as other:
                    evaluate(agent, other, frames=20, training_frames=tick.steps, noise=noise)
    return loop


def test_a_run_with_evaluations_is_bit_identical_to_one_without() -> None:
    with_evaluations, without = trained(True), trained(False)
    assert without.agent.updates == 48
    (tensors, state), (expected, expected_state) = map(snapshot_loop, (with_evaluations, without))
    assert_same(tensors, expected)
    assert with_evaluations.store.digest() == without.store.digest()
    assert state["agent"] == expected_state["agent"]


def test_an_interrupted_evaluation_leaves_the_agent_bit_identical() -> None:
    built, environment = make("noisynet-dqn", "deep_sea/4")
    tensors, state = snapshot(built)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 7

    with pytest.raises(InterruptedError, match="interrupted"):
        evaluate(built, environment, frames=1_000, training_frames=0, noise="on", stop=stop)
    assert asked == 7  # at every step
    assert_same(built.tensors(), tensors)
    assert built.state() == state


# --- stacks --------------------------------------------------------------------------------------


def test_stacks_have_the_newest_frames_of_each_environment() -> None:
    class Two(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.num_envs = 2

    stacks = Stacks(Two())
    stacks.begin(0, np.array([1, 1], np.float32))
    stacks.begin(1, np.array([2, 2], np.float32))
    for value in (3, 4, 5):
        stacks.push(np.array([[value, value], [value + 10, value + 10]], np.float32))
    assert stacks.observation[..., 0].tolist() == [[3, 4, 5], [13, 14, 15]]
    stacks.begin(1, np.array([9, 9], np.float32))
    assert stacks.observation[..., 0].tolist() == [[3, 4, 5], [0, 0, 9]]
