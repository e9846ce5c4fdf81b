"""Passes through a value network and back, by hand: what autograd does, in fewer calls.

Small networks spend most of their time between operations, and large ones gain from tasks that two
threads can share (docs/performance.md). The gradients are autograd's, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisynet.layers import NoisyLinear
from noisynet.networks.build import ValueNetwork
from noisynet.networks.heads import DuelingHead, QHead
from noisynet.networks.perturbation import keep_gradients, perturbed_weight
from noisynet.networks.small import (
    convolve_planes,
    convolve_planes_backward,
    dense,
    dense_backward,
    is_small,
)
from noisynet.networks.torso import Torso, convolved, patches_of

Task = Callable[[], Any]
Share = Callable[[Sequence[Task]], list[Any]]
"""Does all of some tasks, in whatever threads are free, and gives their results in order."""

# Observations that a task takes through large convolutions: fewer would leave oneDNN more to
# prepare than to do, and more would leave a thread to wait for another.
_CHUNK: Final = 16


def in_turn(tasks: Sequence[Task]) -> list[Any]:
    """Do the tasks here, one after the other."""
    return [task() for task in tasks]


@dataclass(frozen=True)
class _Step:
    """One layer of a pass.

    Attributes:
        layer: which.
        x: what went in; its patches if the convolution was a matrix product.
        y: what came out, after ReLU.
        weight: of a fully connected layer, in force then.
    """

    layer: Any
    x: Tensor
    y: Tensor
    weight: Tensor | None = None


Convolved = tuple[Tensor, list[_Step]]
"""The features of a chunk [n, F], and the steps that led there."""


class ValuePass:
    """Passes through one value network.

    Args:
        network: on a CPU; its parameters and its noise are looked up at every pass. Passes are to
            be made where autograd is off.
    """

    def __init__(self, network: ValueNetwork) -> None:
        self.network, head = network, network.head
        self.torso = _TorsoPass(network.torso)
        self.dueling = isinstance(head, DuelingHead)
        if isinstance(head, DuelingHead):
            self.streams = [_StreamPass(head.value), _StreamPass(head.advantage)]
        else:
            assert isinstance(head, QHead)
            self.streams = [_StreamPass(head.q)]

    @property
    def is_small(self) -> bool:
        """Whether calls cost more than arithmetic: then acting gains from passes by hand, too."""
        return len(self.torso.convolutions) <= 1

    def __call__(self, observation: Tensor) -> Tensor:
        """Q [B, A], with one sample of noise for all rows."""
        convolved = in_turn(self.torso_tasks(observation))
        return self.values(in_turn(self.stream_tasks(convolved)))

    def torso_tasks(self, observation: Tensor) -> list[Task]:
        """The way to the features, in tasks that can be done at the same time."""
        if len(observation) <= self.torso.chunk:
            return [partial(self.torso.forward, observation)]
        return [partial(self.torso.forward, chunk) for chunk in observation.split(self.torso.chunk)]

    def stream_tasks(self, convolved: Sequence[Convolved]) -> list[Task]:
        """The way from the features to each stream's outputs, likewise."""
        chunks = [features for features, _ in convolved]
        features = chunks[0] if len(chunks) == 1 else torch.cat(chunks)
        return [partial(stream.forward, features) for stream in self.streams]

    def values(self, streams: Sequence[list[_Step]]) -> Tensor:
        """Q [B, A] from the steps of the streams."""
        if not self.dueling:
            return streams[0][-1].y
        value, advantage = (steps[-1].y for steps in streams)
        return value + advantage - advantage.mean(dim=-1, keepdim=True)  # Eq. 3

    def backward(
        self,
        gradient: Tensor,
        convolved: Sequence[Convolved],
        streams: Sequence[list[_Step]],
        share: Share,
    ) -> None:
        """Leave the gradients of a loss in the parameters, given that of Q [B, A]."""
        tasks: list[Task] = []
        has_convolutions = bool(convolved[0][1])
        for steps, output in zip(streams, self._of_streams(gradient), strict=True):
            at_first = _StreamPass.backward(steps, output)
            first = steps[0]
            assert first.weight is not None
            if has_convolutions:
                tasks.append(partial(_back_to_inputs, at_first, first.weight))
            tasks.append(partial(_weigh, first.layer, at_first, first.x))
        backs = [back for back in share(tasks) if back is not None]
        if not has_convolutions:
            return
        d_features = backs[0] if len(backs) == 1 else backs[0] + backs[1]
        if self.network.trunk_gradient_scale != 1:
            # Dueling: both streams' gradients, combined, enter the last convolution × 1/√2.
            d_features *= self.network.trunk_gradient_scale
        pieces = [d_features] if len(convolved) == 1 else d_features.split(self.torso.chunk)
        ways = zip(convolved, pieces, strict=True)
        gradients = share([partial(self.torso.backward, way[1], d_y) for way, d_y in ways])
        tasks = [
            partial(self.torso.weigh, way[1][index], of_chunk[index])
            for index in range(len(self.torso.convolutions))
            for way, of_chunk in zip(convolved, gradients, strict=True)
        ]
        self.torso.keep(share(tasks))

    def _of_streams(self, gradient: Tensor) -> list[Tensor]:
        if not self.dueling:
            return [gradient]
        total = gradient.sum(dim=-1, keepdim=True)
        return [total, gradient - total / gradient.shape[-1]]


