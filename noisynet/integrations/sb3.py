"""NoisyNet policies for Stable-Baselines3: DQN (plain and dueling), A2C, PPO, DDPG and TD3.

And for sb3-contrib's QR-DQN and TRPO.

    from stable_baselines3 import DQN
    from noisynet.integrations.sb3 import NoisyDQNPolicy

    model = DQN(NoisyDQNPolicy, "CartPole-v1", policy_kwargs=dict(sigma0=0.5)).learn(50_000)

Stable-Baselines3 collects data in eval mode. Layers that gate noise on `module.training` explore
without noise there; `NoisyLinear` does not depend on train/eval. Importing this module extends the
algorithms: a model with one of these policies sets ε to 0 and action noise to None, and tells its
policy when a roll-out begins and which environment each row of a batch came from. Other models are
not affected.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import nn

from noisynet.extras import extra

with extra("sb3"):
    from sb3_contrib import QRDQN, TRPO
    from stable_baselines3 import A2C, DQN, PPO, TD3
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.utils import LinearSchedule

from noisynet.integrations.sb3_actor_critic import NoisyActorCriticPolicy
from noisynet.integrations.sb3_audit import AGENTS, audit, load
from noisynet.integrations.sb3_continuous import NoisyTD3Policy
from noisynet.integrations.sb3_value import (
    NatureConvolutions,
    NoisyDQNPolicy,
    NoisyDuelingDQNPolicy,
    NoisyQNetwork,
    NoisyQRDQNPolicy,
)

__all__ = [
    "AGENTS",
    "NatureConvolutions",
    "NoisyActorCriticPolicy",
    "NoisyDQNPolicy",
    "NoisyDuelingDQNPolicy",
    "NoisyQNetwork",
    "NoisyQRDQNPolicy",
    "NoisyTD3Policy",
    "audit",
    "load",
]


def _disable_epsilon(model: Any) -> None:
    """Set ε to 0, with a warning if the user chose another value."""
    algorithm: Any = DQN if isinstance(model, DQN) else QRDQN
    defaults = inspect.signature(algorithm.__init__).parameters
    for name in ("exploration_initial_eps", "exploration_final_eps"):
        value = getattr(model, name)
        if value not in (0, defaults[name].default):
            message = f"{name}={value} is ignored and set to 0: a noisy policy explores by its "
            message += f"weights. Omit {name}, or set it to 0."
            warnings.warn(message, UserWarning, stacklevel=2)
        setattr(model, name, 0.0)
    model.exploration_rate = 0.0
    model.exploration_schedule = LinearSchedule(0.0, 0.0, model.exploration_fraction)


def _disable_action_noise(model: Any) -> None:
    """Set the action noise to None, with a warning if the user chose one."""
    if model.action_noise is not None:
        message = f"action_noise={model.action_noise!r} is ignored and set to None: a noisy policy "
        message += "explores by its weights. Omit action_noise."
        warnings.warn(message, UserWarning, stacklevel=2)
        model.action_noise = None


def _connect_rollout_buffer(model: Any) -> None:
    """Make the roll-out buffer tell the policy when a roll-out begins, and whose rows it samples.

    Only the buffer has this information. The functions are bound to the model, so that a copy of
    the model gets its own.
    """
    if not isinstance(model, A2C | PPO | TRPO):
        raise TypeError(
            f"NoisyActorCriticPolicy expected A2C, PPO or TRPO, got {type(model).__name__}, which "
            "would not learn with the noise of its roll-outs"
        )
    model.rollout_buffer.reset = MethodType(_reset, model)
    model.rollout_buffer.get = MethodType(_get, model)
    model.rollout_buffer._get_samples = MethodType(_get_samples, model)


def _reset(model: Any) -> None:
    buffer = model.rollout_buffer
    type(buffer).reset(buffer)
    model.policy.begin_rollout(buffer.n_envs)


def _get(model: Any, batch_size: int | None = None) -> Iterator[Any]:
    buffer = model.rollout_buffer
    yield from type(buffer).get(buffer, batch_size)
    model.policy.set_batch_environments(None)


def _get_samples(model: Any, rows: np.ndarray[Any, Any], *rest: Any) -> Any:
    buffer = model.rollout_buffer
    if buffer.n_envs > 1:  # the buffer is flattened environment by environment
        environments = torch.as_tensor(rows // buffer.buffer_size)
        stride = getattr(model, "sub_sampling_factor", 1)  # of TRPO
        model.policy.set_batch_environments(environments, stride)
    return type(buffer)._get_samples(buffer, rows, *rest)


def _extend(algorithm: Any, policy: Any, prepare: Callable[[Any], None]) -> None:
    """Call `prepare` for every model of an algorithm that is set up with such a policy."""
    set_up = algorithm._setup_model

    @functools.wraps(set_up)
    def set_up_and_prepare(self: Any) -> None:
        set_up(self)
        if isinstance(self.policy, policy):
            prepare(self)

    algorithm._setup_model = set_up_and_prepare


def _recommend_cpu_for_noisy_policies() -> None:
    """Extend the library's warning about small networks on a GPU, which knows policies by name."""
    recommend = OnPolicyAlgorithm._maybe_recommend_cpu

    @functools.wraps(recommend)
    def recommend_for_noisy_too(self: Any, mlp_class_name: str = "ActorCriticPolicy") -> None:
        noisy = isinstance(self.policy, NoisyActorCriticPolicy)
        if noisy and not any(isinstance(layer, nn.Conv2d) for layer in self.policy.modules()):
            mlp_class_name = self.policy_class.__name__
        recommend(self, mlp_class_name)

    OnPolicyAlgorithm._maybe_recommend_cpu = recommend_for_noisy_too


def _register(policy: Any, *algorithms: Any, prefix: str = "Noisy") -> None:
    for algorithm in algorithms:
        for kind in ("Mlp", "Cnn", "MultiInput"):  # each policy class handles all observations
            algorithm.policy_aliases[f"{prefix}{kind}Policy"] = policy


_extend(DQN, NoisyDQNPolicy, _disable_epsilon)
_extend(QRDQN, NoisyQRDQNPolicy, _disable_epsilon)
_extend(TD3, NoisyTD3Policy, _disable_action_noise)  # and DDPG, which is a TD3
_extend(OnPolicyAlgorithm, NoisyActorCriticPolicy, _connect_rollout_buffer)
_recommend_cpu_for_noisy_policies()
_register(NoisyDQNPolicy, DQN)
_register(NoisyDuelingDQNPolicy, DQN, prefix="NoisyDueling")
_register(NoisyQRDQNPolicy, QRDQN)
_register(NoisyTD3Policy, TD3)
_register(NoisyActorCriticPolicy, A2C, PPO, TRPO)
