"""Value networks, and views of a network that share its weights but not its noise."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from noisynet.layers import Distribution, Noise, NoiseFunction, NoisyLinear, noisy_layers
from noisynet.losses import categorical_mean
from noisynet.networks.heads import (
    CategoricalHead,
    DuelingCategoricalHead,
    DuelingHead,
    Linear,
    QHead,
)
from noisynet.networks.torso import Convolution, Torso

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class NetworkShape:
    """The architecture of a value network.

    Attributes:
        convolutions: of the torso.
        hidden: the sizes of the hidden fully connected layers.
        dueling: whether Q is the sum of V and A.
        noise: the kind of noise on the fully connected layers, None for plain layers.
        sigma0: the initial noise, None for the paper's.
        learn_sigma: whether σ is trained; otherwise it stays at its initial value.
        trunk_gradient_scale: multiplies the gradient that enters the last convolution.
        scale: multiplies the observations.
        atoms: the support of the distributions over returns; empty for plain Q-values.
        distribution: of ε.
        f: shapes factorised noise.
    """

    convolutions: tuple[Convolution, ...]
    hidden: tuple[int, ...]
    dueling: bool
    noise: Noise | None
    sigma0: float | None
    learn_sigma: bool
    trunk_gradient_scale: float
    scale: float
    atoms: tuple[float, ...] = ()
    distribution: Distribution = "gaussian"
    f: NoiseFunction = "signed_sqrt"


class ValueNetwork(nn.Module):
    """Observations [B, stack, *frame] → Q [B, A].

    Args:
        shape: the architecture.
        observation_shape: (stack, *frame) of one observation.
        num_actions: the number of actions.
        generator: initialises noisy layers and draws their first ε.
    """

    def __init__(
        self,
        shape: NetworkShape,
        observation_shape: Sequence[int],
        num_actions: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        linear = noisy_linear(shape.noise, shape.sigma0, generator, shape.distribution, shape.f)
        self.torso = Torso(shape.convolutions, observation_shape, shape.scale)
        self.head = self._make_head(shape, num_actions, linear)
        self.trunk_gradient_scale = shape.trunk_gradient_scale
        if not shape.learn_sigma:
            freeze_sigma(self)

    def _make_head(self, shape: NetworkShape, num_actions: int, linear: Linear) -> nn.Module:
        head = DuelingHead if shape.dueling else QHead
        return head(self.torso.features, shape.hidden, num_actions, linear)

    def forward(self, observation: Tensor) -> Tensor:
        """Q [B, A]."""
        return self._outputs(observation)

    def _outputs(self, observation: Tensor) -> Tensor:
        features = self.torso(observation)
        if self.trunk_gradient_scale != 1:
            # Dueling: both streams' gradients, combined, enter the last convolution × 1/√2.
            features = _ScaledGradient.apply(features, self.trunk_gradient_scale)  # type: ignore[no-untyped-call]
        outputs: Tensor = self.head(features)
        return outputs


class CategoricalNetwork(ValueNetwork):
    """Observations → a distribution over returns for each action; Q is its mean (C51)."""

    atoms: Tensor  # z [N]

    def _make_head(self, shape: NetworkShape, num_actions: int, linear: Linear) -> nn.Module:
        self.register_buffer("atoms", torch.tensor(shape.atoms), persistent=False)
        head = DuelingCategoricalHead if shape.dueling else CategoricalHead
        return head(self.torso.features, shape.hidden, num_actions, len(shape.atoms), linear)

    def logits(self, observation: Tensor) -> Tensor:
        """Logits [B, A, N] of the distributions."""
        return self._outputs(observation)

    def forward(self, observation: Tensor) -> Tensor:
        """Q [B, A]."""
        return categorical_mean(self.logits(observation), self.atoms)


def make_value_network(
    shape: NetworkShape,
    observation_shape: Sequence[int],
    num_actions: int,
    generator: torch.Generator,
) -> ValueNetwork:
    """A network of Q-values, or of distributions where the shape has atoms."""
    kind = CategoricalNetwork if shape.atoms else ValueNetwork
    return kind(shape, observation_shape, num_actions, generator)


class _ScaledGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.scale, None


def freeze_sigma(network: nn.Module) -> None:
    """Exclude every σ of a network from training."""
    for layer in noisy_layers(network).values():
        layer.weight_sigma.requires_grad_(False)
        if layer.bias_sigma is not None:
            layer.bias_sigma.requires_grad_(False)


def view_with_own_noise(network: Network) -> Network:
    """A network that shares every parameter with `network` but holds its own ε."""
    shared = {id(parameter): parameter for parameter in network.parameters()}
    return copy.deepcopy(network, memo=dict(shared))


def noisy_linear(
    noise: Noise | None,
    sigma0: float | None,
    generator: torch.Generator,
    distribution: Distribution = "gaussian",
    f: NoiseFunction = "signed_sqrt",
) -> Linear:
    """A function that makes noisy layers of one kind, or plain ones without noise."""
    if noise is None:
        return nn.Linear
    kind = noise

    def noisy(inputs: int, outputs: int) -> nn.Module:
        return NoisyLinear(
            inputs,
            outputs,
            noise=kind,
            sigma0=sigma0,
            distribution=distribution,
            f=f,
            generator=generator,
        )

    return noisy
