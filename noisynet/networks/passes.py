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
from noisynet.networks.gradients import gradient_of
from noisynet.networks.heads import DuelingHead, QHead
from noisynet.networks.large import dense_by_tiles, dense_of_one
from noisynet.networks.perturbation import keep_sigma_gradients, perturbed_weight
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

# Weights from which a fully connected layer is for tiles.
_LARGE: Final = 1 << 18


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
    weight: Tensor | None


class ValuePass:
    """Passes through one value network.

    Args:
        network: on a CPU; its parameters and its noise are looked up at every pass. Passes are to
            be made where autograd is off, and weights to be changed where torch sees it.
        like: passes through a network that shares its convolutions' weights.
    """

    def __init__(self, network: ValueNetwork, like: ValuePass | None = None) -> None:
        self.network, head = network, network.head
        self.torso: _TorsoPass = _TorsoPass(network.torso) if like is None else like.torso
        self.dueling = isinstance(head, DuelingHead)
        if isinstance(head, DuelingHead):
            self.streams = [_StreamPass(head.value), _StreamPass(head.advantage)]
        else:
            assert isinstance(head, QHead)
            self.streams = [_StreamPass(head.q)]

    def __call__(self, observation: Tensor) -> Tensor:
        """Q [B, A], with one sample of noise for all rows."""
        seen, tasks = self.torso.begin(observation, keep=False)
        in_turn(tasks)
        return self.values(in_turn(self.stream_tasks(seen)))

    def stream_tasks(self, seen: Convolved) -> list[Task]:
        """The way from the features to each stream's outputs, in tasks for any thread."""
        return [partial(stream.forward, seen.features, seen.keep) for stream in self.streams]

    def values(self, streams: Sequence[list[_Step]]) -> Tensor:
        """Q [B, A] from the steps of the streams."""
        if not self.dueling:
            return streams[0][-1].y
        value, advantage = (steps[-1].y for steps in streams)
        return value + advantage - advantage.mean(dim=-1, keepdim=True)  # Eq. 3

    def backward(
        self,
        gradient: Tensor,
        seen: Convolved,
        streams: Sequence[list[_Step]],
        share: Share,
    ) -> None:
        """Leave the gradients of a loss in the parameters, given that of Q [B, A]."""
        tasks: list[Task] = []
        has_convolutions = bool(self.torso.layers)
        for steps, output in zip(streams, self._of_streams(gradient), strict=True):
            at_first = _StreamPass.backward(steps, output)
            first = steps[0]
            assert first.weight is not None, "it was not to be kept"
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
        self.torso.backward(seen, d_features, share)

    def _of_streams(self, gradient: Tensor) -> list[Tensor]:
        if not self.dueling:
            return [gradient]
        total = gradient.sum(dim=-1, keepdim=True)
        return [total, gradient - total / gradient.shape[-1]]


class _TorsoPass:
    """Through the convolutions, if there are any."""

    def __init__(self, torso: Torso) -> None:
        self.torso, self.layers = torso, torso.convolutions.layers
        self._packed: tuple[list[Any], tuple[Any, ...]] = [], ()

    def begin(self, observation: Tensor, keep: bool) -> tuple[Convolved, list[Task]]:
        """The way to the features, and tasks for any thread, after which they are there.

        Args:
            observation: [B, stack, *frame].
            keep: a gradient is to follow.
        """
        if not self.layers:
            flat = self.torso.prepared(observation).flatten(1)
            return Convolved(flat, observation, (), keep), []
        images = observation.reshape(-1, *self.torso.image_shape)
        seen = self.torso.convolutions.begin(images, keep)
        if self.torso.sees_planes(images):
            return seen, [partial(self._planes, seen)]
        return seen, [partial(self._images, seen, which) for which in _slices(len(images), _CHUNK)]

    def _planes(self, seen: Convolved) -> None:
        convolve_planes(seen.images, self.layers[0], seen.features)

    def _images(self, seen: Convolved, which: slice) -> None:
        self.torso.convolutions.forward(seen, self.packed(), which)

    def packed(self) -> tuple[Any, ...]:
        """The filters, packed anew if torch knows of a change since they were."""
        now = [(layer.weight.data_ptr(), layer.weight._version) for layer in self.layers]
        at, filters = self._packed
        if now != at:
            filters = self.torso.convolutions.packed()
            self._packed = now, filters  # both at once: another thread may do the same
        return filters

    def backward(self, seen: Convolved, gradient: Tensor, share: Share) -> None:
        """Leave the convolutions' gradients in their parameters, given that of the features."""
        if self.torso.sees_planes(seen.images):
            (layer,) = self.layers
            places = gradient_of(layer.weight), gradient_of(layer.bias)
            convolve_planes_backward(seen.images, seen.features, gradient, *places)
            return
        convolutions = self.torso.convolutions
        chunks = _slices(len(gradient), _CHUNK)
        found = share([partial(convolutions.backward, seen, gradient, which) for which in chunks])
        numbers = range(len(self.layers) - 1, -1, -1)  # the largest first
        share([partial(convolutions.keep, found, number) for number in numbers])


