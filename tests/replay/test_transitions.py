"""Every stored transition against a slow reference that keeps all rows in plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisynet.replay import FrameStore, PrioritisedReplay, TransitionBatch, UniformReplay
from noisynet.replay.transitions import BatchBuilder

Frame = npt.NDArray[np.generic]
Event = Literal["step", "life", "terminate", "truncate"]
EVENTS: tuple[Event, ...] = ("step", "life", "terminate", "truncate")
MOSTLY_STEPS: tuple[Event, ...] = (*EVENTS[:1] * 6, *EVENTS)
GAMMA = 0.9


class Transition(NamedTuple):
    x: Frame
    action: int
    reward: float
    discount: float
    y: Frame


@dataclass
class Row:
    episode: int
    frame: Frame
    action: int = 0
    reward: float = 0.0
    discount: float = 0.0
    kind: Literal["pending", "transition", "final"] = "pending"


@dataclass
class Reference:
    """All rows ever written, and what a replay should make of them, by the definitions."""

    num_envs: int
    stack: int
    n_step: int
    window: int
    dtype: str
    rows: list[list[Row]] = field(default_factory=list)
    episodes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = [[] for _ in range(self.num_envs)]
        self.episodes = [0] * self.num_envs

    def play(self, store: FrameStore, env: int, event: Event) -> None:
        """One step of an environment whose frames say (1 + env, episode, t)."""
        rows = self.rows[env]
        if not rows or rows[-1].kind == "final":
            self.episodes[env] += 1
            rows.append(Row(self.episodes[env], self.frame(env, 0)))
            store.begin(env, rows[-1].frame)
        now = rows[-1]
        t = int(now.frame.flat[2])
        now.action, now.reward = len(rows) % 5, float(len(rows) * 7 % 11 - 5)
        now.discount = 0.0 if event in ("life", "terminate") else float(np.float32(GAMMA))
        now.kind = "transition"
        over = event in ("terminate", "truncate")
        rows.append(Row(now.episode, self.frame(env, t + 1), kind="final" if over else "pending"))
        store.append(env, now.action, now.reward, now.discount, rows[-1].frame, over)

    def frame(self, env: int, t: int) -> Frame:
        return np.array([[1 + env, self.episodes[env] % 250, t % 250]]).astype(self.dtype)

    def transitions(self) -> dict[int, Transition]:
        """What can be sampled now, by index."""
        found = {}
        for env, rows in enumerate(self.rows):
            for i in range(max(0, len(rows) - self.window), len(rows)):
                transition = self.transition(rows, i)
                if transition is not None:
                    found[i * self.num_envs + env] = transition
        return found

    def transition(self, rows: list[Row], i: int) -> Transition | None:
        x = self.observe(rows, i)
        if rows[i].kind != "transition" or x is None:
            return None
        reward, discount, j = 0.0, 1.0, i
        for _ in range(self.n_step):
            if rows[j].kind == "pending":
                return None  # the return is not complete
            if rows[j].kind == "final":
                break
            reward += discount * rows[j].reward
            discount *= rows[j].discount
            j += 1
            if discount == 0:
                break
        y = self.observe(rows, j)
        assert y is not None
        return Transition(x, rows[i].action, reward, discount, y)

    def observe(self, rows: list[Row], i: int) -> Frame | None:
        frames = []
        for j in range(i - self.stack + 1, i + 1):
            if j < 0 or rows[j].episode != rows[i].episode:
                frames.append(np.zeros_like(rows[i].frame))
            elif j < len(rows) - self.window:
                return None
            else:
                frames.append(rows[j].frame)
        return np.stack(frames)


def assert_batch_is_right(batch: TransitionBatch, expected: dict[int, Transition]) -> None:
    assert batch.action.dtype == batch.index.dtype == np.int64
    assert batch.reward.dtype == batch.discount.dtype == batch.weight.dtype == np.float32
    for b, index in enumerate(batch.index.tolist()):
        want = expected[index]
        np.testing.assert_array_equal(batch.x[b], want.x, strict=True)
        np.testing.assert_array_equal(batch.y[b], want.y, strict=True)
        assert batch.action[b] == want.action
        assert batch.reward[b] == np.float32(want.reward)
        assert batch.discount[b] == np.float32(want.discount)


def assert_store_is_right(store: FrameStore, reference: Reference) -> None:
    """The same transitions can be sampled, and each of them is as it should be."""
    expected = reference.transitions()
    low, high = store.bounds()
    rows = [(e, r) for e in range(store.num_envs) for r in range(low[e], high[e])]
    env, row = np.array(rows, np.int64).reshape(-1, 2).T
    fits = store.can_start(env, row, low)
    assert set((row[fits] * store.num_envs + env[fits]).tolist()) == set(expected)
    assert store.count() == len(expected)
    ones = np.ones(int(fits.sum()), np.float32)
    assert_batch_is_right(BatchBuilder(store).build(env[fits], row[fits], ones), expected)


def make(
    num_envs: int, stack: int, n_step: int, dtype: str = "uint8", folder: Path | None = None
) -> tuple[FrameStore, Reference]:
    window = 11
    store = FrameStore(
        window * num_envs + num_envs - 1,
        (1, 3),
        frame_dtype=dtype,
        num_actions=5,
        num_envs=num_envs,
        stack=stack,
        n_step=n_step,
        slack_rows=3,
        folder=folder,
    )
    return store, Reference(num_envs, stack, n_step, window, dtype)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("n_step", [1, 3])
@settings(derandomize=True, max_examples=35, deadline=None)
@given(data=st.data())
def test_every_transition_is_right_through_ends_life_losses_and_wraps(
    num_envs: int, stack: int, n_step: int, data: st.DataObject
) -> None:
    store, reference = make(num_envs, stack, n_step)
    # Many plain steps, so that episodes outlast the stack, and rings wrap.
    envs, last = st.integers(0, num_envs - 1), st.sampled_from(MOSTLY_STEPS)
    events = st.tuples(envs, last, st.integers(1, 9))
    for env, event, steps in data.draw(st.lists(events, max_size=25)):
        for _ in range(steps):
            reference.play(store, env, "step")
        reference.play(store, env, event)
        assert_store_is_right(store, reference)


@pytest.mark.parametrize(
    ("num_envs", "stack", "n_step", "dtype"),
    [(*sizes, "uint8") for sizes in product((1, 3), (1, 4), (1, 3))] + [(3, 4, 3, "float32")],
)
def test_every_sampled_transition_is_right_and_none_is_left_out(
    num_envs: int, stack: int, n_step: int, dtype: str, tmp_path: Path
) -> None:
    store, reference = make(num_envs, stack, n_step, dtype, folder=tmp_path)
    uniform, prioritised = UniformReplay(store), PrioritisedReplay(store)
    rng = np.random.default_rng(0)
    for step in range(110):
        event = EVENTS[rng.choice(4, p=[0.7, 0.1, 0.1, 0.1])]
        reference.play(store, int(rng.integers(num_envs)), event)
        expected = reference.transitions()
        if not expected:
            continue
        seen = set()
        for _ in range(15 if step % 10 == 0 else 1):
            batch = uniform.sample(32, rng)
            assert_batch_is_right(batch, expected)
            seen |= set(batch.index.tolist())
            assert_batch_is_right(prioritised.sample(8, rng, beta=1.0), expected)
        assert step % 10 or seen == set(expected)


@pytest.mark.parametrize("event", ["terminate", "truncate"])
def test_the_last_transition_of_an_episode_sees_the_true_final_frame(event: Event) -> None:
    store, reference = make(1, 2, 1)
    for now in ("step", "step", event, "step"):
        reference.play(store, 0, now)
    batch = BatchBuilder(store).build(np.array([0]), np.array([2]), np.ones(1, np.float32))
    assert batch.y[0].tolist() == [[[1, 1, 2]], [[1, 1, 3]]]
    assert batch.discount[0] == (0.0 if event == "terminate" else np.float32(GAMMA))


def test_a_lost_life_has_discount_zero_and_does_not_end_the_stack() -> None:
    store, reference = make(1, 3, 1)
    for now in ("step", "step", "life", "step"):
        reference.play(store, 0, now)
    batch = BatchBuilder(store).build(np.array([0, 0]), np.array([2, 3]), np.ones(2, np.float32))
    assert batch.discount.tolist() == [0.0, np.float32(GAMMA)]
    assert batch.x[1, :, 0, 2].tolist() == [1, 2, 3]


def test_three_step_returns_have_golden_values() -> None:
    store = FrameStore(20, (), num_actions=1, stack=1, n_step=3)
    store.begin(0, np.array(0, np.uint8))
    steps = [(1.0, 0.5), (2.0, 0.5), (4.0, 0.5), (8.0, 0.0), (16.0, 0.5), (32.0, 0.5)]
    for t, (reward, discount) in enumerate(steps):
        store.append(0, 0, reward, discount, np.array(t + 1, np.uint8), t == 5)
    rows = np.arange(6)
    batch = BatchBuilder(store).build(rows * 0, rows, np.ones(6, np.float32))
    #                               1+2/2+4/4  2+4/2+8/4  4+8/2  8   16+32/2  32
    assert batch.reward.tolist() == [3.0, 6.0, 8.0, 8.0, 32.0, 32.0]
    assert batch.discount.tolist() == [0.125, 0.0, 0.0, 0.0, 0.25, 0.5]
    assert batch.y.reshape(6).tolist() == [3, 4, 4, 4, 6, 6]


def test_with_one_step_returns_y_shares_the_memory_of_x() -> None:
    store, reference = make(1, 4, 1)
    for _ in range(9):
        reference.play(store, 0, "step")
    batch = UniformReplay(store).sample(8, np.random.default_rng(0))
    assert np.shares_memory(batch.x, batch.y)


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_copy_outlives_the_next_batch(n_step: int) -> None:
    store, reference = make(1, 4, n_step)
    for _ in range(9):
        reference.play(store, 0, "step")
    replay, rng = UniformReplay(store), np.random.default_rng(0)
    kept = replay.sample(8, rng).copy()
    assert_batch_is_right(kept, reference.transitions())
    replay.sample(8, rng)
    assert_batch_is_right(kept, reference.transitions())
