"""ε-greedy exploration and its schedule; sampling from a policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noisynet.agents.exploration import epsilon_at, epsilon_greedy, sampled_actions
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
def test_epsilon_is_annealed_linearly_from_the_start_of_learning(
    step: int, expected: float
) -> None:
    assert epsilon_at(SCHEDULE, step, starts_steps=50) == pytest.approx(expected, abs=1e-12)


def test_the_default_schedule_ends_a_million_steps_after_the_start() -> None:
    nature = EpsilonGreedy()
    assert epsilon_at(nature, 50_000, 50_000) == 1.0
    assert epsilon_at(nature, 550_000, 50_000) == pytest.approx(0.55)
    assert epsilon_at(nature, 1_050_000, 50_000) == pytest.approx(0.1)


def test_zero_epsilon_is_always_greedy() -> None:
    greedy = np.arange(1_000) % 4
    actions = epsilon_greedy(lambda: greedy, 0.0, 1_000, 4, np.random.default_rng(0))
    assert np.array_equal(actions, greedy)


def test_epsilon_is_the_share_of_uniform_actions() -> None:
    greedy = np.zeros(100_000, np.int64)
    actions = epsilon_greedy(lambda: greedy, 0.4, 100_000, 4, np.random.default_rng(0))
    shares = np.bincount(actions, minlength=4) / len(actions)
    np.testing.assert_allclose(shares, [0.7, 0.1, 0.1, 0.1], atol=0.005)


def test_epsilon_one_never_computes_the_greedy_action() -> None:
    def greedy() -> NDArray[np.int64]:
        raise AssertionError("not needed")

    actions = epsilon_greedy(greedy, 1.0, 1_000, 4, np.random.default_rng(0))
    assert set(actions.tolist()) == {0, 1, 2, 3}


def test_the_stream_advances_equally_for_every_epsilon() -> None:
    after = []
    for epsilon in (0.0, 0.5, 1.0):
        stream = np.random.default_rng(0)
        epsilon_greedy(lambda: np.zeros(3, np.int64), epsilon, 3, 4, stream)
        after.append(float(stream.random()))
    assert after[0] == after[1] == after[2]


# --- sampling from a policy ----------------------------------------------------------------------


def test_actions_have_the_frequencies_of_the_policy() -> None:
    pi = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = np.repeat(np.log(pi).astype(np.float32)[None] + 3, 5_000, axis=0)
    actions = sampled_actions(logits, np.random.default_rng(0))
    assert actions.dtype == np.int64
    counts = np.bincount(actions, minlength=4)
    assert counts[1] == 0
    assert (np.abs(counts - 5_000 * pi) <= 4 * np.sqrt(5_000 * pi * (1 - pi))).all()


def test_each_row_is_sampled_from_its_own_policy() -> None:
    logits = np.full((4, 4), -1e4, np.float32)
    logits[np.arange(4), [2, 0, 3, 1]] = 1e4
    assert sampled_actions(logits, np.random.default_rng(0)).tolist() == [2, 0, 3, 1]


def test_sampling_draws_one_number_for_each_row() -> None:
    stream, other = np.random.default_rng(0), np.random.default_rng(0)
    sampled_actions(np.zeros((3, 7), np.float32), stream)
    other.random(3)
    assert stream.random() == other.random()


class Constant(np.random.Generator):
    """Draws the same number every time."""

    drawn = 0.0

    def random(self, size: Any = None) -> Any:  # type: ignore[override]
        return np.full(size, self.drawn)


@pytest.mark.parametrize(("drawn", "expected"), [(0.0, 0), (1 - 2**-53, 2), (1.0, 2)])
def test_the_ends_of_the_range_are_the_first_and_the_last_action(
    drawn: float, expected: int
) -> None:
    stream = Constant(np.random.PCG64(0))
    stream.drawn = drawn
    assert sampled_actions(np.zeros((1, 3), np.float32), stream).tolist() == [expected]


def test_non_finite_logits_still_give_an_action() -> None:
    actions = sampled_actions(np.full((2, 3), np.nan, np.float32), np.random.default_rng(0))
    assert ((actions >= 0) & (actions < 3)).all()
