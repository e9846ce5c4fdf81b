"""Convolutions by tiles, an image at a time through all of them, forward and backward.

Images lie pixel by pixel with all channels of each, so that a line of a patch is one piece of memory
and nothing is copied into patches; and what one convolution gives is still in the core's own cache
when the next one takes it (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noisynet.compiled import compiled
from noisynet.networks.tiles import COLUMNS, ROWS, add_tile, six_from, six_of


@dataclass(frozen=True)
class Convolved:
    """A batch of images that went through convolutions, each followed by a ReLU.

    Attributes:
        features: what came out of the last [B, filters · rows · columns].
        images: what went in [B, channels, height, width].
        outputs: what came out of each, [B, rows, columns, filters]; of one image only where no
            gradient is to follow.
    """

    features: Tensor
    images: Tensor
    outputs: tuple[Any, ...]


class Convolutions:
    """The convolutions of a torso on a CPU, by tiles.

    Args:
        layers: square, without padding; their filters come in sixteens.
        scale: what images are multiplied by.
    """

    def __init__(self, layers: Sequence[nn.Conv2d], scale: float) -> None:
        self.layers, self.scale = list(layers), scale
        self._sides = tuple(layer.kernel_size[0] for layer in layers)
        self._steps = tuple(layer.stride[0] for layer in layers)

    def packed(self) -> tuple[Any, ...]:
        """The filters in force as `forward` takes them: each [filters / 16, patch, 16]."""
        return tuple(_packed(_filters(layer)) for layer in self.layers)

    def forward(self, images: Tensor, filters: tuple[Any, ...], keep: bool) -> Convolved:
        """Through all convolutions.

        Args:
            images: [B, channels, height, width], of any kind of number.
            filters: packed.
            keep: a gradient is to follow.
        """
        images, outputs = images.contiguous(), []
        height, width = images.shape[2:]
        for layer, side, step in zip(self.layers, self._sides, self._steps, strict=True):
            height, width = (height - side) // step + 1, (width - side) // step + 1
            shape = len(images) if keep else 1, height, width, layer.out_channels
            outputs.append(np.empty(shape, filters[0].dtype))
        features = torch.empty(
            len(images), outputs[-1][0].size, dtype=self.layers[0].weight.dtype
        )
        biases = tuple(layer.bias.detach().numpy() for layer in self.layers)  # type: ignore[union-attr]
        seen = Convolved(features, images, tuple(outputs))
        sizes = filters, biases, self._sides, self._steps
        _forward(images.numpy(), self.scale, *sizes, seen.outputs, features.numpy())
        return seen

    def backward(self, seen: Convolved, gradient: Tensor) -> tuple[Any, ...]:
        """The gradients at each convolution's outputs before its ReLU, given the features'."""
        found = tuple(np.empty_like(output) for output in seen.outputs)
        filters = tuple(_packed_by_inputs(_filters(layer)) for layer in self.layers)
        _backward(
            gradient.contiguous().numpy(), filters, self._sides, self._steps, seen.outputs, found
        )
        return found

    def weigh(self, seen: Convolved, gradient: Any, number: int) -> tuple[Tensor, Tensor]:
        """The gradients of one layer's weights and biases, given that at its outputs."""
        layer = self.layers[number]
        d_weight, d_bias = torch.empty_like(layer.weight), torch.empty_like(layer.bias)  # type: ignore[arg-type]
        flat = d_weight.permute(0, 2, 3, 1).reshape(layer.out_channels, -1)
        arrays = self._sides[number], self._steps[number], flat.numpy(), d_bias.numpy()
        if number == 0:
            _weigh_images(seen.images.numpy(), self.scale, gradient, *arrays)
        else:
            _weigh(seen.outputs[number - 1], gradient, *arrays)
        lying = d_weight.permute(0, 2, 3, 1).shape
        return flat.view(lying).permute(0, 3, 1, 2), d_bias


def _filters(layer: nn.Conv2d) -> Any:
    """[filters, kernel height · kernel width · channels]."""
    return layer.weight.detach().permute(0, 2, 3, 1).reshape(layer.out_channels, -1).numpy()


