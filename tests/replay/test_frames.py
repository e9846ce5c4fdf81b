"""The store itself: its protocol, its bytes, its state and its errors."""

from __future__ import annotations

import hashlib
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


def joined(store: FrameStore, start: int, stop: int) -> bytes:
    return b"".join(bytes(part) for part in store.rows(0, start, stop))


def test_frames_before_the_first_of_an_episode_are_zeros() -> None:
    store = make_store()
    store.begin(0, frame(7))
    store.append(0, 0, 0.0, 0.9, frame(8), True)
    store.begin(0, frame(9))
    stacks = store.stacks(np.zeros(3, int), np.arange(3))
    assert stacks[:, :, 0].tolist() == [[0, 0, 7], [0, 7, 8], [0, 0, 9]]
    assert stacks.shape == (3, STACK, 2)


def test_stacks_rejects_rows_that_are_not_stored() -> None:
    store = make_store()
    play(store, 40)  # 41 rows in a ring of 20
    assert store.stacks(np.array([0]), np.array([23]))[0, :, 0].tolist() == [21, 22, 23]
    for row in (-1, 22, 41):  # 22 is stored, the first frame of its stack is not
        with pytest.raises(IndexError, match="not all stored with their stacks"):
            store.stacks(np.array([0]), np.array([row]))
    with pytest.raises(IndexError, match=r"env must be in 0\.\.0, got \[1\]"):
        store.stacks(np.array([1]), np.array([30]))


def test_stacks_rejects_the_row_before_the_first_in_a_partly_filled_ring() -> None:
    store = make_store()
    play(store, 2)
    with pytest.raises(IndexError, match="not all stored"):
        store.stacks(np.array([0]), np.array([-1]))


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


def test_bytes_of_rows_do_not_depend_on_where_the_ring_wraps() -> None:
    one, two = make_store(), make_store(slack_rows=SLACK + 1)
    for store in (one, two):
        play(store, 45)
    for start, stop in ((31, 45), (39, 41), (40, 40), (35, 36)):
        assert joined(one, start, stop) == joined(two, start, stop)
        assert len(joined(one, start, stop)) == (stop - start) * one.layout.nbytes
    assert joined(one, 40, 41) != joined(one, 41, 42)
    assert one.digest() == two.digest()


def test_bytes_of_settled_rows_never_change_and_others_are_rejected() -> None:
    store = make_store()
    play(store, 5)
    assert store.settled(0) == 5  # the sixth row waits for its action
    before = hashlib.sha256(joined(store, 0, 5)).digest()
    with pytest.raises(IndexError, match="<= 5"):
        store.rows(0, 0, 6)
    store.append(0, 0, 0.0, 0.9, frame(1), True)
    assert store.settled(0) == store.written[0] == 7
    assert hashlib.sha256(joined(store, 0, 5)).digest() == before
    with pytest.raises(IndexError, match="start 3 and stop 2"):
        store.rows(0, 3, 2)


def test_bytes_of_overwritten_rows_are_rejected() -> None:
    store = make_store()
    play(store, 40)
    assert len(joined(store, 21, 40)) > 0
    with pytest.raises(ValueError, match="rows 20 to 25 of environment 0 are not all stored"):
        store.rows(0, 20, 25)


@pytest.mark.parametrize("what", ["frames", "actions", "rewards", "discounts", "ages", "starts"])
def test_the_digest_depends_on_every_column(what: str) -> None:
    store = make_store()
    play(store, 8)
    before = store.digest()
    column = getattr(store.rings, what)
    column[4] = ~column[4] if what == "starts" else column[4] + 1
    assert store.digest() != before


def test_the_digest_does_not_depend_on_rows_outside_the_window() -> None:
    store = make_store()
    play(store, 14)
    before = store.digest()
    store.rings.frames[store.rings.slot(0, 4)] = 99
    store.rings.frames[store.rings.slot(0, 15)] = 99
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


def test_restoring_clears_the_action_that_a_killed_process_gave_the_newest_row(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path)
    play(store, 8)
    state, digest = store.state(), store.digest()
    store.append(0, 3, 5.0, 0.0, frame(99), True)
    store.restore(state)
    assert store.digest() == digest
    play(store, 1, first=8)  # the episode is under way again


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
    assert store.stacks(np.array([0]), low + STACK)[0].shape == (STACK, 2)
    assert store.count() == WINDOW - 1 - (STACK - 1)
    make_store().restore(store.state())
