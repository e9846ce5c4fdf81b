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
    images = observed.images
    filters, channels, side = shape.filters, shape.channels, shape.side
    rows, columns = shape.height - side + 1, shape.width - side + 1
    size = filters * side * side * channels
    weight = theta[shape.weight : shape.weight + size]
    weight = weight.reshape(filters, side * side, channels)  # memory is channels-last
    by_pixel = np.ascontiguousarray(np.transpose(weight, (2, 1, 0)))  # one pixel, all filters
    y = np.empty((rows, columns, filters), np.float32)
    flat = y.reshape(rows * columns, filters)
    features = np.empty((len(images), filters * rows * columns), np.float32)
    for b in range(len(images)):
        y[:] = theta[shape.bias : shape.bias + filters]
        for c in range(channels):
            for h in range(shape.height):
                for w in range(shape.width):
                    if images[b, c, h, w] == 0:
                        continue
                    value = np.float32(images[b, c, h, w]) * scale
                    for i in range(max(0, h - rows + 1), min(side, h + 1)):
                        for j in range(max(0, w - columns + 1), min(side, w + 1)):
                            for f in range(filters):
                                y[h - i, w - j, f] += value * by_pixel[c, i * side + j, f]
        by_filter = features[b].reshape(filters, rows * columns)
        for f in range(filters):
            for r in range(rows * columns):
                by_filter[f, r] = max(flat[r, f], _ZERO)
    return features


@compiled
def convolve_backward(
    gradient: Any, shape: Any, images: Any, scale: Any, features: Any, d_features: Any
) -> None:
    """Gradients of the convolution's weights and biases, given that of its features."""
    filters, channels, side = shape.filters, shape.channels, shape.side
    rows, columns = shape.height - side + 1, shape.width - side + 1
    by_pixel = np.zeros((channels, side * side, filters), np.float32)
    total = np.zeros(filters, np.float32)
    flat = np.empty((rows * columns, filters), np.float32)
    d_y = flat.reshape(rows, columns, filters)
    for b in range(len(images)):
        for f in range(filters):
            for r in range(rows * columns):
                at = f * rows * columns + r
                flat[r, f] = d_features[b, at] if features[b, at] > 0 else _ZERO  # ReLU
        for r in range(rows * columns):
            for f in range(filters):
                total[f] += flat[r, f]
        for c in range(channels):
            for h in range(shape.height):
                for w in range(shape.width):
                    if images[b, c, h, w] == 0:
                        continue
                    value = np.float32(images[b, c, h, w]) * scale
                    for i in range(max(0, h - rows + 1), min(side, h + 1)):
                        for j in range(max(0, w - columns + 1), min(side, w + 1)):
                            for f in range(filters):
                                by_pixel[c, i * side + j, f] += value * d_y[h - i, w - j, f]
    size = filters * side * side * channels
    d_weight = gradient[shape.weight : shape.weight + size]
    d_weight.reshape(filters, side * side, channels)[:] = np.transpose(by_pixel, (2, 1, 0))
    gradient[shape.bias : shape.bias + filters] = total
