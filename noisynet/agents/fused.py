"""The compiled update of small networks (`noisynet/kernels/small_network.py`) as a drop-in."""

from __future__ import annotations

import copy
import math
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet import config
from noisynet.agents.update import NORM_PERIOD_UPDATES, Learnt, NoiseStreams, ValueNetworks
from noisynet.layers import NoisyLinear, noisy_layers
from noisynet.layers.linear import draw_noise
from noisynet.networks import (
    CategoricalHead,
    CategoricalNetwork,
    DuelingCategoricalHead,
    DuelingHead,
    QHead,
    ValueNetwork,
    flatten_parameters,
    offsets_of,
    views_of,
)
from noisynet.optimisers import CentredRMSProp
from noisynet.replay import TransitionBatch

LARGEST_LAYER: Final = 1 << 18
"""Weights up to which a layer is small: beyond, PyTorch's matrix products are faster."""

_HEADS: Final = (QHead, DuelingHead, CategoricalHead, DuelingCategoricalHead)
_LEARNING: Final = ("online", "target", "select")
_NO_IMAGES: Final = np.empty((0, 1, 1, 1), np.uint8)
_NO_VECTORS: Final = np.empty((0, 1), np.float32)


LAYER: Final = np.dtype(
    [
        *((name, np.int64) for name in ("p", "q")),  # inputs and outputs
        # where they start in θ
        *((name, np.int64) for name in ("weight_mu", "weight_sigma", "bias_mu", "bias_sigma")),
        ("epsilon", np.int64),  # where its noise starts in ε
        *((name, np.int64) for name in ("noisy", "independent", "learn_sigma")),  # 0 or 1
    ]
)
"""A fully connected layer."""


class Convolution(NamedTuple):
    """A convolution of stride 1 without padding; 0 filters: none."""

    filters: int
    channels: int
    side: int  # of the kernel
    height: int  # of an image
    width: int
    weight: int  # where they start in θ
    bias: int


class Layout(NamedTuple):
    """Where the parameters and the noise of a network are."""

    convolution: Convolution
    layers: NDArray[np.void]  # [L] of `LAYER`, those of V first where the network is dueling
    value_layers: int  # how many of them belong to V; 0 for a network that is not dueling
    atoms: NDArray[np.float32]  # z [N] of distributions over returns; empty for Q-values


class Options(NamedTuple):
    """The settings of an update."""

    scale: np.float32  # multiplies observations of bytes
    double_q: bool  # whether the online network selects the action at y
    threshold: np.float32  # of the Huber loss; infinite for the squared loss
    trunk_gradient_scale: np.float32  # multiplies the gradient that enters the convolution
    max_gradient_norm: float  # infinite: no clipping
    norm_period_updates: int  # how often the norm is measured if there is no clipping
    adam: bool  # whether the optimiser is Adam, else centred RMSProp
    learning_rate: float
    decay: float  # ρ of RMSProp
    epsilon: float


class Trained(NamedTuple):
    """What an update changes."""

    theta: NDArray[np.float32]  # ζ, the online network's parameters
    gradient: NDArray[np.float32]  # of θ; 0 where σ is not learnt
    first: NDArray[np.float32]  # the optimiser's average of gradients
    second: NDArray[np.float32]  # its average of squares


class Observed(NamedTuple):
    """Observations: either images for the convolution, or vectors; the other one is empty."""

    images: NDArray[np.uint8]  # [B, channels, height, width]
    vectors: NDArray[np.float32]  # [B, p]


def is_small(network: ValueNetwork, spec_dtype: str) -> bool:
    """Whether the kernel knows a network: fully connected layers after at most one convolution.

    Args:
        network: the online network.
        spec_dtype: the dtype of a frame; the convolution takes bytes.
    """
    convolutions = [layer for layer in network.torso.layers if isinstance(layer, nn.Conv2d)]
    linear = [
        layer for layer in network.head.modules() if isinstance(layer, nn.Linear | NoisyLinear)
    ]
    known = type(network.head) in _HEADS and len(convolutions) <= 1
    known &= all(layer.bias is not None for layer in linear)
    options = {(x.noise, x.distribution, x.f) for x in linear if isinstance(x, NoisyLinear)}
    known &= len(options) <= 1  # one call draws the noise of all layers
    for layer in convolutions:
        known &= spec_dtype == "uint8" and layer.stride == (1, 1) and layer.padding == (0, 0)
    size = max(layer.in_features * layer.out_features for layer in linear)
    return known and size <= LARGEST_LAYER


