"""A binary tree of sums, for draws in proportion to priorities (Schaul et al. 2016, B.2.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noisynet.replay.rings import IntArray

DoubleArray = npt.NDArray[np.float64]


class SumTree:
    """Non-negative float64 leaves, and above each pair of nodes their sum.

    Node 1 is the root, nodes 2k and 2k + 1 are below node k. A node is always the sum of the two
    below it and never changed by differences, so the tree is a function of its leaves alone:
    restoring the leaves restores every bit.

    Args:
        size: number of leaves.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._levels = max(1, (size - 1).bit_length())
        self._first = 2**self._levels  # the node of leaf 0
        self._nodes: DoubleArray = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        return float(self._nodes[1])

    @property
    def leaves(self) -> DoubleArray:
        """The leaves [size], as a view to read."""
        view = self._nodes[self._first : self._first + self.size]
        view.flags.writeable = False
        return view

    def set(self, leaf: IntArray, value: DoubleArray | float) -> None:
        """Set leaves [K] to values [K]; where a leaf comes twice, its last value counts."""
        node = leaf + self._first
        self._nodes[node] = value
        if len(node) * self._levels > self._first:  # cheaper to sum everything again
            self._sum_all()
            return
        for _ in range(self._levels):
            node = node >> 1
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def set_all(self, values: DoubleArray) -> None:
        """Set every leaf, values being [size]."""
        self._nodes[self._first : self._first + self.size] = values
        self._sum_all()

    def find(self, mass: DoubleArray) -> IntArray:
        """The leaf at which the running sum of the leaves first exceeds each mass [K].

        Never a leaf of 0, whatever the rounding; some leaf must be positive.
        """
        node = np.ones(len(mass), np.int64)
        mass = mass.copy()
        for _ in range(self._levels):
            node = node << 1
            left = self._nodes[node]
            right = (mass >= left) & (self._nodes[node + 1] > 0)
            mass -= np.where(right, left, 0.0)
            node += right
        found: IntArray = node - self._first
        return found

    def _sum_all(self) -> None:
        level = self._first
        while level > 1:
            pairs = self._nodes[level : 2 * level].reshape(-1, 2)
            level //= 2
            np.add(pairs[:, 0], pairs[:, 1], out=self._nodes[level : 2 * level])
