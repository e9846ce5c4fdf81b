"""The sum tree: golden numbers, and independence of its history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisynet.replay import SumTree


def test_sums_and_searches_have_golden_values() -> None:
    tree = SumTree(5)
    tree.set_all(np.array([1.0, 0.0, 2.0, 4.0, 0.5]))
    assert tree.total == 7.5
    found = tree.find(np.array([0.0, 0.99, 1.0, 2.99, 3.0, 6.99, 7.0, 7.49]))
    assert found.tolist() == [0, 0, 2, 2, 3, 3, 4, 4]
    tree.set(np.array([3, 1]), np.array([0.0, 8.0]))
    assert tree.total == 11.5
    assert tree.find(np.array([1.0, 8.99, 9.0, 11.0])).tolist() == [1, 1, 2, 4]
    assert tree.leaves.tolist() == [1.0, 8.0, 2.0, 0.0, 0.5]


def test_a_leaf_of_zero_is_never_found() -> None:
    tree = SumTree(8)
    tree.set(np.array([0, 3]), np.array([0.1, 0.2]))
    assert tree.find(np.array([-1.0, 0.0, 0.1, 0.3, 0.31, 1e9])).tolist() == [0, 0, 3, 3, 3, 3]


def test_a_tree_can_have_one_leaf() -> None:
    tree = SumTree(1)
    tree.set(np.array([0]), 3.0)
    assert (tree.total, tree.find(np.array([2.0])).tolist()) == (3.0, [0])


@settings(derandomize=True, max_examples=50, deadline=None)
@given(
    size=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
    batches=st.lists(st.integers(0, 80), max_size=6),
)
def test_the_tree_is_a_function_of_its_leaves_bit_for_bit(
    size: int, seed: int, batches: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    tree, leaves = SumTree(size), np.zeros(size)
    for batch in batches:
        index, value = rng.integers(size, size=batch), rng.random(batch)
        tree.set(index, value)
        for i, v in zip(index, value, strict=True):
            leaves[i] = v
        rebuilt = SumTree(size)
        rebuilt.set_all(leaves)
        np.testing.assert_array_equal(tree._nodes, rebuilt._nodes)


def test_leaves_are_read_only() -> None:
    tree = SumTree(2)
    with pytest.raises(ValueError, match="read-only"):
        tree.leaves[0] = 1.0


def test_fewer_values_than_leaves_leave_zeros() -> None:
    tree = SumTree(6)
    tree.set_all(np.ones(6))
    tree.set_all(np.array([1.0, 2.0]))
    assert tree.leaves.tolist() == [1, 2, 0, 0, 0, 0]
    assert tree.total == 3.0
