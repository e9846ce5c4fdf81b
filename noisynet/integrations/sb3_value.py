"""Noisy networks and policies for Stable-Baselines3's DQN and sb3-contrib's QR-DQN."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from sb3_contrib.qrdqn.policies import QRDQNPolicy, QuantileNetwork
from stable_baselines3.common.torch_layers import NatureCNN, create_mlp
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import Tensor, nn

from noisynet.integrations.sb3_policy import (
    PUBLIC_MODULE,
    NoisyPolicyMixin,
    ResamplingMixin,
    default_extractor,
)


class _DuelingHead(nn.Module):
    """V and A, each with its own hidden layers (Eq. 3)."""

    def __init__(
        self, features: int, actions: int, hidden: list[int], activation: type[nn.Module]
    ) -> None:
        super().__init__()
        self.value = nn.Sequential(*create_mlp(features, 1, hidden, activation))
        self.advantage = nn.Sequential(*create_mlp(features, actions, hidden, activation))

    def forward(self, features: Tensor) -> Tensor:
        advantage: Tensor = self.advantage(features)
        values: Tensor = self.value(features) + advantage - advantage.mean(dim=-1, keepdim=True)
        return values


class _QNetwork(QNetwork):
    """The library's Q-network, optionally with a dueling head."""

    def __init__(self, *arguments: Any, dueling: bool = False, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if dueling:
            self.q_net = _DuelingHead(
                self.features_dim, int(self.action_space.n), self.net_arch, self.activation_fn
            )


class NoisyQNetwork(ResamplingMixin, _QNetwork):
    """The library's Q-network with all linear layers noisy, and optionally a dueling head."""

    __module__ = PUBLIC_MODULE


class NatureConvolutions(NatureCNN):
    """`NatureCNN` without its linear layer, which each dueling stream has of its own."""

    __module__ = PUBLIC_MODULE

    def __init__(self, observation_space: spaces.Box, **keywords: Any) -> None:
        super().__init__(observation_space, **keywords)
        with torch.no_grad():
            self._features_dim = self.cnn(torch.zeros(1, *observation_space.shape)).shape[1]
        self.linear = nn.Sequential()


class NoisyDQNPolicy(NoisyPolicyMixin, DQNPolicy):
    """A policy for DQN that explores by noisy weights instead of ε-greedy.

    Acting, the online network and the target network use independent noise, resampled before every
    forward pass. ε is 0. `predict(deterministic=True)` uses the mean weights,
    `deterministic=False` the noise.

    The arguments are those of the library's policy, `sigma0` (None: the paper's), and `noise`
    ("factorised" or "independent"). Images get the library's CNN, whose linear layer is noisy too.
    """

    __module__ = PUBLIC_MODULE
    dueling = False

    def __init__(
        self, observation_space: spaces.Space[Any], *arguments: Any, **keywords: Any
    ) -> None:
        extractor = keywords.setdefault(
            "features_extractor_class", default_extractor(observation_space, keywords)
        )
        if self.dueling and extractor is NatureCNN:
            extractor = keywords["features_extractor_class"] = NatureConvolutions
        if extractor is NatureConvolutions and keywords.get("net_arch") is None:
            options = keywords.get("features_extractor_kwargs") or {}
            keywords["net_arch"] = [options.get("features_dim", 512)]
        super().__init__(observation_space, *arguments, **keywords)

    def make_q_net(self) -> NoisyQNetwork:
        """Build the online or the target network."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        network = NoisyQNetwork(**arguments, **self.noise_arguments, dueling=self.dueling)
        return network.to(self.device)


class NoisyDuelingDQNPolicy(NoisyDQNPolicy):
    """`NoisyDQNPolicy` with a dueling head."""

    __module__ = PUBLIC_MODULE
    dueling = True


class NoisyQuantileNetwork(ResamplingMixin, QuantileNetwork):
    """The library's quantile network with all linear layers noisy."""


class NoisyQRDQNPolicy(NoisyPolicyMixin, QRDQNPolicy):
    """A policy for QR-DQN that explores by noisy weights; see `NoisyDQNPolicy`."""

    __module__ = PUBLIC_MODULE

    def make_quantile_net(self) -> NoisyQuantileNetwork:
        """Build the online or the target network."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return NoisyQuantileNetwork(**arguments, **self.noise_arguments).to(self.device)