def _slices(count: int, size: int) -> list[slice]:
    return [slice(begin, begin + size) for begin in range(0, count, size)]


class _StreamPass:
    """Through fully connected layers, plain or noisy."""

    def __init__(self, layers: nn.Sequential) -> None:
        self.layers: list[Any] = [layer for layer in layers if not isinstance(layer, nn.ReLU)]

    def forward(self, x: Tensor, keep: bool) -> list[_Step]:
        """The steps from features [B, F] to outputs; `keep` says that a gradient is to follow."""
        steps = []
        for number, layer in enumerate(self.layers, start=1):
            weight: Tensor | None = None
            relu, size = number < len(self.layers), layer.in_features * layer.out_features
            if is_small(size, x.dtype):
                weight = perturbed_weight(layer) if isinstance(layer, NoisyLinear) else layer.weight
                y = dense(x, weight, layer.bias, relu)
            elif len(x) == 1 and not keep:
                y = dense_of_one(x, layer, relu)
            elif size > _LARGE:
                y, weight = dense_by_tiles(x, layer, relu, keep)
            else:
                weight = perturbed_weight(layer) if isinstance(layer, NoisyLinear) else layer.weight
                y = F.linear(x, weight, layer.bias)
                y = y.relu_() if relu else y
            steps.append(_Step(layer, x, y, weight))
            x = y
        return steps

    @staticmethod
    def backward(steps: Sequence[_Step], gradient: Tensor) -> Tensor:
        """Keep the gradients of all layers but the first; the gradient at the first's outputs."""
        for step in reversed(steps[1:]):
            assert step.weight is not None, "it was not to be kept"
            if is_small(step.weight.numel(), step.weight.dtype):
                gradient = dense_backward(step.x, step.weight, gradient, True, *_places(step.layer))
                if isinstance(step.layer, NoisyLinear):
                    keep_sigma_gradients(step.layer)
                continue
            _weigh(step.layer, gradient, step.x)
            gradient = torch.mm(gradient, step.weight)
            gradient = _through_relu(gradient, step.x)  # the one before this layer
        return gradient


def _through_relu(gradient: Tensor, y: Tensor) -> Tensor:
    """The gradient before a ReLU of outputs y, in the place of the one after it."""
    torch.ops.aten.threshold_backward.grad_input(gradient, y, 0, grad_input=gradient)
    return gradient


def _back_to_inputs(gradient: Tensor, weight: Tensor) -> Tensor:
    return torch.mm(gradient, weight)


def _weigh(layer: nn.Linear | NoisyLinear, gradient: Tensor, x: Tensor) -> None:
    """Keep the gradients of a layer's parameters, given that of its outputs [B, q]."""
    weight, bias = _places(layer)
    torch.mm(gradient.t(), x, out=weight)
    torch.sum(gradient, dim=0, out=bias)
    if isinstance(layer, NoisyLinear):
        keep_sigma_gradients(layer)


def _places(layer: nn.Linear | NoisyLinear) -> tuple[Tensor, Tensor]:
    """Where the gradients of the weights and biases in force go, which are those of μ as well."""
    if isinstance(layer, NoisyLinear):
        return gradient_of(layer.weight_mu), gradient_of(layer.bias_mu)
    return gradient_of(layer.weight), gradient_of(layer.bias)
