"""Updates computed by two threads: the same numbers, and no thread left waiting."""

from __future__ import annotations

import dataclasses
import operator
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from noisynet.agents import Learner, NonFiniteLoss, ValueAgent
from noisynet.config import VALUE_AGENTS, Config, build_config
from noisynet.envs import EnvironmentSpec
from noisynet.networks import Share
from noisynet.replay import TransitionBatch

SCREEN = EnvironmentSpec("atari/pong", 6, (84, 84), "uint8", 4, 4, 1 / 255)


def make(agent: str, learner: Learner | None, *settings: str) -> ValueAgent:
    fixed = ["network.hidden=[64]", "learning.starts_steps=32"]
    config = build_config(agent, SCREEN.name, settings=[*fixed, *settings])
    assert isinstance(config, Config)
    return ValueAgent(config, SCREEN, learner=learner)


def make_batch(seed: int) -> TransitionBatch:
    rng = np.random.default_rng(seed)
    return TransitionBatch(
        x=rng.integers(256, size=(32, 4, 84, 84), dtype=np.uint8),
        action=rng.integers(6, size=32),
        reward=rng.standard_normal(32, dtype=np.float32),
        discount=np.full(32, 0.99, np.float32),
        y=rng.integers(256, size=(32, 4, 84, 84), dtype=np.uint8),
        weight=np.ones(32, np.float32),
        index=np.arange(32),
    )


def observation(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(256, size=(1, 4, 84, 84), dtype=np.uint8)


@pytest.mark.parametrize("settings", [(), ("optimiser.kind=adam",)], ids=["RMSProp", "Adam"])
@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_two_threads_learn_bit_for_bit_what_one_does(agent: str, settings: tuple[str, ...]) -> None:
    alone, paired = make(agent, None, *settings), make(agent, Learner(1), *settings)
    for number in range(6):
        batch, acted = make_batch(number), []
        for one in (alone, paired):
            one.begin(batch)
            acted.append([one.act(observation(step), 10**7).tolist() for step in range(4)])
        assert acted[0] == acted[1]
        first, second = alone.finish(), paired.finish()
        assert first.loss == second.loss
        assert np.array_equal(first.td_error, second.td_error)
        if number == 2:
            alone.sync_target()
            paired.sync_target()
    ours, theirs = alone.tensors(), paired.tensors()
    assert ours.keys() == theirs.keys()
    assert not [name for name in ours if not torch.equal(ours[name], theirs[name])]


def test_tasks_of_a_thousand_updates_give_their_results_in_order() -> None:
    """Races would show in one of so many."""
    learner = Learner(1)

    def work(share: Share) -> list[list[int]]:
        squares = share([partial(pow, number, 2) for number in range(7)])
        return [squares, share([partial(operator.neg, square) for square in squares])]

    for _ in range(1_000):
        squares = [number**2 for number in range(7)]
        assert learner.start(work).join() == [squares, [-square for square in squares]]


def test_the_first_thread_takes_part_as_soon_as_it_joins() -> None:
    met = threading.Barrier(2, timeout=30)  # only two threads at once pass it
    assert Learner(1).start(lambda share: share([met.wait, met.wait])).join() in ([0, 1], [1, 0])


def test_nothing_that_acting_depends_on_changes_while_an_update_is_under_way() -> None:
    agent = make("noisynet-dqn", Learner(1))
    agent.learn(make_batch(0))
    before = {name: value.clone() for name, value in agent.tensors().items()}
    agent.begin(make_batch(1))
    for name, value in agent.tensors().items():
        assert torch.equal(before[name], value), name
    agent.finish()
    after = agent.tensors()
    changed = {
        name.partition(".")[0] for name in after if not torch.equal(before[name], after[name])
    }
    assert changed == {"online", "optimiser", "stream"}


@pytest.mark.parametrize("learner", [False, True])
def test_updates_are_begun_and_finished_in_turn(learner: bool) -> None:
    agent = make("dqn", Learner(1) if learner else None)
    with pytest.raises(RuntimeError, match="call begin first"):
        agent.finish()
    agent.begin(make_batch(0))
    with pytest.raises(RuntimeError, match="call finish first"):
        agent.begin(make_batch(1))
    assert np.isfinite(agent.finish().loss)


def test_a_loss_that_is_not_finite_is_told_by_the_thread_that_acts() -> None:
    agent = make("dqn", Learner(1))
    batch = make_batch(0)
    agent.begin(dataclasses.replace(batch, reward=np.full(32, np.nan, np.float32)))
    with pytest.raises(NonFiniteLoss, match="first in 'reward'"):
        agent.finish()
    assert np.isfinite(agent.learn(batch).loss)  # the weights are as they were


@pytest.mark.parametrize("column", ["x", "y"])
def test_what_fails_in_either_thread_is_raised_and_leaves_nobody_waiting(column: str) -> None:
    agent = make("dqn", Learner(1))
    changes: dict[str, Any] = {column: np.zeros((32, 3, 5, 5), np.uint8)}
    bad = dataclasses.replace(make_batch(0), **changes)
    with pytest.raises(RuntimeError, match="shape"):
        agent.learn(bad)


def test_what_is_shared_out_is_done_once_and_completely() -> None:
    done: list[int] = []
    learner = Learner(1)
    learner.share([partial(done.append, number) for number in range(200)])
    assert sorted(done) == list(range(200))
    with pytest.raises(ZeroDivisionError):
        learner.share([lambda: done.append(1 // 0)] * 5)
