"""A noisy policy for Stable-Baselines3's A2C and PPO."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from gymnasium import spaces
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
from noisynet.layers import (
    Noise,
    held_noise,
    hold_noise,
    noise_off,
    noisy_layers,
    resample_noise,
)


class NoisyActorCriticPolicy(NoisyPolicyMixin, ActorCriticPolicy):
    """A policy for A2C and PPO that explores by noisy weights.

    Each environment gets a noise sample when a roll-out begins. The sample is held until learning
    from that roll-out ends: for the single update of A2C (Algorithm 2), and for all epochs of PPO,
    whose ratio π_new/π_old would otherwise compare two noise samples instead of two sets of
    weights. `predict(deterministic=True)` uses the mean weights, `deterministic=False` a separate
    sample.

    Args:
        observation_space: images get the library's CNN, whose linear layer is noisy too.
        action_space: as for the library's policy.
        lr_schedule: as for the library's policy.
        noise: "independent", as in the paper's A3C, or "factorised", which is faster.
        keywords: `sigma0` (default: the paper's), and the arguments of the library's policy, such
            as `net_arch`.

    Raises:
        ValueError: `use_sde` is True; it is another kind of exploration noise.
    """

    __module__ = PUBLIC_MODULE

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Any,
        *,
        noise: Noise = "independent",
        **keywords: Any,
    ) -> None:
        if keywords.get("use_sde"):
            raise ValueError(
                "expected use_sde=False, got True: a noisy policy explores by its weights already"
            )
        self._batch_environments: Tensor | None = None
        super().__init__(observation_space, action_space, lr_schedule, noise=noise, **keywords)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        make_layers_noisy(self, **self.noise_arguments)
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def begin_rollout(self, num_envs: int) -> None:
        """Resample the noise, with a separate sample for each environment."""
        resample_noise(self, rows=num_envs if num_envs > 1 else None)
        self._batch_environments = None

    def set_batch_environments(self, environments: Tensor) -> None:
        """Set which environment each row of the next `evaluate_actions` came from [B]."""
        self._batch_environments = environments

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Compute values, log-probabilities and entropy, each row with the noise that acted."""
        if self._num_samples() is None:
            return super().evaluate_actions(obs, actions)
        held, environments = held_noise(self), self._batch_environments
        self._batch_environments = None
        if environments is None or len(environments) != len(actions):
            known = "none" if environments is None else len(environments)
            raise RuntimeError(
                f"evaluate_actions expected the environments of {len(actions)} rows, got {known}: "
                "call set_batch_environments first, or learn with A2C or PPO"
            )
        try:
            if self.noise_arguments["noise"] == "factorised":
                hold_noise(self, {name: sample[environments] for name, sample in held.items()})
                return super().evaluate_actions(obs, actions)
            return self._evaluate_by_environment(held, environments, obs, actions)
        finally:
            hold_noise(self, held)

    def _evaluate_by_environment(
        self, held: dict[str, Tensor], environments: Tensor, obs: Any, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """One pass per environment: independent noise for every row would need too much memory."""
        present, results = environments.unique(), []
        order = [(environments == env).nonzero().flatten() for env in present]
        for env, rows in zip(present, order, strict=True):
            hold_noise(self, {name: sample[env] for name, sample in held.items()})
            results.append(super().evaluate_actions(select_rows(obs, rows), actions[rows]))
        inverse = torch.cat(order).argsort()
        values, log_prob, entropy = zip(*results, strict=True)
        entropies = None if entropy[0] is None else torch.cat(entropy)[inverse]
        return torch.cat(values)[inverse], torch.cat(log_prob)[inverse], entropies

    def predict_values(self, obs: Any) -> Tensor:
        """Compute V of one observation per environment; other batches use the mean weights.

        The library also calls this with the last observation of a truncated episode, without
        saying which environment it came from.
        """
        with self._mean_unless_one_row_per_environment(obs):
            return super().predict_values(obs)

    def get_distribution(self, obs: Any) -> Any:
        """Compute the policy for one observation per environment; others use the mean weights."""
        with self._mean_unless_one_row_per_environment(obs):
            return super().get_distribution(obs)

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
            actions = []  # row by row, to save memory as in _evaluate_by_environment
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
