"""A whole value network, and views of it that share its weights but not its noise."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from noisynet.layers import Noise, NoisyLinear, noisy_layers
from noisynet.networks.heads import DuelingHead, Linear, QHead
from noisynet.networks.torso import Torso, TorsoKind

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class NetworkShape:
    """What decides a value network's shape.

    Attributes:
        torso: which convolutions.
        hidden: the sizes of the hidden fully connected layers.
        dueling: whether Q is put together from V and A.
        noise: the kind of noise on the fully connected layers, None for plain layers.
        sigma0: the initial noise, None for the paper's.
        learn_sigma: whether σ is trained; otherwise it stays at its initial value.
        trunk_gradient_scale: multiplies the gradient that enters the last convolution.
        scale: what observations are multiplied by.
    """

    torso: TorsoKind
    hidden: tuple[int, ...]
    dueling: bool
    noise: Noise | None
    sigma0: float | None
    learn_sigma: bool
    trunk_gradient_scale: float
    scale: float


class ValueNetwork(nn.Module):
    """Observations [B, stack, *frame] → Q [B, A].

    Args:
        shape: what it is built of.
        observation_shape: (stack, *frame), of one observation.
        num_actions: how many actions there are.
        generator: what initialises noisy layers and draws their first ε.
    """

    def __init__(
        self,
        shape: NetworkShape,
        observation_shape: Sequence[int],
        num_actions: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        linear = noisy_linear(shape.noise, shape.sigma0, generator)
        self.torso = Torso(shape.torso, observation_shape, shape.scale)
        head = DuelingHead if shape.dueling else QHead
        self.head = head(self.torso.features, shape.hidden, num_actions, linear)
        self.trunk_gradient_scale = shape.trunk_gradient_scale
        if not shape.learn_sigma:
            for layer in noisy_layers(self).values():
                layer.weight_sigma.requires_grad_(False)
                if layer.bias_sigma is not None:
                    layer.bias_sigma.requires_grad_(False)

    def forward(self, observation: Tensor) -> Tensor:
        """Q [B, A]."""
        features = self.torso(observation)
        if self.trunk_gradient_scale != 1 and features.requires_grad:
            # Dueling: both streams' gradients, combined, enter the last convolution × 1/√2.
            features.register_hook(lambda gradient: gradient * self.trunk_gradient_scale)
        q: Tensor = self.head(features)
        return q


def view_with_own_noise(network: Network) -> Network:
    """A network that shares every parameter with `network` but holds its own ε."""
    shared = {id(parameter): parameter for parameter in network.parameters()}
    return copy.deepcopy(network, memo=dict(shared))


def noisy_linear(noise: Noise | None, sigma0: float | None, generator: torch.Generator) -> Linear:
    """Makes noisy layers of one kind, or plain ones if there is no noise."""
    if noise is None:
        return nn.Linear
    kind = noise

    def noisy(inputs: int, outputs: int) -> nn.Module:
        return NoisyLinear(inputs, outputs, noise=kind, sigma0=sigma0, generator=generator)

    return noisy
