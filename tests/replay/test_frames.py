"""The store itself: its protocol, its bytes, its state and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from noisynet.replay import FrameStore

WINDOW, SLACK, STACK = 10, 6, 3


def make_store(folder: Path | None = None, **changes: Any) -> FrameStore:
    settings: dict[str, Any] = {"num_actions": 4, "stack": STACK, "slack_rows": SLACK}
    settings |= {"folder": folder} | changes
    return FrameStore(settings.pop("capacity", WINDOW), (2,), **settings)


def frame(value: int) -> npt.NDArray[np.uint8]:
    return np.full(2, value, np.uint8)


def play(store: FrameStore, steps: int, first: int = 0) -> None:
    """Steps of one unfinished episode whose frames count up; begins it when `first` is 0."""
    if first == 0:
        store.begin(0, frame(0))
    for t in range(first, first + steps):
        store.append(0, t % 4, float(t), 0.9, frame(t + 1), False)


def stacks(store: FrameStore, row: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The first values of the stacks at rows of environment 0."""
    out = np.empty((len(row), STACK, 2), np.uint8)
    store.read_runs(np.zeros_like(row), row, 0, out)
    return out[:, :, 0]


def test_frames_before_the_first_of_an_episode_are_zeros() -> None:
    store = make_store()
    store.begin(0, frame(7))
    store.append(0, 0, 0.0, 0.9, frame(8), True)
    store.begin(0, frame(9))
    assert stacks(store, np.arange(3)).tolist() == [[0, 0, 7], [0, 7, 8], [0, 0, 9]]


def test_the_window_holds_the_newest_rows_and_the_ring_keeps_more() -> None:
    store = make_store()
    assert store.ring_rows == WINDOW + SLACK + STACK + 1
    play(store, 40)
    low, high = store.bounds()
    assert (low.tolist(), high.tolist()) == ([41 - WINDOW], [40])


def test_capacity_is_shared_among_environments() -> None:
    assert make_store(capacity=WINDOW * 3 + 2, num_envs=3).window_rows == WINDOW


def test_steps_outside_an_episode_and_starts_inside_one_are_rejected() -> None:
    store = make_store()
    with pytest.raises(RuntimeError, match="no running episode: call begin first"):
        store.append(0, 0, 0.0, 0.9, frame(1), False)
    store.begin(0, frame(0))
    with pytest.raises(RuntimeError, match="has a running episode: end it"):
        store.begin(0, frame(0))
    store.append(0, 0, 0.0, 0.9, frame(1), True)
    with pytest.raises(RuntimeError, match="no running episode"):
        store.append(0, 0, 0.0, 0.9, frame(1), False)


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        ((1, 0, 0.0, 0.9, frame(1)), IndexError, r"env must be in 0\.\.0, got 1"),
        ((0, 4, 0.0, 0.9, frame(1)), ValueError, r"action must be in 0\.\.3 \(num_actions\), got"),
        ((0, -1, 0.0, 0.9, frame(1)), ValueError, "action must be in"),
        ((0, 0, float("nan"), 0.9, frame(1)), ValueError, "finite float32 reward"),
        ((0, 0, 1e39, 0.9, frame(1)), ValueError, "finite float32 reward"),
        ((0, 0, 0.0, 1.1, frame(1)), ValueError, r"discount in \[0, 1\]"),
        ((0, 0, 0.0, float("nan"), frame(1)), ValueError, r"discount in \[0, 1\]"),
        ((0, 0, 0.0, 0.9, np.zeros(3, np.uint8)), ValueError, r"shape \(2,\).*got \(3,\)"),
        ((0, 0, 0.0, 0.9, np.zeros(2)), ValueError, "dtype uint8, got .* float64"),
    ],
)
def test_an_invalid_step_is_rejected_and_changes_nothing(
    step: tuple[int, int, float, float, npt.NDArray[Any]], error: type[Exception], message: str
) -> None:
    store = make_store()
    store.begin(0, frame(0))
    before = store.digest()
    with pytest.raises(error, match=message):
        store.append(*step, False)
    assert store.digest() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capacity": 3}, r"capacity must be at least num_envs \* \(stack \+ n_step\) = 4, got 3"),
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"stack": 0}, "stack must be at least 1"),
        ({"n_step": 0}, "n_step must be at least 1"),
        ({"slack_rows": -1}, "slack_rows must be at least 0"),
    ],
)
def test_impossible_settings_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_store(**change)


def test_the_digest_does_not_depend_on_where_the_ring_wraps() -> None:
    one, two = make_store(), make_store(slack_rows=SLACK + 1)
    for store in (one, two):
        play(store, 45)
    assert one.digest() == two.digest()
    play(two, 1, first=45)
    assert one.digest() != two.digest()


@pytest.mark.parametrize("what", ["frames", "actions", "rewards", "discounts", "ages", "starts"])
@pytest.mark.parametrize("row", [4, 11, 12])
def test_a_changed_row_of_the_window_is_detected(what: str, row: int) -> None:
    store = make_store()
    play(store, 10)
    store.append(0, 0, 0.0, 0.9, frame(3), True)  # row 11 is complete without a transition
    store.begin(0, frame(5))
    play(store, 1, first=1)
    state = store.state()
    make_store().restore(state)
    column = state["columns"][what]
    column[row] = ~column[row] if what == "starts" else column[row] + 1
    with pytest.raises(ValueError, match="do not match their SHA-256"):
        make_store().restore(state)


def test_the_row_that_waits_for_its_action_enters_the_digest_with_it() -> None:
    one, two = make_store(), make_store()
    for store, value in ((one, 6), (two, 7)):
        play(store, 5)
        store.columns.frames[5] = value
    assert one.digest() == two.digest()
    for store in (one, two):
        store.append(0, 0, 0.0, 0.9, frame(6), False)
    assert one.digest() != two.digest()


