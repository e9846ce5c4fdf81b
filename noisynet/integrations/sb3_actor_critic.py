"""A noisy policy for Stable-Baselines3's A2C and PPO, and for sb3-contrib's TRPO."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

from noisynet.integrations.sb3_policy import (
    PUBLIC_MODULE,
    NoisyPolicyMixin,
    batch_size,
    make_layers_noisy,
    noise_rows,
    select_rows,
)
from noisynet.layers import Noise, held_noise, hold_noise, noise_off, noisy_layers, resample_noise


class NoisyActorCriticPolicy(NoisyPolicyMixin, ActorCriticPolicy):
    """A policy for A2C, PPO and TRPO that explores by noisy weights.

    Each environment gets a noise sample when a roll-out begins. The sample is held until learning
    from that roll-out ends: for the single update of A2C (Algorithm 2), for all epochs of PPO, and
    for the line search and the critic's updates of TRPO. The ratio π_new/π_old would otherwise
    compare two noise samples instead of two sets of weights. `predict(deterministic=True)` uses
    the mean weights, `deterministic=False` a separate sample.

    The arguments are those of the library's policy, `sigma0` (None: the paper's) and `noise`
    ("independent", as in the paper's A3C, or "factorised", which is faster). With `ortho_init`, μ
    is the library's orthogonal initialisation instead of the paper's. Images get the library's CNN,
    whose linear layer is noisy too.

    Raises:
        ValueError: `use_sde` is True; it is another kind of exploration noise.
    """

    __module__ = PUBLIC_MODULE

    def __init__(
        self,
        *arguments: Any,
        noise: Noise = "independent",
        ortho_init: bool = False,
        **keywords: Any,
    ) -> None:
        if keywords.get("use_sde"):
            raise ValueError(
                "expected use_sde=False, got True: a noisy policy explores by its weights already"
            )
        self._batch_environments: Tensor | None = None
        self._stride = 1
        super().__init__(*arguments, noise=noise, ortho_init=ortho_init, **keywords)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        make_layers_noisy(self, **self.noise_arguments, keep_weights=self.ortho_init)
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def begin_rollout(self, num_envs: int) -> None:
        """Resample the noise, with a separate sample for each environment."""
        resample_noise(self, rows=num_envs if num_envs > 1 else None)
        self._batch_environments = None

    def set_batch_environments(self, environments: Tensor | None, stride: int = 1) -> None:
        """Set the environments [B] of the batch that is learnt next; None after the last batch.

        TRPO updates its policy with every `stride`-th row only.
        """
        self._batch_environments, self._stride = environments, stride

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Compute values, log-probabilities and entropy, each row with the noise that acted."""
        evaluate = super().evaluate_actions
        if self._num_samples() is None:
            return evaluate(obs, actions)
        environments, known = self._environments_of(obs), self._batch_environments
        self._batch_environments = None
        if environments is None:
            raise RuntimeError(
                f"evaluate_actions expected the environments of {len(actions)} rows, got "
                f"{'none' if known is None else len(known)}: call set_batch_environments first, or "
                "learn with A2C, PPO or TRPO"
            )
        return self._by_environment(evaluate, environments, obs, actions)

    def predict_values(self, obs: Any) -> Tensor:
        """Compute V of a batch of the roll-out, or of one observation per environment.

        Other batches use the mean weights: the library also asks for V of the last observation of
        a truncated episode, without saying which environment it came from.
        """
        predict, environments = super().predict_values, self._environments_of(obs)
        if environments is not None:
            return self._by_environment(lambda obs: (predict(obs),), environments, obs)[0]
        with self._mean_unless_one_row_per_environment(obs):
            return predict(obs)

    def get_distribution(self, obs: Any) -> Any:
        """Compute the policy for a batch of the roll-out, or for one observation per environment.

        Other batches use the mean weights.
        """
        environments = self._environments_of(obs)
        if environments is None:
            with self._mean_unless_one_row_per_environment(obs):
                return super().get_distribution(obs)
        (outputs,) = self._by_environment(self._action_outputs, environments, obs)
        gaussian = isinstance(self.action_dist, DiagGaussianDistribution)
        return self.action_dist.proba_distribution(outputs, *([self.log_std] if gaussian else []))

    def _action_outputs(self, obs: Any) -> tuple[Tensor]:
        """The logits of the actions, or their means if they are continuous."""
        features = self.extract_features(obs, self.pi_features_extractor)
        return (self.action_net(self.mlp_extractor.forward_actor(features)),)

    def _environments_of(self, obs: Any) -> Tensor | None:
        """The environment of each row, if this is a batch of the roll-out."""
        known, count = self._batch_environments, batch_size(obs)
        if known is None or self._num_samples() is None:
            return None
        candidates = (known, known[:: self._stride])
        return next((found for found in candidates if len(found) == count), None)

    def _by_environment(
        self, compute: Callable[..., tuple[Any, ...]], environments: Tensor, obs: Any, *rest: Tensor
    ) -> Any:
        """Compute tensors of a batch, each row with the noise of its environment."""
        held = held_noise(self)
        try:
            if self.noise_arguments["noise"] == "factorised":
                hold_noise(self, {name: sample[environments] for name, sample in held.items()})
                return compute(obs, *rest)
            # One pass per environment: independent noise for every row would need too much memory.
            present, results = environments.unique(), []
            order = [(environments == env).nonzero().flatten() for env in present]
            for env, rows in zip(present, order, strict=True):
                hold_noise(self, {name: sample[env] for name, sample in held.items()})
                results.append(compute(select_rows(obs, rows), *(entry[rows] for entry in rest)))
        finally:
            hold_noise(self, held)
        inverse = torch.cat(order).argsort()
        columns = zip(*results, strict=True)
        return tuple(None if each[0] is None else torch.cat(each)[inverse] for each in columns)

    def _mean_unless_one_row_per_environment(self, obs: Any) -> AbstractContextManager[None]:
        return nullcontext() if self._num_samples() in (None, batch_size(obs)) else noise_off(self)

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        if deterministic:
            with noise_off(self):
                return super()._predict(observation, deterministic)
        held = held_noise(self)  # the current roll-out needs it afterwards
        try:
            if self.noise_arguments["noise"] == "factorised":
                resample_noise(self, rows=noise_rows(observation))
                return super()._predict(observation, deterministic)
            actions = []  # row by row, to save memory as in _by_environment
            for row in torch.arange(batch_size(observation)):
                resample_noise(self)
                actions.append(super()._predict(select_rows(observation, row[None]), deterministic))
            return torch.cat(actions)
        finally:
            hold_noise(self, held)

    def _num_samples(self) -> int | None:
        """The number of environments with separate noise, or None for one shared sample."""
        (rows,) = {layer.rows for layer in noisy_layers(self).values()}
        return rows
