"""A sum tree, for sampling in proportion to priorities (Schaul et al. 2016, B.2.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noisynet.replay.columns import IntArray

DoubleArray = npt.NDArray[np.float64]


class SumTree:
    """A binary tree whose leaves are non-negative float64 and whose nodes are sums.

    Node 1 is the root; the children of node k are 2k and 2k + 1. A node is always computed as the
    sum of its children, never by a difference, so the tree is a function of its leaves: restoring
    the leaves restores every bit.
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
        """The leaves [size], a read-only view."""
        view = self._nodes[self._first : self._first + self.size]
        view.flags.writeable = False
        return view

    def set(self, leaf: IntArray, value: DoubleArray | float) -> None:
        """Set leaves [K] to values [K]; of a repeated leaf, the last value counts."""
        node = leaf + self._first
        self._nodes[node] = value
        if len(node) * self._levels > self._first:  # cheaper to sum the whole tree
            self._sum_all()
            return
        for _ in range(self._levels):
            node = node >> 1
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def set_all(self, values: DoubleArray) -> None:
        """Set the first leaves to values [≤ size], the rest to 0."""
        self._nodes[self._first :] = 0.0
        self._nodes[self._first : self._first + len(values)] = values
        self._sum_all()

    def find(self, mass: DoubleArray) -> IntArray:
        """Return the first leaf at which the cumulative sum exceeds each mass [K].

        Never a leaf of 0, even after rounding; at least one leaf must be positive.
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
