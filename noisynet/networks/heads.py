"""Heads of value networks: from features to action values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn

Linear = Callable[[int, int], nn.Module]
"""Makes a fully connected layer, plain or noisy, from its numbers of inputs and outputs."""


class QHead(nn.Module):
    """Features → hidden layers → one value for each action.

    Args:
        features: the number of inputs.
        hidden: the sizes of the hidden layers; (512,) in Mnih et al. 2015.
        num_actions: the number of outputs.
        linear: makes the fully connected layers.
    """

    def __init__(
        self, features: int, hidden: Sequence[int], num_actions: int, linear: Linear
    ) -> None:
        super().__init__()
        self.q = fully_connected((features, *hidden, num_actions), linear)

    def forward(self, features: Tensor) -> Tensor:
        """Q [B, A]."""
        q: Tensor = self.q(features)
        return q


class DuelingHead(nn.Module):
    """Q = V + A − mean A (Eq. 3), with separate hidden layers for V and A.

    Args:
        features: the number of inputs.
        hidden: the sizes of the hidden layers, the same for V and for A.
        num_actions: the number of outputs.
        linear: makes the fully connected layers.
    """

    def __init__(
        self, features: int, hidden: Sequence[int], num_actions: int, linear: Linear
    ) -> None:
        super().__init__()
        self.value = fully_connected((features, *hidden, 1), linear)
        self.advantage = fully_connected((features, *hidden, num_actions), linear)

    def forward(self, features: Tensor) -> Tensor:
        """Q [B, A]."""
        advantage: Tensor = self.advantage(features)
        q: Tensor = self.value(features) + advantage - advantage.mean(dim=-1, keepdim=True)  # Eq. 3
        return q


class CategoricalHead(nn.Module):
    """Logits of a distribution over returns for each action (C51).

    Args:
        features: the number of inputs.
        hidden: the sizes of the hidden layers.
        num_actions: A.
        num_atoms: N, of each distribution.
        linear: makes the fully connected layers.
    """

    def __init__(
        self,
        features: int,
        hidden: Sequence[int],
        num_actions: int,
        num_atoms: int,
        linear: Linear,
    ) -> None:
        super().__init__()
        self.shape = (num_actions, num_atoms)
        self.logits = fully_connected((features, *hidden, num_actions * num_atoms), linear)

    def forward(self, features: Tensor) -> Tensor:
        """Logits [B, A, N]."""
        logits: Tensor = self.logits(features).unflatten(-1, self.shape)
        return logits


class DuelingCategoricalHead(nn.Module):
    """Logits that are the sum of V and centred A, atom by atom (Rainbow: Hessel et al. 2018).

    Args:
        features: the number of inputs.
        hidden: the sizes of the hidden layers of each stream.
        num_actions: A.
        num_atoms: N, of each distribution.
        linear: makes the fully connected layers.
    """

    def __init__(
        self,
        features: int,
        hidden: Sequence[int],
        num_actions: int,
        num_atoms: int,
        linear: Linear,
    ) -> None:
        super().__init__()
        self.shape = (num_actions, num_atoms)
        self.value = fully_connected((features, *hidden, num_atoms), linear)
        self.advantage = fully_connected((features, *hidden, num_actions * num_atoms), linear)

    def forward(self, features: Tensor) -> Tensor:
        """Logits [B, A, N]."""
        value: Tensor = self.value(features).unsqueeze(-2)  # [B, 1, N]
        advantage: Tensor = self.advantage(features).unflatten(-1, self.shape)
        return value + advantage - advantage.mean(dim=-2, keepdim=True)


def fully_connected(sizes: Sequence[int], linear: Linear) -> nn.Sequential:
    """Linear layers of the given sizes with a ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
