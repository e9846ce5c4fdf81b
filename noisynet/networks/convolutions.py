"""Convolutions by tiles, a few images at a time through all of them, forward and backward.

Images lie pixel by pixel with all channels of each, so that a line of a patch is one piece of
memory and nothing is copied into patches; and what one convolution gives is still in the core's own
cache when the next one takes it (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from noisynet.compiled import compiled
from noisynet.networks.gradients import gradient_of
from noisynet.networks.tiles import COLUMNS, ROWS, add_tile, six_from, six_of

# Images that go through all convolutions together: two of them, with all that lies between, fit
# into a core's own cache, and leave fewer tiles half empty than one.
_TOGETHER: Final = 2


Sums = tuple[tuple[Any, ...], tuple[Any, ...]]
"""For each layer the sums that make the gradients of its weights, packed, and of its biases."""


@dataclass(frozen=True)
class Convolved:
    """A batch of images on its way through convolutions, each followed by a ReLU.

    Attributes:
        features: what comes out of the last [B, filters · rows · columns].
        images: what goes in [B, channels, height, width].
        outputs: what comes out of each, [B, rows, columns, filters], if it is kept.
        keep: a gradient is to follow.
    """

    features: Tensor
    images: Tensor
    outputs: tuple[Any, ...]
    keep: bool


class Convolutions:
    """The convolutions of a torso on a CPU, by tiles.

    Args:
        layers: square, without padding; their filters come in sixteens.
        scale: what images are multiplied by.

    Raises:
        ValueError: the layers are others.
    """

    def __init__(self, layers: Sequence[nn.Conv2d], scale: float) -> None:
        for layer in layers:
            _check(layer)
        self.layers, self.scale = list(layers), scale
        self._sides = tuple(layer.kernel_size[0] for layer in layers)
        self._steps = tuple(layer.stride[0] for layer in layers)
        self._shapes_of: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}

    def packed(self) -> tuple[Any, ...]:
        """The filters in force as `forward` takes them: each [filters / 16, patch, 16]."""
        return tuple(_packed(_filters(layer)) for layer in self.layers)

    def begin(self, images: Tensor, keep: bool) -> Convolved:
        """Room for what `forward` finds.

        Args:
            images: [B, channels, height, width], of any kind of number.
            keep: a gradient is to follow.
        """
        shapes = self._shapes(images)
        rows, columns, filters = shapes[-1]
        dtype = self.layers[0].weight.dtype
        features = torch.empty(len(images), rows * columns * filters, dtype=dtype)
        outputs: tuple[Any, ...] = ()
        if keep:
            array = features.numpy()
            outputs = tuple(np.empty((len(images), *shape), array.dtype) for shape in shapes)
        return Convolved(features, images, outputs, keep)

    def _shapes(self, images: Tensor) -> list[tuple[int, int, int]]:
        """Rows, columns and filters of what each convolution gives."""
        height, width = size = tuple(images.shape[2:])
        if size not in self._shapes_of:
            shapes = []
            for layer, side, step in zip(self.layers, self._sides, self._steps, strict=True):
                height, width = (height - side) // step + 1, (width - side) // step + 1
                shapes.append((height, width, layer.out_channels))
            self._shapes_of[size] = shapes
        return self._shapes_of[size]

    def forward(self, seen: Convolved, filters: tuple[Any, ...], which: slice) -> None:
        """Take some of the images through all convolutions; their filters are packed."""
        images, features = seen.images[which].contiguous().numpy(), seen.features[which].numpy()
        outputs = tuple(output[which] for output in seen.outputs)
        if not outputs:
            room = min(_TOGETHER, len(images))
            outputs = tuple(np.empty((room, *s), features.dtype) for s in self._shapes(seen.images))
        biases = tuple(layer.bias.detach().numpy() for layer in self.layers)  # type: ignore[union-attr]
        sizes = filters, biases, self._sides, self._steps
        _forward(images, self.scale, *sizes, outputs, features)

    def backward(self, seen: Convolved, gradient: Tensor, which: slice) -> Sums:
        """The weights' and biases' gradients for some of the images, given their features'."""
        # Sixteen inputs side by side: each [patch / 16, filters, 16].
        filters = tuple(_packed(_filters(layer).T) for layer in self.layers)
        outputs = tuple(output[which] for output in seen.outputs)
        sums = tuple(_no_products(output, side, x) for output, side, x in self._ways(seen))
        biases = tuple(np.zeros(output.shape[3], output.dtype) for output in outputs)
        _backward(
            *(gradient[which].contiguous().numpy(), seen.images[which].contiguous().numpy()),
            *(self.scale, filters, self._sides, self._steps, outputs, sums, biases),
        )
        return sums, biases

    def _ways(self, seen: Convolved) -> Iterable[tuple[Any, int, int]]:
        """Outputs, side and channels of each convolution."""
        channels = [seen.images.shape[1], *(output.shape[3] for output in seen.outputs)]
        return zip(seen.outputs, self._sides, channels[:-1], strict=True)

    def keep(self, found: Sequence[Sums], number: int) -> None:
        """Add up what `backward` found of a layer, always in the same order, as its gradients."""
        layer = self.layers[number]
        weight, bias = gradient_of(layer.weight).permute(0, 2, 3, 1), gradient_of(layer.bias)
        lying = weight.contiguous()  # which it is, unless somebody gave the weights another layout
        parts = tuple(sums[number] for sums, _ in found)
        biases = tuple(biases[number] for _, biases in found)
        _add_up(parts, biases, lying.view(layer.out_channels, -1).numpy(), bias.numpy())
        if lying is not weight:
            weight.copy_(lying)


