"""Blocked matrix products against NumPy's, with sizes inside and outside the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from noisynet.kernels.products import dense, product

Floats = NDArray[np.float32]
TOLERANCE = 1e-5  # sums of up to 33 products in another order


def draw(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("inputs", [1, 33])
@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 3, 4, 6, 9])
def test_dense_is_a_linear_layer(batch: int, outputs: int, inputs: int, relu: bool) -> None:
    x, weight, bias = draw(batch, inputs), draw(outputs, inputs, seed=1), draw(outputs, seed=2)
    expected = x @ weight.T + bias
    found = dense(x, weight, bias, relu)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, np.maximum(expected, 0) if relu else expected, rtol=TOLERANCE, atol=TOLERANCE
    )


@pytest.mark.parametrize("columns", [1, 7])
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("depth", [1, 3, 4, 6, 9])
def test_product_is_a_transposed_matrix_product(depth: int, rows: int, columns: int) -> None:
    a, c = draw(depth, rows), draw(depth, columns, seed=1)
    y = np.full((rows, columns), np.nan, np.float32)  # is overwritten, not added to
    product(a, c, y)
    np.testing.assert_allclose(y, a.T @ c, rtol=TOLERANCE, atol=TOLERANCE)


def test_nan_is_not_hidden_by_the_relu() -> None:
    """A non-finite activation must reach the loss, where it is noticed."""
    x = np.full((1, 2), np.nan, np.float32)
    assert np.isnan(dense(x, draw(3, 2), draw(3), True)).all()
