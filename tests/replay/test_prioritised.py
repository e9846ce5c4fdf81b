"""Prioritised replay: golden sums, distribution, weights, updates, and a slow model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisynet.replay import FrameStore, PrioritisedReplay

FRAME = np.zeros((), np.uint8)


def make_store(**changes: Any) -> FrameStore:
    settings: dict[str, Any] = {"num_actions": 2, "stack": 2, "n_step": 1, "slack_rows": 2}
    return FrameStore(changes.pop("capacity", 16), (), **(settings | changes))


def filled(transitions: int, **changes: Any) -> FrameStore:
    """One unfinished episode."""
    store = make_store(**changes)
    store.begin(0, FRAME)
    for t in range(transitions):
        store.append(0, 0, float(t), 0.9, FRAME, False)
    return store


def priorities(replay: PrioritisedReplay) -> dict[int, float]:
    """Index → priority of every row of the windows."""
    leaves, store = replay.state()["priorities"], replay.store
    low, high = store.bounds()
    return {
        row * store.num_envs + env: float(leaves[store.slot(env, row)])
        for env in range(store.num_envs)
        for row in range(low[env], high[env])
    }


def test_new_transitions_have_the_largest_priority_so_far() -> None:
    store = filled(3)
    replay = PrioritisedReplay(store, alpha=1.0, epsilon=0.5)
    replay.sample(2, np.random.default_rng(0), beta=0.0)
    replay.update_priorities(np.array([0, 1]), np.array([-9.5, 1.0]))
    store.append(0, 0, 0.0, 0.9, FRAME, False)
    assert priorities(replay) == {0: 10.0, 1: 1.5, 2: 1.0, 3: 10.0}


def test_new_rows_have_the_largest_priority_at_that_time() -> None:
    store = filled(1)
    replay = PrioritisedReplay(store, alpha=1.0, epsilon=1e-9)
    store.append(0, 0, 0.0, 0.9, FRAME, False)  # before the update, though not seen until then
    replay.update_priorities(np.array([0]), np.array([5.0]))
    assert priorities(replay) == {0: 5.0 + 1e-9, 1: 1.0}


def test_priority_is_the_power_alpha_of_the_error() -> None:
    replay = PrioritisedReplay(filled(2), alpha=0.5, epsilon=0.25)
    replay.update_priorities(np.array([0, 1]), np.array([0.0, -2.0], np.float32))
    assert priorities(replay) == {0: 0.5, 1: 1.5}


def test_transitions_are_sampled_in_proportion_to_their_priorities() -> None:
    store = filled(40, capacity=32)
    replay = PrioritisedReplay(store, alpha=1.0, epsilon=1e-9)
    index = np.array(sorted(k for k, p in priorities(replay).items() if p > 0))
    errors = np.random.default_rng(0).exponential(size=len(index)) + 0.05
    replay.update_priorities(index, errors)
    rng = np.random.default_rng(1)
    drawn = np.concatenate([replay.sample(10, rng, beta=0.5).index for _ in range(8_000)])
    counts = np.array([(drawn == k).sum() for k in index])
    expected = errors / errors.sum() * len(drawn)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(index) - 1
    assert counts.sum() == len(drawn)
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5  # strata only make it smaller


def test_each_stratum_gives_one_transition() -> None:
    replay = PrioritisedReplay(filled(8, stack=1), alpha=0.7)  # equal priorities
    batch = replay.sample(8, np.random.default_rng(0), beta=1.0)
    assert batch.index.tolist() == list(range(8))


@pytest.mark.parametrize(("beta", "expected"), [(0.0, [1, 1, 1]), (1.0, [1, 0.5, 0.25])])
def test_weights_have_golden_values(beta: float, expected: list[float]) -> None:
    replay = PrioritisedReplay(filled(3), alpha=1.0, epsilon=1e-12)
    replay.update_priorities(np.arange(3), np.array([1.0, 2.0, 4.0]))
    batch = replay.sample(700, np.random.default_rng(0), beta=beta)
    assert set(batch.index.tolist()) == {0, 1, 2}
    np.testing.assert_allclose(batch.weight, np.array(expected)[batch.index], rtol=1e-6)


def test_weights_are_relative_to_the_largest_of_the_batch() -> None:
    replay = PrioritisedReplay(filled(3), alpha=1.0, epsilon=1e-12)
    replay.update_priorities(np.arange(3), np.array([1e-9, 2.0, 4.0]))  # 0 is hardly ever drawn
    batch = replay.sample(64, np.random.default_rng(0), beta=0.5)
    assert batch.weight.max() == 1.0
    np.testing.assert_allclose(batch.weight[batch.index == 2], 0.5**0.5, rtol=1e-6)


def test_updates_of_transitions_that_left_the_window_are_ignored() -> None:
    store = filled(5)
    replay = PrioritisedReplay(store, alpha=1.0)
    index = replay.sample(5, np.random.default_rng(0), beta=1.0).index
    for _ in range(60):  # the slots are in other hands now
        store.append(0, 0, 0.0, 0.9, FRAME, False)
    before = priorities(replay)
    replay.update_priorities(index, np.full(5, 0.125))
    assert priorities(replay) == before


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("n_step", [1, 3])
@settings(derandomize=True, max_examples=40, deadline=None)
@given(data=st.data())
def test_priorities_agree_with_a_slow_model(
    num_envs: int, n_step: int, data: st.DataObject
) -> None:
    store = make_store(capacity=9 * num_envs, num_envs=num_envs, n_step=n_step, stack=3)
    replay = PrioritisedReplay(store, alpha=0.5, epsilon=0.01)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    model: dict[int, float] = {}
    largest, within = 1.0, set[int]()
    for _ in range(data.draw(st.integers(1, 80))):
        env = int(rng.integers(num_envs))
        if env not in within:
            store.begin(env, FRAME)
            within.add(env)
        over = bool(rng.random() < 0.15)
        store.append(env, 0, 0.0, 0.9 * (rng.random() < 0.9), FRAME, over)
        within -= {env} if over else set()
        model = {index: model.get(index, largest) for index in sampleable(store)}
        if model and rng.random() < 0.3:
            index = replay.sample(4, rng, beta=1.0).index
            assert set(index.tolist()) <= set(model)
            errors = rng.normal(size=4) * 3
            replay.update_priorities(index, errors)
            for k, p in zip(index.tolist(), (np.abs(errors) + 0.01) ** 0.5, strict=True):
                model[k], largest = p, max(largest, p)
    assert {k: p for k, p in priorities(replay).items() if p > 0} == model


def sampleable(store: FrameStore) -> list[int]:
    low, high = store.bounds()
    return [
        row * store.num_envs + env
        for env in range(store.num_envs)
        for row in range(low[env], high[env])
        if store.can_start(np.array([env]), np.array([row]), low)[0]
    ]


@pytest.mark.parametrize("mapped", [False, True])
def test_a_restored_replay_continues_bit_for_bit(mapped: bool, tmp_path: Path) -> None:
    changes = {"slack_rows": 40, "folder": tmp_path if mapped else None}
    store = filled(37, **changes)
    replay = PrioritisedReplay(store)

    def learn(replay: PrioritisedReplay, rng: np.random.Generator) -> list[list[float]]:
        seen = []
        for _ in range(20):
            replay.store.append(0, 1, float(rng.normal()), 0.9, FRAME, False)
            batch = replay.sample(8, rng, beta=0.4)
            replay.update_priorities(batch.index, rng.normal(size=8))
            seen += [batch.index.tolist(), batch.weight.tolist(), batch.reward.tolist()]
        return seen

    learn(replay, np.random.default_rng(0))
    state = replay.state()
    expected = learn(replay, np.random.default_rng(1))
    resumed = PrioritisedReplay(make_store(**changes))
    resumed.restore(state)
    assert learn(resumed, np.random.default_rng(1)) == expected
    assert resumed.store.digest() == store.digest()
    assert resumed.state()["max_priority"] == replay.state()["max_priority"]


def test_a_state_of_other_exponents_is_rejected() -> None:
    state = PrioritisedReplay(filled(3), alpha=0.6).state()
    with pytest.raises(ValueError, match=r"alpha 0\.5 .* got 0\.6"):
        PrioritisedReplay(filled(3), alpha=0.5).restore(state)


def test_invalid_arguments_are_rejected() -> None:
    store, rng = filled(3), np.random.default_rng(0)
    with pytest.raises(ValueError, match="expected alpha in"):
        PrioritisedReplay(store, alpha=-0.1)
    with pytest.raises(ValueError, match="epsilon > 0"):
        PrioritisedReplay(store, epsilon=0.0)
    replay = PrioritisedReplay(store)
    with pytest.raises(ValueError, match="beta must be in"):
        replay.sample(4, rng, beta=1.5)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        replay.sample(0, rng, beta=1.0)
    with pytest.raises(ValueError, match="one shape"):
        replay.update_priorities(np.arange(3), np.zeros(2))
    with pytest.raises(ValueError, match="must be finite"):
        replay.update_priorities(np.arange(2), np.array([1.0, np.nan]))
    with pytest.raises(IndexError, match="expected the index of a sampled batch"):
        replay.update_priorities(np.array([3]), np.array([1.0]))
    with pytest.raises(ValueError, match="no complete transition yet"):
        PrioritisedReplay(make_store()).sample(4, rng, beta=1.0)


def test_a_ring_for_all_rows_samples_the_same_and_may_become_longer() -> None:
    def learn(replay: PrioritisedReplay, rng: np.random.Generator) -> list[list[float]]:
        seen = []
        for _ in range(9):
            replay.store.append(0, 1, float(rng.normal()), 0.9, FRAME, False)
            batch = replay.sample(8, rng, beta=0.4)
            replay.update_priorities(batch.index, rng.normal(size=8))
            seen += [batch.index.tolist(), batch.weight.tolist()]
        return seen

    whole, short = (PrioritisedReplay(filled(5, **m, capacity=60)) for m in ({}, {"most_rows": 15}))
    assert learn(short, np.random.default_rng(0)) == learn(whole, np.random.default_rng(0))
    longer = PrioritisedReplay(make_store(capacity=60))
    longer.restore(short.state())
    assert learn(longer, np.random.default_rng(1)) == learn(whole, np.random.default_rng(1))
