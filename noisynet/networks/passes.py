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
from noisynet.networks.convolutions import Convolved
from noisynet.networks.heads import DuelingHead, QHead
from noisynet.networks.perturbation import keep_gradients, perturbed_weight
from noisynet.networks.small import (
    convolve_planes,
    convolve_planes_backward,
    dense,
    dense_backward,
    is_small,
)
from noisynet.networks.torso import Torso

Task = Callable[[], Any]
Share = Callable[[Sequence[Task]], list[Any]]
"""Does all of some tasks, in whatever threads are free, and gives their results in order."""

# Observations that a task takes through large convolutions: with fewer it would take longer to
# share them out, and with more a thread would wait for another.
_CHUNK: Final = 8


def in_turn(tasks: Sequence[Task]) -> list[Any]:
    """Do the tasks here, one after the other."""
    return [task() for task in tasks]


@dataclass(frozen=True)
class _Step:
    """One fully connected layer of a pass.

    Attributes:
        layer: which.
        x: what went in.
        y: what came out, after ReLU.
        weight: in force then.
    """

    layer: Any
    x: Tensor
    y: Tensor
    weight: Tensor


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
        return len(self.torso.layers) <= 1

    def __call__(self, observation: Tensor) -> Tensor:
        """Q [B, A], with one sample of noise for all rows."""
        convolved = in_turn(self.torso_tasks(observation, keep=False))
        return self.values(in_turn(self.stream_tasks(convolved)))

    def torso_tasks(self, observation: Tensor, keep: bool) -> list[Task]:
        """The way to the features, in tasks that can be done at the same time.

        Args:
            observation: [B, stack, *frame].
            keep: a gradient is to follow.
        """
        forward = self.torso.begin(observation, keep)
        if len(observation) <= self.torso.chunk:
            return [partial(forward, observation)]
        return [partial(forward, chunk) for chunk in observation.split(self.torso.chunk)]

    def stream_tasks(self, convolved: Sequence[Convolved]) -> list[Task]:
        """The way from the features to each stream's outputs, likewise."""
        chunks = [chunk.features for chunk in convolved]
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
        has_convolutions = bool(self.torso.layers)
        for steps, output in zip(streams, self._of_streams(gradient), strict=True):
            at_first = _StreamPass.backward(steps, output)
            first = steps[0]
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
        gradients = share([partial(self.torso.backward, way, d_y) for way, d_y in ways])
        tasks = [
            partial(self.torso.weigh, way, of_chunk[number], number)
            for number in range(len(self.torso.layers))
            for way, of_chunk in zip(convolved, gradients, strict=True)
        ]
        self.torso.keep(share(tasks))

    def _of_streams(self, gradient: Tensor) -> list[Tensor]:
        if not self.dueling:
            return [gradient]
        total = gradient.sum(dim=-1, keepdim=True)
        return [total, gradient - total / gradient.shape[-1]]


class _TorsoPass:
    """Through the convolutions, if there are any."""

    def __init__(self, torso: Torso) -> None:
        self.torso, self.layers = torso, torso.convolutions.layers
        self.chunk = _CHUNK if len(self.layers) > 1 else 1 << 30

    def begin(self, observation: Tensor, keep: bool) -> Callable[[Tensor], Convolved]:
        """The way to features with the weights of now, for chunks of observations."""
        if not self.layers:
            return self._flat
        if self.torso.sees_planes(observation):
            return self._planes
        return partial(self._images, self.torso.convolutions.packed(), keep)

    def _flat(self, observation: Tensor) -> Convolved:
        return Convolved(self.torso.prepared(observation).flatten(1), observation, ())

    def _planes(self, observation: Tensor) -> Convolved:
        planes = observation.reshape(-1, *self.torso.image_shape)
        y = convolve_planes(planes, self.layers[0])
        return Convolved(y.flatten(1), planes, (y,))

    def _images(self, filters: tuple[Any, ...], keep: bool, observation: Tensor) -> Convolved:
        images = observation.reshape(-1, *self.torso.image_shape)
        return self.torso.convolutions.forward(images, filters, keep)

    def backward(self, seen: Convolved, gradient: Tensor) -> tuple[Any, ...]:
        """The gradients at each convolution's outputs, given that of the features."""
        if self.torso.sees_planes(seen.images):
            return (gradient.view(seen.outputs[0].shape),)  # `weigh` passes through the ReLU
        return self.torso.convolutions.backward(seen, gradient)

    def weigh(self, seen: Convolved, gradient: Any, number: int) -> tuple[Tensor, Tensor]:
        """The gradients of a convolution's weights and biases, given that of its outputs."""
        if self.torso.sees_planes(seen.images):
            return convolve_planes_backward(
                seen.images, self.layers[0], seen.outputs[0], gradient
            )
        return self.torso.convolutions.weigh(seen, gradient, number)

    def keep(self, found: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Add up the gradients of the chunks, always in the same order, and keep them."""
        chunks = len(found) // len(self.layers)
        for index, layer in enumerate(self.layers):
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
