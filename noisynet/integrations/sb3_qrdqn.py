"""A noisy policy for sb3-contrib's QR-DQN."""

from __future__ import annotations

from typing import Any

from sb3_contrib.qrdqn.policies import QRDQNPolicy, QuantileNetwork

from noisynet.integrations.sb3_policy import PUBLIC_MODULE, NoisyPolicyMixin, make_layers_noisy
from noisynet.integrations.sb3_value import ResamplingMixin
from noisynet.layers import Noise


class NoisyQuantileNetwork(ResamplingMixin, QuantileNetwork):
    """The library's quantile network with all linear layers noisy."""

    def __init__(
        self,
        *arguments: Any,
        noise: Noise = "factorised",
        sigma0: float | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        make_layers_noisy(self, noise, sigma0)


class NoisyQRDQNPolicy(NoisyPolicyMixin, QRDQNPolicy):
    """A policy for QR-DQN that explores by noisy weights; see `NoisyDQNPolicy`."""

    __module__ = PUBLIC_MODULE

    def make_quantile_net(self) -> NoisyQuantileNetwork:
        """Build the online or the target network."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return NoisyQuantileNetwork(**arguments, **self.noise_arguments).to(self.device)