def test_the_digest_does_not_depend_on_rows_outside_the_window() -> None:
    store = make_store()
    play(store, 14)
    before = store.digest()
    store.columns.frames[store.slot(0, 4)] = 99
    store.columns.frames[store.slot(0, 15)] = 99
    assert store.digest() == before


def test_a_reopened_folder_is_empty_until_restored_and_then_the_same(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    play(store, 33)
    store.flush()
    state, digest = store.state(), store.digest()
    assert "columns" not in state  # a million frames are not copied
    reopened = make_store(tmp_path)
    assert reopened.count() == 0
    reopened.restore(state)
    assert reopened.digest() == digest
    assert reopened.count() == store.count()


def test_a_state_survives_as_many_rows_as_there_is_slack_and_no_more(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    play(store, 30)
    state, digest = store.state(), store.digest()
    spare = SLACK + STACK + 1
    play(store, spare, first=30)
    reopened = make_store(tmp_path)
    reopened.restore(state)
    assert reopened.digest() == digest

    play(reopened, spare + 1, first=30)
    with pytest.raises(ValueError, match="not all stored: they were overwritten"):
        make_store(tmp_path).restore(state)


def test_after_two_crashes_the_older_state_is_still_valid(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    play(store, 20)
    older, digest = store.state(), store.digest()
    play(store, 4, first=20)
    newer = store.state()
    play(store, 4, first=24)
    for state in (newer, older, newer, older):
        store = make_store(tmp_path)
        store.restore(state)
    assert store.digest() == digest


def test_a_restored_store_ignores_the_action_that_a_killed_process_gave_the_newest_row(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path)
    play(store, 8)
    state, digest = store.state(), store.digest()
    store.append(0, 3, 5.0, 0.0, frame(99), True)
    store.restore(state)
    assert store.digest() == digest
    play(store, 1, first=8)  # the episode is under way again
    other = make_store()
    play(other, 9)
    assert store.digest() == other.digest()


def test_a_state_in_memory_carries_its_rows_and_is_not_touched_by_later_ones() -> None:
    store = make_store()
    play(store, 12)
    state, digest = store.state(), store.digest()
    play(store, 30, first=12)
    store.restore(state)
    assert store.digest() == digest
    other = make_store()
    other.restore(state)
    assert other.digest() == digest


def test_a_state_in_memory_can_move_to_a_folder_but_not_the_other_way(tmp_path: Path) -> None:
    store = make_store()
    play(store, 12)
    mapped = make_store(tmp_path)
    mapped.restore(store.state())
    assert mapped.digest() == store.digest()
    with pytest.raises(ValueError, match="overwritten or never written"):
        make_store().restore(mapped.state())


def test_a_state_of_other_settings_is_rejected() -> None:
    store = make_store()
    play(store, 12)
    with pytest.raises(ValueError, match="make the store with the settings of the state"):
        make_store(n_step=2).restore(store.state())


def test_row_numbers_beyond_32_bits_are_valid() -> None:
    store = make_store()
    store.written[0] = 2**32 - 5  # as after four milliard rows
    play(store, 30)
    low, _ = store.bounds()
    assert stacks(store, low + STACK).tolist() == [[22, 23, 24]]
    assert store.count() == WINDOW - 1 - (STACK - 1)
    make_store().restore(store.state())


# --- rings for a known number of rows ------------------------------------------------------------


def test_a_ring_for_all_rows_is_the_same_as_a_longer_one() -> None:
    long, short = make_store(), make_store(most_rows=16)
    assert (short.ring_rows, short.window_rows) == (16, long.window_rows)
    for store in (long, short):
        play(store, 15)
    assert short.digest() == long.digest()
    assert [bounds.tolist() for bounds in short.bounds()] == [b.tolist() for b in long.bounds()]
    rows = np.arange(15)
    assert stacks(short, rows).tolist() == stacks(long, rows).tolist()
    assert make_store(most_rows=1000).ring_rows == long.ring_rows


@pytest.mark.parametrize("mapped", [False, True])
def test_a_state_is_restored_into_a_longer_ring(mapped: bool, tmp_path: Path) -> None:
    folder = tmp_path if mapped else None
    short, whole = make_store(folder, most_rows=16), make_store()
    play(short, 15)
    longer = make_store(folder)
    longer.restore(short.state())
    play(longer, 30, first=15)
    play(whole, 45)
    assert longer.digest() == whole.digest()


def test_a_ring_that_has_wrapped_cannot_become_longer(tmp_path: Path) -> None:
    store = make_store(tmp_path, most_rows=16)
    play(store, 20)
    with pytest.raises(ValueError, match="not all stored"):
        make_store(tmp_path).restore(store.state())


@pytest.mark.parametrize("age", [0, 1, 2, 9])
def test_a_store_can_begin_within_an_episode(age: int) -> None:
    """The first transition has the whole stack; the frames before it start none."""
    store = make_store()
    observation = [frame(t if t >= 0 else 0) for t in range(age - STACK + 1, age + 1)]
    store.begin_within(0, observation, age)
    play(store, 4, first=age or 1)
    low, high = store.bounds()
    rows = np.arange(low[0], high[0])
    rows = rows[store.can_start(np.zeros_like(rows), rows, low)]
    assert len(rows) == store.count() == 4
    expected = [max(0, t) for t in range(age - STACK + 1, age + 1)]
    assert stacks(store, rows)[0].tolist() == expected
    again = make_store()
    again.restore(store.state())
    assert again.digest() == store.digest()