def _no_products(output: Any, side: int, channels: int) -> Any:
    """Where the products of a layer's inputs and gradients are summed, packed like its filters."""
    blocks = output.shape[3] // COLUMNS
    return np.zeros((blocks, side * side * channels, COLUMNS), output.dtype)


def _check(layer: nn.Conv2d) -> None:
    """Refuse what tiles, which check nothing, would get wrong."""
    square = len({*layer.kernel_size}) == len({*layer.stride}) == 1
    bare = layer.padding == (0, 0) and layer.dilation == (1, 1) and layer.groups == 1
    if not (square and bare and layer.bias is not None and layer.out_channels % COLUMNS == 0):
        raise ValueError(
            f"convolutions by tiles expected square kernels and strides, biases, no padding and a "
            f"multiple of {COLUMNS} filters, got {layer}"
        )


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
def _patches(x: Any, y: Any, step: Any) -> Any:
    """Where the patch of each output in y [B, rows, columns, …] begins in x [B, height, …]."""
    _, height, width, channels = x.shape
    batch, rows, columns, _ = y.shape
    places, line, at = np.empty(batch * rows * columns, np.int64), width * channels, 0
    for b in range(batch):
        for row in range(rows):
            for column in range(columns):
                places[at] = (b * height + row * step) * line + column * step * channels
                at += 1
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
    batch, channels, height, width = planes.shape
    images = np.empty((_TOGETHER, height, width, channels), features.dtype)
    for b in range(0, batch, _TOGETHER):
        count = min(_TOGETHER, batch - b)
        for i in range(count):
            weave(planes[b + i], scale, images[i])
        x = images[:count]
        for number in range(len(filters)):
            begin = b if len(outputs[number]) == batch else 0
            y = outputs[number][begin : begin + count]
            _convolve(x, filters[number], biases[number], sides[number], steps[number], y)
            x = y
        for i in range(count):
            pixels = x[i].reshape(-1, x.shape[3])
            planes_of = features[b + i].reshape(x.shape[3], -1)  # features are ordered as planes
            for pixel in range(len(pixels)):
                for f in range(pixels.shape[1]):
                    planes_of[f, pixel] = pixels[pixel, f]


@compiled
def _convolve(x: Any, filters: Any, bias: Any, side: Any, step: Any, y: Any) -> None:
    """The ReLU of a convolution."""
    line, run = x.shape[2] * x.shape[3], side * x.shape[3]
    patches, lines = _patches(x, y, step), np.arange(side) * line
    out, tile = y.reshape(patches.size, y.shape[3]), np.empty((ROWS, COLUMNS), x.dtype)
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
    gradient: Any,
    planes: Any,
    scale: Any,
    filters: Any,
    sides: Any,
    steps: Any,
    outputs: Any,
    sums: Any,
    biases: Any,
) -> None:
    batch, channels, height, width = planes.shape
    image = np.empty((1, height, width, channels), gradient.dtype)
    last = len(outputs) - 1
    for begin in range(0, batch, _TOGETHER):
        end = min(begin + _TOGETHER, batch)
        y = outputs[last][begin:end]
        d_y = np.empty_like(y)
        for b in range(end - begin):
            _back_to_pixels(gradient[begin + b], y[b], d_y[b])
        for number in range(last, 0, -1):
            x, side, step = outputs[number - 1][begin:end], sides[number], steps[number]
            for b in range(end - begin):
                products = x[b : b + 1], d_y[b : b + 1]
                _add_products(products[0], products[1], side, step, sums[number], biases[number])
            d_x = np.empty_like(x)
            _go_back(d_y, filters[number], side, step, x, d_x)
            d_y = d_x
        for b in range(end - begin):
            weave(planes[begin + b], scale, image[0])
            _add_products(image, d_y[b : b + 1], sides[0], steps[0], sums[0], biases[0])


@compiled
def _back_to_pixels(gradient: Any, y: Any, d_y: Any) -> None:
    """The gradient of features, which are ordered as planes, before the ReLU that gave y."""
    seen, found = y.reshape(-1, y.shape[2]), d_y.reshape(-1, y.shape[2])
    planes = gradient.reshape(y.shape[2], -1)
    for pixel in range(len(seen)):
        for f in range(seen.shape[1]):
            found[pixel, f] = planes[f, pixel] if seen[pixel, f] > 0 else 0


@compiled
def _go_back(d_y: Any, filters: Any, side: Any, step: Any, x: Any, d_x: Any) -> None:
    """From the gradient at a convolution's outputs to that before the ReLU that gave its inputs."""
    channels, outputs = x.shape[3], d_y.shape[3]
    patches, whole = _patches(x, d_y, step), np.zeros(1, np.int64)
    inside = _inside_patch(side, x.shape[2] * channels, channels)
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
def _add_products(x: Any, d_y: Any, side: Any, step: Any, sums: Any, bias: Any) -> None:
    """Add one image's part of the gradients of weights, packed, and of biases."""
    channels, outputs = x.shape[3], d_y.shape[3]
    patches, tile = _patches(x, d_y, step), np.empty((ROWS, COLUMNS), x.dtype)
    inside = _inside_patch(side, x.shape[2] * channels, channels)
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
    for pixel in d_y.reshape(-1, outputs):
        for o in range(outputs):
            bias[o] += pixel[o]


@compiled
def _add_up(parts: Any, biases: Any, d_weight: Any, d_bias: Any) -> None:
    sums, total = parts[0], parts[0].reshape(-1)
    d_bias[:] = biases[0]
    for number in range(1, len(parts)):
        part = parts[number].reshape(-1)
        for i in range(total.size):
            total[i] += part[i]
        d_bias += biases[number]
    for block in range(len(sums)):
        for i in range(sums.shape[1]):
            for c in range(COLUMNS):
                d_weight[block * COLUMNS + c, i] = sums[block, i, c]