class _TorsoPass:
    """Through the convolutions."""

    def __init__(self, torso: Torso) -> None:
        self.torso = torso
        self.convolutions = [layer for layer in torso.layers if isinstance(layer, nn.Conv2d)]
        # One small convolution is cheaper as a product of patches and weights, or pixel by pixel.
        self.as_product = torso.kind == "minatar"
        self.chunk = _CHUNK if len(self.convolutions) > 1 else 1 << 30

    def forward(self, observation: Tensor) -> Convolved:
        """Features [n, F], and the steps on the way."""
        if self.torso.sees_planes(observation):
            (layer,) = self.convolutions
            planes = observation.reshape(-1, *self.torso.image_shape)
            y = convolve_planes(planes, layer)
            return y.flatten(1), [_Step(layer, planes, y)]
        x, steps = self.torso.prepared(observation), []
        for layer in self.convolutions:
            if self.as_product:
                x = patches_of(x.permute(0, 2, 3, 1), layer)
                y = convolved(x, layer).relu_().permute(0, 3, 1, 2)
            else:
                y = F.conv2d(x, layer.weight, layer.bias, layer.stride).relu_()
            steps.append(_Step(layer, x, y))
            x = y
        return x.flatten(1), steps

    def backward(self, steps: list[_Step], gradient: Tensor) -> list[Tensor]:
        """The gradients at each convolution's outputs, given that of the features."""
        if steps[0].x.dtype == torch.uint8:
            return [gradient.view(steps[0].y.shape)]  # `weigh` passes through the ReLU itself
        d_y = gradient.view(steps[-1].y.shape).contiguous(memory_format=torch.channels_last)
        found = [_through_relu(d_y, steps[-1].y)]
        for below, step in zip(steps[-2::-1], steps[:0:-1], strict=True):
            d_x = _convolution_backward(step, found[-1], [True, False, False])[0]
            found.append(_through_relu(d_x, below.y))
        return found[::-1]

    def weigh(self, step: _Step, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of a convolution's weights and biases, given that of its outputs."""
        layer: nn.Conv2d = step.layer
        if step.x.dtype == torch.uint8:
            return convolve_planes_backward(step.x, layer, step.y, gradient)
        if layer is self.convolutions[0] and not self.as_product:
            _, weight, bias = _convolution_backward(step, gradient, [False, True, True])
            return weight, bias
        # With few pixels or many channels, a product of patches is faster.
        patches = step.x if self.as_product else patches_of(step.x.permute(0, 2, 3, 1), layer)
        flat = gradient.permute(0, 2, 3, 1).reshape(-1, layer.out_channels)
        weight = torch.mm(flat.t(), patches.flatten(0, 2))
        lying = layer.weight.permute(0, 2, 3, 1).shape
        return weight.view(lying).permute(0, 3, 1, 2), flat.sum(dim=0)

    def keep(self, found: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Add up the gradients of the chunks, always in the same order, and keep them."""
        chunks = len(found) // len(self.convolutions)
        for index, layer in enumerate(self.convolutions):
            (weight, bias), *others = found[index * chunks : (index + 1) * chunks]
            for its_weight, its_bias in others:
                weight += its_weight
                bias += its_bias
            layer.weight.grad, layer.bias.grad = weight, bias  # type: ignore[union-attr]


class _StreamPass:
    """Through fully connected layers, plain or noisy."""

    def __init__(self, layers: nn.Sequential) -> None:
        self.layers: list[Any] = [layer for layer in layers if not isinstance(layer, nn.ReLU)]

    def forward(self, x: Tensor) -> list[_Step]:
        """The steps from features [B, F] to outputs."""
        steps = []
        for number, layer in enumerate(self.layers, start=1):
            weight = perturbed_weight(layer) if isinstance(layer, NoisyLinear) else layer.weight
            bias, relu = layer.bias, number < len(self.layers)
            if is_small(weight):
                y = dense(x, weight, bias, relu)
            else:
                y = F.linear(x, weight, bias)
                y = y.relu_() if relu else y
            steps.append(_Step(layer, x, y, weight))
            x = y
        return steps

    @staticmethod
    def backward(steps: Sequence[_Step], gradient: Tensor) -> Tensor:
        """Keep the gradients of all layers but the first; the gradient at the first's outputs."""
        for step in reversed(steps[1:]):
            assert step.weight is not None
            if is_small(step.weight):
                gradient, *of_layer = dense_backward(step.x, step.weight, gradient, True)
                _keep(step.layer, *of_layer)
                continue
            _weigh(step.layer, gradient, step.x)
            gradient = torch.mm(gradient, step.weight)
            gradient = _through_relu(gradient, step.x)  # the one before this layer
        return gradient


def _convolution_backward(step: _Step, gradient: Tensor, wanted: list[bool]) -> Any:
    """The gradients of a convolution's inputs, weights and biases: those that are wanted."""
    layer = step.layer
    return torch.ops.aten.convolution_backward(
        gradient,
        step.x,
        layer.weight,
        [layer.out_channels],
        *(layer.stride, layer.padding, layer.dilation, False, [0, 0], 1),
        wanted,
    )


def _through_relu(gradient: Tensor, y: Tensor) -> Tensor:
    """The gradient before a ReLU of outputs y, in the place of the one after it."""
    torch.ops.aten.threshold_backward.grad_input(gradient, y, 0, grad_input=gradient)
    return gradient


def _back_to_inputs(gradient: Tensor, weight: Tensor) -> Tensor:
    return torch.mm(gradient, weight)


def _weigh(layer: nn.Linear | NoisyLinear, gradient: Tensor, x: Tensor) -> None:
    """Keep the gradients of a layer's parameters, given that of its outputs [B, q]."""
    _keep(layer, torch.mm(gradient.t(), x), gradient.sum(dim=0))


def _keep(layer: nn.Linear | NoisyLinear, weight: Tensor, bias: Tensor) -> None:
    """Make gradients of the weights in force the parameters' own."""
    if isinstance(layer, NoisyLinear):
        keep_gradients(layer, weight, bias)
    else:
        layer.weight.grad, layer.bias.grad = weight, bias
