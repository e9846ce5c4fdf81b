"""Uniform sampling: exactly uniform, reproducible, and resumed bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from noisynet.replay import FrameStore, TransitionBatch, UniformReplay


def make_store(folder: Path | None = None, num_envs: int = 2, n_step: int = 1) -> FrameStore:
    return FrameStore(
        100 * num_envs,
        (2, 2),
        num_actions=4,
        num_envs=num_envs,
        stack=3,
        n_step=n_step,
        slack_rows=50,
        folder=folder,
    )


def play(store: FrameStore, steps: int, rng: np.random.Generator, open_: set[int]) -> None:
    """Random steps; `open_` holds the environments within an episode."""
    for _ in range(steps):
        env = int(rng.integers(store.num_envs))
        if env not in open_:
            store.begin(env, rng.integers(256, size=(2, 2), dtype=np.uint8))
            open_.add(env)
        over = bool(rng.random() < 0.1)
        discount = 0.0 if rng.random() < 0.15 else 0.99
        frame = rng.integers(256, size=(2, 2), dtype=np.uint8)
        store.append(env, int(rng.integers(4)), rng.normal(), discount, frame, over)
        if over:
            open_.discard(env)


def assert_same(a: TransitionBatch, b: TransitionBatch) -> None:
    for name in ("x", "action", "reward", "discount", "y", "weight", "index"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), strict=True)


@pytest.mark.parametrize("n_step", [1, 3])
def test_every_transition_is_sampled_with_equal_probability(n_step: int) -> None:
    store = make_store(num_envs=3, n_step=n_step)
    # Very different fills: a window that wrapped, a part of one, and two transitions.
    for env, steps in enumerate((250, 40, 2)):
        for t in range(steps):
            if t % 13 == 0:
                store.begin(env, np.zeros((2, 2), np.uint8))
            over = t % 13 == 12
            store.append(env, 0, 0.0, 0.9, np.zeros((2, 2), np.uint8), over)
    replay = UniformReplay(store)
    rng = np.random.default_rng(1)
    index = np.concatenate([replay.sample(64, rng).index for _ in range(3000)])
    seen, counts = np.unique(index, return_counts=True)
    assert len(seen) == len(replay)
    expected = len(index) / len(replay)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(seen) - 1
    assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5


def test_weights_are_ones() -> None:
    store = make_store()
    play(store, 50, np.random.default_rng(0), set())
    assert UniformReplay(store).sample(5, np.random.default_rng(0)).weight.tolist() == [1.0] * 5


def test_the_same_stream_samples_the_same_batches() -> None:
    store = make_store()
    play(store, 300, np.random.default_rng(0), set())
    one, two = UniformReplay(store), UniformReplay(store)
    streams = np.random.default_rng(5), np.random.default_rng(5)
    for _ in range(20):
        assert_same(one.sample(32, streams[0]), two.sample(32, streams[1]))


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("steps", [1, 60, 500])
def test_a_restored_replay_continues_bit_for_bit(steps: int, mapped: bool, tmp_path: Path) -> None:
    folder = tmp_path / "replay" if mapped else None
    store, rng, open_ = make_store(folder), np.random.default_rng(0), set[int]()
    play(store, steps, rng, open_)
    replay = UniformReplay(store)
    state, stream, opened = replay.state(), rng.bit_generator.state, set(open_)
    if mapped:
        state = json.loads(json.dumps(state))  # nothing but counters
    digest = store.digest()

    play(store, 60, rng, open_)  # a future that is lost in a crash, or happens
    draws = [replay.sample(32, rng).copy() for _ in range(5)]
    later = store.digest()
    store.flush()
    play(store, 5, rng, open_)

    resumed = UniformReplay(make_store(folder))
    resumed.restore(state)
    assert resumed.store.digest() == digest
    again, open_again = np.random.default_rng(), set(opened)
    again.bit_generator.state = stream
    play(resumed.store, 60, again, open_again)
    assert resumed.store.digest() == later
    for batch in draws:
        assert_same(batch, resumed.sample(32, again))


@pytest.mark.parametrize("batch_size", [1, 32])
def test_sampling_before_the_first_complete_transition_is_an_error(batch_size: int) -> None:
    store = make_store(num_envs=1, n_step=3)
    replay, rng = UniformReplay(store), np.random.default_rng(0)
    frame = np.zeros((2, 2), np.uint8)
    for _ in range(2):
        with pytest.raises(ValueError, match="no complete transition yet"):
            replay.sample(batch_size, rng)
        if not store.written[0]:
            store.begin(0, frame)
            store.append(0, 0, 0.0, 0.9, frame, False)
            store.append(0, 0, 0.0, 0.9, frame, False)
    assert len(replay) == 0
    store.append(0, 0, 0.0, 0.9, frame, False)
    assert replay.sample(batch_size, rng).index.tolist() == [0] * batch_size


def test_a_window_without_a_transition_is_an_error_and_not_an_endless_loop() -> None:
    store = FrameStore(8, (), num_actions=1, stack=4, n_step=1)
    store.begin(0, np.array(0, np.uint8))
    store.append(0, 0, 0.0, 0.9, np.array(1, np.uint8), True)
    store.columns.starts[:] = False  # no caller can do this; the search must end all the same
    with pytest.raises(ValueError, match="no complete transition yet"):
        UniformReplay(store).sample(4, np.random.default_rng(0))


def test_an_empty_batch_is_rejected() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        UniformReplay(make_store()).sample(0, np.random.default_rng(0))
