"""The convolution of small images against PyTorch's, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet.agents import fused
from noisynet.kernels.convolution import convolve_backward, features_of

SHAPES = [  # filters, channels, kernel, height, width
    (16, 4, 3, 10, 10),
    (3, 2, 2, 5, 7),
    (1, 1, 1, 3, 2),
    (5, 3, 4, 4, 6),
]
BEFORE, AFTER = 7, 5
"""Numbers in θ before and after the parameters of the convolution."""


class Convolution:
    """A layer of PyTorch, its parameters in a vector θ, and its arguments for the kernel."""

    def __init__(self, shape: tuple[int, int, int, int, int], batch: int) -> None:
        filters, channels, kernel, height, width = shape
        self.layer = nn.Conv2d(channels, filters, kernel)
        weight = self.layer.weight.detach().permute(0, 2, 3, 1).flatten()  # channels last
        assert self.layer.bias is not None
        parameters = torch.cat([weight, self.layer.bias.detach()])
        self.theta = nn.functional.pad(parameters, (BEFORE, AFTER), value=np.nan).numpy()
        self.shape = fused.Convolution(*shape, BEFORE, BEFORE + len(weight))
        rng = np.random.default_rng(0)
        images = rng.integers(256, size=(batch, channels, height, width), dtype=np.uint8)
        images[rng.random(images.shape) < 0.5] = 0  # zeros are skipped
        self.images: NDArray[np.uint8] = images

    def features(self, scale: float) -> Tensor:
        x = torch.from_numpy(self.images).float() * scale
        features: Tensor = self.layer(x).relu().flatten(1)
        return features


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batch", [1, 5])
def test_features_equal_pytorchs(shape: tuple[int, int, int, int, int], batch: int) -> None:
    of, scale = Convolution(shape, batch), np.float32(1 / 255)
    observed = fused.Observed(of.images, np.empty((0, 1), np.float32))
    found = features_of(of.theta, of.shape, observed, scale)
    expected = of.features(1 / 255).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_without_filters_the_features_are_the_vectors() -> None:
    vectors = np.ones((3, 2), np.float32)
    observed = fused.Observed(np.empty((0, 1, 1, 1), np.uint8), vectors)
    found = features_of(np.ones(4, np.float32), fused.Convolution(*[0] * 7), observed, 1)
    np.testing.assert_array_equal(found, vectors)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batch", [1, 5])
def test_gradients_equal_autograds(shape: tuple[int, int, int, int, int], batch: int) -> None:
    of, scale = Convolution(shape, batch), np.float32(1 / 255)
    features = of.features(1 / 255)
    upstream = torch.randn(features.shape)
    features.backward(upstream)
    gradient = np.full_like(of.theta, 77)
    convolve_backward(
        gradient, of.shape, of.images, scale, features.detach().numpy(), upstream.numpy()
    )
    assert of.layer.weight.grad is not None
    assert of.layer.bias is not None
    assert of.layer.bias.grad is not None
    expected = [of.layer.weight.grad.permute(0, 2, 3, 1).flatten(), of.layer.bias.grad]
    found = gradient[BEFORE:-AFTER]
    np.testing.assert_allclose(found, torch.cat(expected).numpy(), rtol=1e-4, atol=1e-4)
    assert (gradient[:BEFORE] == 77).all()  # nothing else is written
    assert (gradient[-AFTER:] == 77).all()