@compiled
def _packed(weight: Any) -> Any:
    """[q, p] as [q / 16, p, 16]: sixteen outputs side by side."""
    outputs, inputs = weight.shape
    packed = np.empty((outputs // COLUMNS, inputs, COLUMNS), weight.dtype)
    for block in range(outputs // COLUMNS):
        for i in range(inputs):
            for c in range(COLUMNS):
                packed[block, i, c] = weight[block * COLUMNS + c, i]
    return packed


@compiled
def _packed_by_inputs(weight: Any) -> Any:
    """[q, p] as [p / 16, q, 16]: sixteen inputs side by side."""
    outputs, inputs = weight.shape
    packed = np.empty((inputs // COLUMNS, outputs, COLUMNS), weight.dtype)
    for block in range(inputs // COLUMNS):
        for o in range(outputs):
            for c in range(COLUMNS):
                packed[block, o, c] = weight[o, block * COLUMNS + c]
    return packed


@compiled
def weave(planes: Any, scale: Any, image: Any) -> None:
    """Planes [channels, height, width], scaled, pixel by pixel [height, width, channels]."""
    channels, pixels = len(planes), planes[0].size
    flat, woven, scale = planes.reshape(channels, -1), image.reshape(-1), image.dtype.type(scale)
    if channels == 4:
        # Written out, so that the compiler sees four streams to be woven.
        one, two, three, four = flat[0], flat[1], flat[2], flat[3]
        for i in range(pixels):
            woven[4 * i] = one[i] * scale
            woven[4 * i + 1] = two[i] * scale
            woven[4 * i + 2] = three[i] * scale
            woven[4 * i + 3] = four[i] * scale
        return
    for c in range(channels):
        for i in range(pixels):
            woven[channels * i + c] = flat[c, i] * scale


@compiled
def _patches(rows: Any, columns: Any, step: Any, line: Any, channels: Any) -> Any:
    """Where each output's patch begins in an image whose lines have `line` numbers."""
    places = np.empty(rows * columns, np.int64)
    for row in range(rows):
        for column in range(columns):
            places[row * columns + column] = row * step * line + column * step * channels
    return places


@compiled
def _inside_patch(side: Any, line: Any, channels: Any) -> Any:
    """Where each number of a patch lies, from its beginning."""
    run = side * channels
    places = np.empty(side * run, np.int64)
    for row in range(side):
        for i in range(run):
            places[row * run + i] = row * line + i
    return places


@compiled
def _forward(
    planes: Any,
    scale: Any,
    filters: Any,
    biases: Any,
    sides: Any,
    steps: Any,
    outputs: Any,
    features: Any,
) -> None:
    _, channels, height, width = planes.shape
    image = np.empty((height, width, channels), features.dtype)
    for b in range(len(planes)):
        weave(planes[b], scale, image)
        x = image
        for number in range(len(filters)):
            y = outputs[number][b % len(outputs[number])]
            _convolve(x, filters[number], biases[number], sides[number], steps[number], y)
            x = y
        pixels = x.reshape(-1, x.shape[2])
        planes_of = features[b].reshape(x.shape[2], -1)  # features are in the order of planes
        for pixel in range(len(pixels)):
            for f in range(pixels.shape[1]):
                planes_of[f, pixel] = pixels[pixel, f]


@compiled
def _convolve(x: Any, filters: Any, bias: Any, side: Any, step: Any, y: Any) -> None:
    """The ReLU of a convolution of one image."""
    _, width, channels = x.shape
    rows, columns, outputs = y.shape
    line, run = width * channels, side * channels
    patches, lines = _patches(rows, columns, step, line, channels), np.arange(side) * line
    out, tile = y.reshape(patches.size, outputs), np.empty((ROWS, COLUMNS), x.dtype)
    zero = out.dtype.type(0)
    for at in range(0, patches.size, ROWS):
        begins = six_of(patches, at, 0)
        for block in range(len(filters)):
            tile[:] = 0
            first = block * side * run * COLUMNS
            add_tile(tile, six_from(0, COLUMNS), x, begins, lines, run, filters, first, COLUMNS)
            for r in range(min(ROWS, patches.size - at)):
                for c in range(COLUMNS):
                    o = block * COLUMNS + c
                    out[at + r, o] = max(tile[r, c] + bias[o], zero)


@compiled
def _backward(
    gradient: Any, filters: Any, sides: Any, steps: Any, outputs: Any, found: Any
) -> None:
    last = len(outputs) - 1
    for b in range(len(gradient)):
        y = outputs[last][b].reshape(-1, outputs[last].shape[3])
        d_y = found[last][b].reshape(y.shape)
        planes_of = gradient[b].reshape(y.shape[1], -1)
        for pixel in range(len(y)):
            for f in range(y.shape[1]):
                d_y[pixel, f] = planes_of[f, pixel] if y[pixel, f] > 0 else 0  # ReLU
        for number in range(last, 0, -1):
            size = sides[number], steps[number]
            d_x = found[number - 1][b]
            _go_back(
                found[number][b], filters[number], size[0], size[1], outputs[number - 1][b], d_x
            )


@compiled
def _go_back(d_y: Any, filters: Any, side: Any, step: Any, x: Any, d_x: Any) -> None:
    """From the gradient at a convolution's outputs to that before the ReLU that gave its inputs."""
    _, width, channels = x.shape
    rows, columns, outputs = d_y.shape
    line = width * channels
    patches = _patches(rows, columns, step, line, channels)
    inside, whole = _inside_patch(side, line, channels), np.zeros(1, np.int64)
    flat, tile = d_x.reshape(-1), np.empty((ROWS, COLUMNS), x.dtype)
    pixels = np.arange(patches.size) * outputs
    d_x[:] = 0
    for at in range(0, patches.size, ROWS):
        begins = six_of(pixels, at, 0)
        for block in range(len(filters)):
            here, first = inside[block * COLUMNS], block * outputs * COLUMNS
            if at + ROWS <= patches.size:
                places = six_of(patches, at, here)
                add_tile(d_x, places, d_y, begins, whole, outputs, filters, first, COLUMNS)
                continue
            tile[:] = 0
            places = six_from(0, COLUMNS)
            add_tile(tile, places, d_y, begins, whole, outputs, filters, first, COLUMNS)
            for r in range(patches.size - at):
                for c in range(COLUMNS):
                    flat[patches[at + r] + here + c] += tile[r, c]
    below = x.reshape(-1)
    for i in range(flat.size):
        flat[i] = flat[i] if below[i] > 0 else 0


@compiled
def _weigh_images(
    planes: Any, scale: Any, d_y: Any, side: Any, step: Any, d_weight: Any, d_bias: Any
) -> None:
    _, channels, height, width = planes.shape
    image = np.empty((height, width, channels), d_y.dtype)
    sums = np.zeros((d_y.shape[3] // COLUMNS, side * side * channels, COLUMNS), d_y.dtype)
    for b in range(len(planes)):
        weave(planes[b], scale, image)
        _add_products(image, d_y[b], side, step, sums)
    _unpack(sums, d_y, d_weight, d_bias)


@compiled
def _weigh(x: Any, d_y: Any, side: Any, step: Any, d_weight: Any, d_bias: Any) -> None:
    sums = np.zeros((d_y.shape[3] // COLUMNS, side * side * x.shape[3], COLUMNS), d_y.dtype)
    for b in range(len(x)):
        _add_products(x[b], d_y[b], side, step, sums)
    _unpack(sums, d_y, d_weight, d_bias)


@compiled
def _add_products(x: Any, d_y: Any, side: Any, step: Any, sums: Any) -> None:
    """Add one image's part of the weights' gradient, packed."""
    _, width, channels = x.shape
    rows, columns, outputs = d_y.shape
    line = width * channels
    patches = _patches(rows, columns, step, line, channels)
    inside, tile = _inside_patch(side, line, channels), np.empty((ROWS, COLUMNS), x.dtype)
    for block in range(len(sums)):
        first = block * COLUMNS
        for at in range(0, inside.size, ROWS):
            begins = six_of(inside, at, 0)
            if at + ROWS <= inside.size:
                places = six_from((block * inside.size + at) * COLUMNS, COLUMNS)
                add_tile(sums, places, x, begins, patches, 1, d_y, first, outputs)
                continue
            tile[:] = 0
            places = six_from(0, COLUMNS)
            add_tile(tile, places, x, begins, patches, 1, d_y, first, outputs)
            for r in range(inside.size - at):
                for c in range(COLUMNS):
                    sums[block, at + r, c] += tile[r, c]


@compiled
def _unpack(sums: Any, d_y: Any, d_weight: Any, d_bias: Any) -> None:
    for block in range(len(sums)):
        for i in range(sums.shape[1]):
            for c in range(COLUMNS):
                d_weight[block * COLUMNS + c, i] = sums[block, i, c]
    d_bias[:] = 0
    for pixel in d_y.reshape(-1, d_y.shape[3]):
        for o in range(pixel.size):
            d_bias[o] += pixel[o]
