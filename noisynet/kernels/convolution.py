"""The convolution of small images, such as MinAtar's: a single one, of stride 1 without padding.

Such images are nearly empty, so pixels that are 0 are skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisynet.kernels.compiled import compiled

_ZERO = np.float32(0)


@compiled
def features_of(theta: Any, shape: Any, observed: Any, scale: Any) -> Any:
    """Features [B, F]: ReLU of the convolution of images, or the vectors where there is none."""
    if shape.filters == 0:
        return observed.vectors
    filters, side, images = shape.filters, shape.side, observed.images
    places = (shape.height - side + 1) * (shape.width - side + 1)
    kernel = np.empty((shape.channels, side, side * filters), np.float32)
    _mirror(theta, shape, kernel, False)
    y = np.empty((places, filters), np.float32)
    features = np.empty((len(images), filters * places), np.float32)
    for b in range(len(images)):
        y[:] = 0
        _through_pixels(images[b], shape, scale, y, kernel, False)
        by_filter = features[b].reshape(filters, places)
        for f in range(filters):
            for r in range(places):
                by_filter[f, r] = max(y[r, f] + theta[shape.bias + f], _ZERO)
    return features


@compiled
def convolve_backward(
    gradient: Any, shape: Any, images: Any, scale: Any, features: Any, d_features: Any
) -> None:
    """Gradients of the convolution's weights and biases, given that of its features."""
    filters, side = shape.filters, shape.side
    places = (shape.height - side + 1) * (shape.width - side + 1)
    d_kernel = np.zeros((shape.channels, side, side * filters), np.float32)
    d_bias = gradient[shape.bias : shape.bias + filters]
    d_bias[:] = 0
    d_y = np.empty((places, filters), np.float32)
    for b in range(len(images)):
        for f in range(filters):
            for r in range(places):
                at = f * places + r
                d_y[r, f] = d_features[b, at] if features[b, at] > 0 else _ZERO  # ReLU
        for r in range(places):
            for f in range(filters):
                d_bias[f] += d_y[r, f]
        _through_pixels(images[b], shape, scale, d_y, d_kernel, True)
    _mirror(gradient, shape, d_kernel, True)


@compiled
def _mirror(theta: Any, shape: Any, kernel: Any, backward: Any) -> None:
    """Write θ's weights, channels last, into the kernel of `_through_pixels`; or that into θ."""
    at, filters, side = shape.weight, shape.filters, shape.side
    for f in range(filters):
        for i in range(side):
            for j in range(side - 1, -1, -1):
                for c in range(shape.channels):
                    if backward:
                        theta[at] = kernel[c, i, j * filters + f]
                    else:
                        kernel[c, i, j * filters + f] = theta[at]
                    at += 1


@compiled
def _through_pixels(image: Any, shape: Any, scale: Any, y: Any, kernel: Any, backward: Any) -> None:
    """Add pixel × kernel to y [places, filters]; or backward, pixel × y to the kernel.

    The kernel is [channels, side, side × filters], its columns mirrored: so the outputs of a row
    that a pixel reaches are adjacent in memory, and so are their weights.
    """
    filters, side = shape.filters, shape.side
    rows, columns = shape.height - side + 1, shape.width - side + 1
    by_row = y.reshape(rows, columns * filters)
    for c in range(shape.channels):
        for h in range(shape.height):
            for w in range(shape.width):
                if image[c, h, w] == 0:
                    continue
                value, first = np.float32(image[c, h, w]) * scale, w - side + 1
                left, right = max(0, first) * filters, min(w + 1, columns) * filters
                for i in range(max(0, h - rows + 1), min(side, h + 1)):
                    outputs = by_row[h - i, left:right]
                    weights = kernel[c, i, left - first * filters : right - first * filters]
                    if backward:
                        outputs, weights = weights, outputs
                    for n in range(len(outputs)):
                        outputs[n] += value * weights[n]
