"""Fully connected layers against NumPy and PyTorch, with sizes inside and outside the blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from noisynet.agents.fused import LAYER
from noisynet.kernels.fully_connected import dense, noise_of, product, stack, stack_backward
from noisynet.layers import Noise, NoisyLinear

Floats = NDArray[np.float32]
TOLERANCE = 1e-5  # sums of up to 33 products in another order
BEFORE = 3
"""Numbers in θ and ε before those of a layer."""


def draw(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def plain_layer(p: int, q: int) -> tuple[Floats, Any]:
    """θ with a random layer in it, and the layer's record."""
    bias = BEFORE + p * q
    record = np.array([(p, q, BEFORE, 0, bias, 0, 0, False, False, False)], LAYER)[0]
    return draw(bias + q, seed=1), record


def noisy_layer(p: int, q: int, noise: Noise) -> tuple[NoisyLinear, Floats, Floats, Any]:
    """A layer of PyTorch, its θ and ε, and its record."""
    layer = NoisyLinear(p, q, noise=noise, generator=torch.Generator().manual_seed(0))
    before = torch.full((BEFORE,), torch.nan)
    theta = torch.cat([before, *(parameter.detach().flatten() for parameter in layer.parameters())])
    epsilon = torch.cat([before, *(buffer.flatten() for buffer in layer.buffers())])
    offsets = BEFORE, BEFORE + p * q, BEFORE + 2 * p * q, BEFORE + 2 * p * q + q
    kind = True, noise == "independent", True
    record = np.array([(p, q, *offsets, BEFORE, *kind)], LAYER)[0]
    return layer, theta.numpy(), epsilon.numpy(), record


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("p", [1, 33])
@pytest.mark.parametrize("q", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 3, 4, 6, 9])
def test_dense_is_a_linear_layer(batch: int, q: int, p: int, relu: bool) -> None:
    x, (theta, layer) = draw(batch, p), plain_layer(p, q)
    weight, bias = theta[BEFORE:-q].reshape(q, p), theta[-q:]
    expected = x @ weight.T + bias
    found = dense(theta, draw(0), layer, x, relu, weight)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, np.maximum(expected, 0) if relu else expected, rtol=TOLERANCE, atol=TOLERANCE
    )


@pytest.mark.parametrize("noise", ["factorised", "independent"])
@pytest.mark.parametrize("q", [1, 5, 6])
@pytest.mark.parametrize("keep", [False, True])
def test_dense_is_a_noisy_layer_and_keeps_its_weights(noise: Noise, q: int, keep: bool) -> None:
    layer, theta, epsilon, record = noisy_layer(7, q, noise)
    x, weights = draw(9, 7), np.empty((q if keep else 4, 7), np.float32)
    found = dense(theta, epsilon, record, x, False, weights)
    expected = layer(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    if keep:
        np.testing.assert_allclose(weights, layer.weight.detach().numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_noise_of_an_output_is_that_of_the_layer(noise: Noise) -> None:
    layer, _, epsilon, record = noisy_layer(7, 4, noise)
    with torch.no_grad():  # then the weights are the noise
        layer.weight_mu.zero_()
        layer.weight_sigma.fill_(1)
        assert layer.bias_mu is not None
        assert layer.bias_sigma is not None
        layer.bias_mu.zero_()
        layer.bias_sigma.fill_(1)
    assert layer.bias is not None
    for o in range(4):
        factor, row, of_bias = noise_of(epsilon, record, o)
        np.testing.assert_allclose(factor * row, layer.weight[o].detach().numpy(), rtol=1e-6)
        assert of_bias == pytest.approx(layer.bias[o].item())


@pytest.mark.parametrize("learn_sigma", [True, False], ids=["", "frozen"])
@pytest.mark.parametrize("kinds", [("factorised", "independent"), ("independent", "factorised")])
def test_a_stack_and_its_gradients_equal_autograds(
    kinds: tuple[Noise, Noise], learn_sigma: bool
) -> None:
    """Two layers with a ReLU between them; the gradients of what is learnt are all that changes."""
    first, theta, epsilon, record = noisy_layer(6, 5, kinds[0])
    second, rest, more, other = noisy_layer(5, 3, kinds[1])
    for offset in ("weight_mu", "weight_sigma", "bias_mu", "bias_sigma"):
        other[offset] += len(theta)
    other["epsilon"] += len(epsilon)
    record["learn_sigma"] = other["learn_sigma"] = learn_sigma
    layers = np.array([record, other], LAYER)
    theta, epsilon = np.concatenate([theta, rest]), np.concatenate([epsilon, more])
    x = torch.from_numpy(draw(9, 6)).requires_grad_()
    y = second(first(x).relu())
    upstream = torch.from_numpy(draw(9, 3, seed=4))
    y.backward(upstream)
    passed = stack(theta, epsilon, layers, x.detach().numpy(), True)
    np.testing.assert_allclose(passed[0][-1], y.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    gradient = np.full_like(theta, 77)
    d_x = stack_backward(gradient, layers, passed, upstream.numpy().copy(), True)
    assert x.grad is not None
    np.testing.assert_allclose(d_x, x.grad.numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    written = np.zeros(len(theta), bool)
    for layer, at in ((first, record), (second, other)):
        learnt = ("mu", "sigma") if learn_sigma else ("mu",)
        for name in [f"{of}_{kind}" for of in ("weight", "bias") for kind in learnt]:
            expected = getattr(layer, name).grad.flatten().numpy()
            where = slice(int(at[name]), int(at[name]) + len(expected))
            np.testing.assert_allclose(gradient[where], expected, rtol=TOLERANCE, atol=TOLERANCE)
            written[where] = True
    assert (gradient[~written] == 77).all()


@pytest.mark.parametrize("columns", [1, 7])
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("depth", [1, 3, 4, 6, 9])
def test_product_is_a_transposed_matrix_product(depth: int, rows: int, columns: int) -> None:
    a, c = draw(depth, rows), draw(depth, columns, seed=1)
    y = np.full((rows, columns), np.nan, np.float32)  # is overwritten, not added to
    product(a, c, y)
    np.testing.assert_allclose(y, a.T @ c, rtol=TOLERANCE, atol=TOLERANCE)
    a[draw(depth, rows, seed=2) > 0] = 0  # which are skipped
    product(a, c, y)
    np.testing.assert_allclose(y, a.T @ c, rtol=TOLERANCE, atol=TOLERANCE)


def test_nan_is_not_hidden_by_the_relu() -> None:
    """A non-finite activation must reach the loss, where it is noticed."""
    theta, layer = plain_layer(2, 3)
    x = np.full((1, 2), np.nan, np.float32)
    weight = theta[BEFORE:-3].reshape(3, 2)
    assert np.isnan(dense(theta, draw(0), layer, x, True, weight)).all()
