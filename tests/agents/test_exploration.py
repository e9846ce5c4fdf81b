"""ε-greedy exploration: its schedule and its choices."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from noisynet.agents.exploration import epsilon_at, epsilon_greedy
from noisynet.config import EpsilonGreedy

SCHEDULE = EpsilonGreedy(initial=1.0, final=0.1, anneal_steps=100, evaluation=0.05)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 1.0),
        (49, 1.0),
        (50, 1.0),
        (51, 0.991),
        (100, 0.55),
        (149, 0.109),
        (150, 0.1),
        (999, 0.1),
    ],
)
def test_epsilon_falls_linearly_from_the_start_of_learning(step: int, expected: float) -> None:
    assert epsilon_at(SCHEDULE, step, starts_steps=50) == pytest.approx(expected, abs=1e-12)


def test_the_schedule_of_nature_ends_a_million_steps_after_the_start() -> None:
    nature = EpsilonGreedy()
    assert epsilon_at(nature, 50_000, 50_000) == 1.0
    assert epsilon_at(nature, 550_000, 50_000) == pytest.approx(0.55)
    assert epsilon_at(nature, 1_050_000, 50_000) == pytest.approx(0.1)


def test_no_epsilon_is_always_greedy() -> None:
    greedy = np.arange(1_000) % 4
    actions = epsilon_greedy(lambda: greedy, 0.0, 1_000, 4, np.random.default_rng(0))
    assert np.array_equal(actions, greedy)


def test_epsilon_is_the_share_of_uniform_actions() -> None:
    greedy = np.zeros(100_000, np.int64)
    actions = epsilon_greedy(lambda: greedy, 0.4, 100_000, 4, np.random.default_rng(0))
    shares = np.bincount(actions, minlength=4) / len(actions)
    np.testing.assert_allclose(shares, [0.7, 0.1, 0.1, 0.1], atol=0.005)


def test_full_epsilon_never_asks_for_the_greedy_action() -> None:
    def greedy() -> NDArray[np.int64]:
        raise AssertionError("a value was computed in vain")

    actions = epsilon_greedy(greedy, 1.0, 1_000, 4, np.random.default_rng(0))
    assert set(actions.tolist()) == {0, 1, 2, 3}


def test_the_stream_advances_alike_whatever_epsilon_is() -> None:
    after = []
    for epsilon in (0.0, 0.5, 1.0):
        stream = np.random.default_rng(0)
        epsilon_greedy(lambda: np.zeros(3, np.int64), epsilon, 3, 4, stream)
        after.append(float(stream.random()))
    assert after[0] == after[1] == after[2]