class FusedUpdate:
    """Values and updates by one compiled call each; see `Update` for the methods.

    Parameters, the optimiser's averages and each network's noise become views of one vector each.

    Args:
        settings: the run's configuration.
        networks: of the agent, on a CPU.
        optimiser: of the online network; it holds the averages, the kernel takes the steps.
        noise: the streams and the roles that use them.
    """

    def __init__(
        self,
        settings: config.Config,
        networks: ValueNetworks,
        optimiser: torch.optim.Optimizer,
        noise: NoiseStreams,
    ) -> None:
        from noisynet.kernels import small_network

        self.settings, self.networks, self.optimiser = settings, networks, optimiser
        self.streams, self.roles = noise, noise.roles
        self._kernel = small_network
        self._theta = flatten_parameters(networks.online.parameters()).numpy()
        self._theta_minus = flatten_parameters(networks.target.parameters()).numpy()
        self._gradient = np.zeros_like(self._theta)
        self._layout = _layout(networks.online)
        self._options = _options(settings, networks.online)
        self.reload()

    def __deepcopy__(self, memo: dict[int, Any]) -> FusedUpdate:
        arguments = (self.settings, self.networks, self.optimiser, self.streams)
        return FusedUpdate(*copy.deepcopy(arguments, memo))

    def reload(self, updates: int = 0) -> None:
        """Make averages and noise views of one vector each again, with their current values."""
        parameters = list(self.networks.online.parameters())
        first, second, self._steps = _flat_averages(self.optimiser, parameters)
        if not self._options.adam:  # RMSProp's state has no number of steps
            self._steps += updates
        self._trained = Trained(self._theta, self._gradient, first, second)
        self._noise = {role: _FlatNoise(network) for role, network in self.networks.items().items()}

    def resample(self, rows: int) -> None:
        """Draw the acting noise: one sample for each of `rows` environments."""
        if "act" in self.roles:
            self._noise["act"].draw(self.streams.streams["act"], rows)

    def q_values(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Q [N, A] of the acting network, with the noise that it holds."""
        epsilon, observed = self._noise["act"].rows(len(observation)), self._observed(observation)
        found: NDArray[np.float32] = self._kernel.q_values(
            self._trained.theta, epsilon, self._layout, observed, self._options.scale
        )
        return found

    def learn(self, batch: TransitionBatch) -> Learnt:
        """One update from a batch of transitions."""
        for role in _LEARNING:
            if role in self.roles:
                self._noise[role].draw(self.streams.streams[role])  # ξ, ξ′ and ξ″
        columns = batch.action, batch.reward, batch.discount, batch.weight
        loss, error, q, norm = self._kernel.update(
            self._trained,
            self._theta_minus,
            tuple(self._noise[role].array for role in _LEARNING),
            self._layout,
            self._options,
            (self._observed(batch.x), self._observed(batch.y), columns),
            float(self._steps[0] + 1),
        )
        if math.isfinite(loss):
            self._steps += 1
        return Learnt(float(loss), error, float(q), None if math.isnan(norm) else float(norm))

    def _observed(self, observation: NDArray[Any]) -> Observed:
        """Images for the convolution, or vectors where there is none."""
        torso = self.networks.online.torso
        if torso.convolutional:
            images = np.ascontiguousarray(observation.reshape(-1, *torso.image_shape))
            return Observed(images, _NO_VECTORS)
        vectors = observation.reshape(len(observation), -1)
        if vectors.dtype != np.float32 or self._options.scale != 1:
            vectors = vectors * self._options.scale
        return Observed(_NO_IMAGES, np.ascontiguousarray(vectors))


class _FlatNoise:
    """The noise of a network as one vector, of which the layers' buffers are views.

    Args:
        network: its layers' current samples are copied.
    """

    def __init__(self, network: ValueNetwork) -> None:
        self._layers = list(noisy_layers(network.head).values())
        rows = self._layers[0].rows if self._layers else None
        samples = [
            buffer.flatten(start_dim=0 if rows is None else 1)
            for layer in self._layers
            for buffer in layer.buffers()
        ]
        self._adopt(torch.cat(samples, dim=-1) if samples else torch.empty(0))

    def _adopt(self, noise: Tensor) -> None:
        """Let the layers' buffers be views of this vector, or matrix with rows."""
        self._noise, self.array = noise, noise.numpy()
        self._roots = np.empty_like(self.array)
        self._by_row: NDArray[np.float32] | None = None
        sizes = [layer.noise_size for layer in self._layers]
        for layer, sample in zip(self._layers, noise.split(sizes, dim=-1), strict=True):
            buffers = list(layer.named_buffers())
            shapes = [buffer.shape[layer.rows is not None :] for _, buffer in buffers]
            views = sample.split([shape.numel() for shape in shapes], dim=-1)
            held = {
                name: view.unflatten(-1, shape)
                for (name, _), shape, view in zip(buffers, shapes, views, strict=True)
            }
            layer.hold_noise(held)

    def draw(self, generator: torch.Generator, rows: int | None = None) -> None:
        """Draw a new sample into the same memory, as `noisynet.layers.resample_noise` draws it."""
        lead = () if rows is None else (rows,)
        if self._noise.shape[:-1] != lead:
            self._adopt(torch.empty(*lead, self._noise.shape[-1]))
        layer = self._layers[0]  # `is_small`: all are of one kind
        if layer.distribution == "gaussian":
            self._noise.normal_(generator=generator)
        else:
            size = self._noise.shape[-1]
            drawn = draw_noise(layer.distribution, self._noise, size, generator, rows)
            self._noise.copy_(drawn)
        if layer.noise == "factorised" and layer.f == "signed_sqrt":
            np.abs(self.array, out=self._roots)
            np.sqrt(self._roots, out=self._roots)
            np.copysign(self._roots, self.array, out=self.array)

    def rows(self, count: int) -> NDArray[np.float32]:
        """The samples [N, …] of so many rows, which share one where there is only one."""
        if self.array.ndim == 2:
            return self.array
        if self._by_row is None or len(self._by_row) != count:
            self._by_row = np.repeat(self.array[None], count, axis=0)
        return self._by_row


def _layout(network: ValueNetwork) -> Layout:
    """Offsets of parameters and noise, in the order of `flatten_parameters` and of the layers."""
    parameters = list(network.parameters())
    at = dict(zip(map(id, parameters), offsets_of(parameters), strict=True))
    convolution = Convolution(*[0] * 7)
    for layer in network.torso.layers:
        if isinstance(layer, nn.Conv2d):
            _, height, width = network.torso.image_shape
            sizes = layer.out_channels, layer.in_channels, layer.kernel_size[0], height, width
            convolution = Convolution(*sizes, at[id(layer.weight)], at[id(layer.bias)])
    rows, noise = [], 0
    for layer in network.head.modules():
        if isinstance(layer, nn.Linear):
            weight, bias = at[id(layer.weight)], at[id(layer.bias)]
            rows.append((layer.in_features, layer.out_features, weight, 0, bias, *[0] * 5))
        elif isinstance(layer, NoisyLinear):
            names = "weight_mu", "weight_sigma", "bias_mu", "bias_sigma"
            offsets = [at[id(getattr(layer, name))] for name in names]
            kind = True, layer.noise == "independent", layer.weight_sigma.requires_grad
            rows.append((layer.in_features, layer.out_features, *offsets, noise, *kind))
            noise += layer.noise_size
    dueling = isinstance(network.head, DuelingHead | DuelingCategoricalHead)
    atoms = np.empty(0, np.float32)
    if isinstance(network, CategoricalNetwork):
        atoms = network.atoms.numpy()
    return Layout(convolution, np.array(rows, LAYER), len(rows) // 2 if dueling else 0, atoms)


def _options(settings: config.Config, network: ValueNetwork) -> Options:
    learning, optimiser = settings.learning, settings.optimiser
    adam = isinstance(optimiser, config.Adam)
    return Options(
        scale=np.float32(network.torso.scale),
        double_q=learning.double_q,
        threshold=np.float32(1 if learning.loss == "huber" else np.inf),
        trunk_gradient_scale=np.float32(network.trunk_gradient_scale),
        max_gradient_norm=float(learning.max_gradient_norm or np.inf),
        norm_period_updates=NORM_PERIOD_UPDATES,
        adam=adam,
        learning_rate=optimiser.learning_rate,
        decay=0.0 if isinstance(optimiser, config.Adam) else optimiser.decay,
        epsilon=optimiser.epsilon,
    )


def _flat_averages(
    optimiser: torch.optim.Optimizer, parameters: list[nn.Parameter]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """The optimiser's averages and step counts as vectors, of which its state becomes views."""
    centred = isinstance(optimiser, CentredRMSProp)
    names = ("gradient_average", "square_average") if centred else ("exp_avg", "exp_avg_sq")
    size = offsets_of([*parameters, torch.empty(0)])[-1]
    vectors, steps = [torch.zeros(size) for _ in names], torch.zeros(len(parameters))
    for number, parameter in enumerate(parameters):
        if not parameter.requires_grad:
            continue
        state = optimiser.state[parameter]
        for name, vector in zip(names, vectors, strict=True):
            view = views_of(vector, parameters)[number]
            state[name] = view.copy_(state[name]) if name in state else view
        if not centred:
            steps[number] = state.get("step", 0)
            state["step"] = steps[number]
    first, second = (vector.numpy() for vector in vectors)
    return first, second, steps.numpy()
