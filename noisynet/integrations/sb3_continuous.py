"""A noisy policy for Stable-Baselines3's DDPG and TD3, whose actions are continuous."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.td3.policies import Actor, TD3Policy
from torch import Tensor

from noisynet.integrations.sb3_policy import PUBLIC_MODULE, NoisyPolicyMixin, ResamplingMixin
from noisynet.layers import noisy_layers


class NoisyActor(ResamplingMixin, Actor):
    """The library's deterministic actor with all linear layers noisy."""


class NoisyCritic(ResamplingMixin, ContinuousCritic):
    """The library's critics with all linear layers noisy, each critic with its own noise.

    `forward`, the pass of the critics' loss and of their target, draws a sample. `q1_forward`, the
    pass of the actor's loss that follows it, uses the same sample: one for each training step.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        # The library keeps a list of the critics, which still has the ones without noise.
        self.q_networks = [self.get_submodule(f"qf{index}") for index in range(self.n_critics)]


class NoisyTD3Policy(NoisyPolicyMixin, TD3Policy):
    """A policy for DDPG and TD3 that explores by a noisy actor instead of action noise.

    Acting, the actor and its target use independent noise, resampled before every forward pass:
    one sample for each environment when acting, and one for the batch of a training step.
    `action_noise` is None. `predict(deterministic=True)` uses the mean weights,
    `deterministic=False` the noise.

    The arguments are those of the library's policy, `sigma0` (None: the paper's), `noise`
    ("factorised" or "independent"), and `noisy_critics`, which makes the critics noisy too. Images
    get the library's CNN, whose linear layer is noisy too.

    Raises:
        ValueError: `share_features_extractor` is True and the extractor has linear layers. Actor
            and critics would resample the same layers.
    """

    __module__ = PUBLIC_MODULE

    def __init__(self, *arguments: Any, noisy_critics: bool = False, **keywords: Any) -> None:
        self.noisy_critics = noisy_critics
        super().__init__(*arguments, **keywords)

    def make_actor(self, features_extractor: Any = None) -> NoisyActor:
        """Build the actor or its target."""
        arguments = self._update_features_extractor(self.actor_kwargs, features_extractor)
        return NoisyActor(**arguments, **self.noise_arguments).to(self.device)

    def make_critic(self, features_extractor: Any = None) -> ContinuousCritic:
        """Build the critics or their target."""
        if features_extractor is not None and noisy_layers(features_extractor):
            raise ValueError(
                "expected share_features_extractor=False, got True with an extractor that has "
                "noisy layers: actor and critics need separate noise"
            )
        arguments = self._update_features_extractor(self.critic_kwargs, features_extractor)
        if self.noisy_critics:
            return NoisyCritic(**arguments, **self.noise_arguments).to(self.device)
        return ContinuousCritic(**arguments).to(self.device)

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        return self.actor._predict(observation, deterministic)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "noisy_critics": self.noisy_critics}
