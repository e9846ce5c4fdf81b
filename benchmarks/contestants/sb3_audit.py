"""The pattern of a layer that is gated on `self.training`, in Stable-Baselines3's DQN.

The library has no noisy layer. The layer here is ours with the gate added, and in the agent it
resamples in every noisy pass, so that nothing but the gate can fail.
"""

from __future__ import annotations

from importlib import metadata

import gymnasium
from audit_entry import audit_layer, hand_over
from stable_baselines3 import DQN
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from noisynet import NoisyLinear
from noisynet.integrations.sb3 import audit


class GatedLinear(NoisyLinear):
    """Uses noise in train mode only."""

    def forward(self, x):
        """Use the current sample in train mode, else the means."""
        if self.training:
            return super().forward(x)
        return nn.functional.linear(x, self.weight_mu, self.bias_mu)


class ResamplingLinear(GatedLinear):
    """Also resamples in every noisy pass: the library does not call `resample_noise`."""

    def forward(self, x):
        """Resample before noise is used."""
        if self.training:
            self.resample_noise()
        return super().forward(x)


class GatedPolicy(DQNPolicy):
    """The library's policy with gated layers."""

    def make_q_net(self):
        """Replace its linear layers."""
        network = super().make_q_net()
        for index, layer in enumerate(network.q_net):
            if isinstance(layer, nn.Linear):
                network.q_net[index] = ResamplingLinear(layer.in_features, layer.out_features)
        return network


# Its own loop acts and bootstraps in eval mode: collect_rollouts calls set_training_mode(False).
model = DQN(GatedPolicy, gymnasium.make("CartPole-v1"), buffer_size=1_000, device="cpu")
hand_over(
    metadata.version("stable-baselines3"),
    layer=(
        "a layer gated on `self.training`",
        "our `NoisyLinear` with the gate added, resampled by `resample_noise`",
        audit_layer(GatedLinear),
    ),
    agent=(
        "`DQN` with that layer",
        "the layer resamples in every noisy pass; acts by `policy.predict`, learns by "
        "`model.train`; noise is due before every action",
        audit(model),
    ),
)
