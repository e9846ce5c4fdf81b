"""A noisy policy for sb3-contrib's QR-DQN."""

from __future__ import annotations

from sb3_contrib.qrdqn.policies import QRDQNPolicy, QuantileNetwork

from noisynet.integrations.sb3_policy import PUBLIC_MODULE, NoisyPolicyMixin, ResamplingMixin


class NoisyQuantileNetwork(ResamplingMixin, QuantileNetwork):
    """The library's quantile network with all linear layers noisy."""


class NoisyQRDQNPolicy(NoisyPolicyMixin, QRDQNPolicy):
    """A policy for QR-DQN that explores by noisy weights; see `NoisyDQNPolicy`."""

    __module__ = PUBLIC_MODULE

    def make_quantile_net(self) -> NoisyQuantileNetwork:
        """Build the online or the target network."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return NoisyQuantileNetwork(**arguments, **self.noise_arguments).to(self.device)
