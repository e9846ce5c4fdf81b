"""The actor-critic network: policy and value heads, feed-forward or with an LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from noisynet.layers import Distribution, Noise, NoiseFunction, NoisyLSTMCell
from noisynet.networks.build import freeze_sigma, noisy_linear
from noisynet.networks.heads import fully_connected
from noisynet.networks.torso import Convolution, Torso

InitialWeights = Literal["uniform", "orthogonal"]
"""PyTorch's U[±1/√inputs], or orthogonal matrices with biases of 0."""

LSTMState = tuple[Tensor, Tensor]
"""Hidden and cell state of an LSTM, each [N, cells]."""


@dataclass(frozen=True)
class ActorCriticNetworkShape:
    """The architecture of an actor-critic network.

    Attributes:
        convolutions: of the torso.
        hidden: the sizes of the hidden fully connected layers, which policy and value share.
        cells: of the LSTM after them, None for a feed-forward network.
        noise: the kind of noise, None for plain layers.
        noisy: which fully connected layers are noisy.
        noisy_lstm: whether the LSTM is noisy, too.
        sigma0: the initial noise, None for the paper's.
        learn_sigma: whether σ is trained; otherwise it stays at its initial value.
        scale: multiplies the observations.
        distribution: of ε.
        f: shapes factorised noise.
        initial_weights: of plain layers; noisy ones have the paper's.
        centre_images: whether each image's own mean is subtracted from it.
    """

    convolutions: tuple[Convolution, ...]
    hidden: tuple[int, ...]
    cells: int | None
    noise: Noise | None
    noisy: Literal["all", "heads"]
    noisy_lstm: bool
    sigma0: float | None
    learn_sigma: bool
    scale: float
    distribution: Distribution = "gaussian"
    f: NoiseFunction = "signed_sqrt"
    initial_weights: InitialWeights = "uniform"
    centre_images: bool = False


class ActorCriticNetwork(nn.Module):
    """Observations → logits of the policy and V: two heads on shared layers (appendix A).

    Args:
        shape: the architecture.
        observation_shape: (stack, *frame) of one observation.
        num_actions: the number of actions.
        generator: initialises noisy layers and draws their first ε.
    """

    def __init__(
        self,
        shape: ActorCriticNetworkShape,
        observation_shape: Sequence[int],
        num_actions: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        noisy = noisy_linear(shape.noise, shape.sigma0, generator, shape.distribution, shape.f)
        hidden = noisy if shape.noisy == "all" else nn.Linear
        self.torso = Torso(shape.convolutions, observation_shape, shape.scale, shape.centre_images)
        self.hidden = fully_connected((self.torso.features, *shape.hidden), hidden)
        self.hidden.append(nn.ReLU())
        features = shape.hidden[-1]
        self.cell: nn.LSTMCell | NoisyLSTMCell | None = None
        if shape.cells is not None:
            self.cell = _cell(shape, features, shape.cells, generator)
            features = shape.cells
        self.policy = noisy(features, num_actions)
        self.value = noisy(features, 1)
        if not shape.learn_sigma:
            freeze_sigma(self)
        if shape.initial_weights == "orthogonal":
            self._make_orthogonal()

    def _make_orthogonal(self) -> None:
        """Orthogonal weights in plain layers, with the gains of A2C in OpenAI's Baselines."""
        gains = {self.policy: 0.01, self.value: 1.0}  # a nearly uniform policy at the beginning
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                # A copy: flattening channels-last weights is a view of them in another order.
                weight = torch.empty(layer.weight.shape)
                nn.init.orthogonal_(weight, gains.get(layer, 2**0.5))
                with torch.no_grad():
                    layer.weight.copy_(weight)
                    nn.init.zeros_(cast("Tensor", layer.bias))

    def features(self, observation: Tensor) -> Tensor:
        """Hidden features [..., N, F] of observations [..., N, stack, *frame].

        The N environments keep a dimension of their own: each has its own noise sample.
        """
        lead = observation.shape[: observation.dim() - self.torso.observation_dims]
        features = self.torso(observation).unflatten(0, lead)
        hidden: Tensor = self.hidden(features)
        return hidden

    def step_lstm(
        self, features: Tensor, state: LSTMState | None
    ) -> tuple[Tensor, LSTMState | None]:
        """One step of the LSTM, if there is one, from features [N, F] and its state."""
        if self.cell is None:
            return features, None
        hidden, cell = self.cell(features, state)
        return hidden, (hidden, cell)

    def heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [..., A] of the policy, before the softmax, and V [...]."""
        return self.policy(features), self.value(features).squeeze(-1)

    def forward(
        self, observation: Tensor, state: LSTMState | None = None
    ) -> tuple[Tensor, Tensor, LSTMState | None]:
        """Logits [N, A], V [N] and the next state for observations [N, stack, *frame]."""
        features, state = self.step_lstm(self.features(observation), state)
        return *self.heads(features), state


def _cell(
    shape: ActorCriticNetworkShape, inputs: int, cells: int, generator: torch.Generator
) -> nn.LSTMCell | NoisyLSTMCell:
    if shape.noise is None or not shape.noisy_lstm:
        return nn.LSTMCell(inputs, cells)
    return NoisyLSTMCell(
        inputs,
        cells,
        noise=shape.noise,
        sigma0=shape.sigma0,
        distribution=shape.distribution,
        f=shape.f,
        generator=generator,
    )
