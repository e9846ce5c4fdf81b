from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisynet.audit import SyntheticData


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floating_arrays_are_standard_normal(dtype: str) -> None:
    x = SyntheticData().array((100, 100), dtype)
    assert x.dtype == dtype
    assert abs(x.mean()) < 0.05
    assert abs(x.std() - 1) < 0.05


def test_byte_arrays_are_uniform() -> None:
    x = SyntheticData().array((100, 100), "uint8")
    assert x.dtype == np.uint8
    assert (x.min(), x.max()) == (0, 255)
    assert abs(x.mean() - 127.5) < 5


def test_data_depends_on_the_seed_alone() -> None:
    state = repr(np.random.get_state())
    first, again, other = SyntheticData(1), SyntheticData(1), SyntheticData(2)
    for each in (first, again, other):
        each.actions(3, 2)
    assert np.array_equal(first.rewards(5), again.rewards(5))
    assert not np.array_equal(first.rewards(5), other.rewards(5))
    assert repr(np.random.get_state()) == state


def test_actions_and_rewards_have_the_requested_shapes() -> None:
    data = SyntheticData()
    assert set(data.actions(100, 3)) == {0, 1, 2}
    assert data.rewards(4, 2).shape == (4, 2)
    assert data.rewards(4, 2).dtype == np.float32


def test_observations_belong_to_their_space() -> None:
    spaces = pytest.importorskip("gymnasium").spaces
    space: Any = spaces.Dict(
        {
            "pixels": spaces.Box(0, 3, (2, 2), np.uint8),
            "place": spaces.Discrete(5),
            "speed": spaces.Box(-np.inf, np.inf, (3,)),
        }
    )
    data = SyntheticData()
    found = [data.observation(space) for _ in range(50)]
    assert all(space.contains(each) for each in found)
    assert {int(each["place"]) for each in found} == set(range(5))
    speeds = np.stack([each["speed"] for each in found])
    assert abs(speeds.std() - 1) < 0.2  # not uniform within the bounds, which may be 3e38


def test_a_space_keeps_its_own_random_stream() -> None:
    spaces = pytest.importorskip("gymnasium").spaces
    space, untouched = (spaces.Discrete(1000, seed=7) for _ in range(2))
    SyntheticData().observation(space)
    assert space.sample() == untouched.sample()
