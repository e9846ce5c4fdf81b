"""Shared memory: counters in slots, weights and statistics."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noisynet.loops.shared_state import SharedState


def test_memory_starts_with_zeros_and_its_arrays_do_not_overlap() -> None:
    shared = SharedState.create(3, 1001)
    assert shared.steps == 0
    assert [slot.state() for slot in shared.slots] == [
        {"steps": 0, "updates": 0, "dropped": 0, "episode": -1}
    ] * 3
    shared.parameters[:], shared.squares[:] = 1, 2
    shared.stop_at = 77
    for number, slot in enumerate(shared.slots):
        slot.beat()
        slot.begin_episode(number)
        slot.count(5, dropped=False)
        slot.count(4, dropped=True)
    assert shared.steps == 27
    assert shared.stop_at == 77
    assert [slot.state() for slot in shared.slots] == [
        {"steps": 9, "updates": 1, "dropped": 1, "episode": number} for number in range(3)
    ]
    assert (shared.parameters == 1).all()
    assert (shared.squares == 2).all()
    shared.close()


def test_a_second_mapping_sees_what_is_written() -> None:
    shared = SharedState.create(2, 10)
    other = SharedState(os.dup(shared.descriptor), 2, 10)
    shared.slots[1].count(5, dropped=False)
    other.parameters[3] = 4.0
    assert other.steps == 5
    assert shared.parameters[3] == 4.0
    other.slots[0].restore({"steps": 100, "updates": 20, "dropped": 1, "episode": 6})
    assert shared.steps == 105
    assert shared.slots[0].episode == 6
    shared.close()
    other.close()


def test_the_highest_episode_number_never_decreases() -> None:
    slot = SharedState.create(1, 1).slots[0]
    slot.begin_episode(4)
    slot.begin_episode(2)  # of another environment
    assert slot.episode == 4


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_the_memory_has_no_name_that_could_be_left_behind() -> None:
    code = (
        "import os, sys; from noisynet.loops.shared_state import SharedState\n"
        "path = f'/proc/self/fd/{SharedState.create(2, 1000).descriptor}'\n"
        "assert os.stat(path).st_nlink == 0\n"
        "assert 'torch' not in sys.modules\n"  # supervising workers does not need it
    )
    subprocess.run([sys.executable, "-c", code], check=True)
