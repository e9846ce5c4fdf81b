"""The audit of Stable-Baselines3 models with any noisy layers."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from sb3_contrib import QRDQN, TRPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import polyak_update
from torch import Tensor, nn

from noisynet.audit import NoiseReport, SyntheticData, audit_network
from noisynet.audit.checks import ACTIONS_PER_UPDATE

AGENTS: Final = (DQN, QRDQN, A2C, PPO, TRPO, DDPG, TD3)
"""The algorithms that `audit` accepts."""

_NAMES: Final = ", ".join(agent.__name__ for agent in AGENTS)

# What the audited copy has instead of the model's settings; others have no such setting.
_ON_POLICY: Final[dict[str, Any]] = {"n_steps": ACTIONS_PER_UPDATE}
# The steps of TRPO are large for so few actions: σ would soon be too small to measure the noise.
_TRPO: Final[dict[str, Any]] = {"target_kl": 1e-5, "learning_rate": 1e-5, "sub_sampling_factor": 1}
# Synthetic transitions do not fit a custom replay buffer, and a small buffer is enough.
_SMALL_REPLAY: Final[dict[str, Any]] = {
    "buffer_size": 256,
    "replay_buffer_class": None,
    "replay_buffer_kwargs": {},
}
_OFF_POLICY: Final[dict[str, Any]] = {**_SMALL_REPLAY, "policy_delay": 1}  # TD3 trains the actor


def audit(model: Any, *, updates: int = 100) -> NoiseReport:
    """Check that a model keeps the noise contract; see `noisynet.check_noise`.

    A copy of the model acts in one environment, learns by its own `train` and is evaluated, on
    synthetic observations. The model and the global random streams do not change.

    Args:
        model: a model of one of `AGENTS` with noisy layers in its policy.
        updates: how many updates to run, with four actions before each.

    Raises:
        TypeError: the argument is not such a model.
    """
    if not isinstance(model, AGENTS):
        raise TypeError(f"expected a model of {_NAMES}, got a {type(model).__name__}")
    file, on_policy = io.BytesIO(), isinstance(model, OnPolicyAlgorithm)
    model.save(file)
    changed = {"n_envs": 1, "seed": None, **(_ON_POLICY if on_policy else _OFF_POLICY)}
    if isinstance(model, TRPO):
        changed |= _TRPO
    with _preserve_global_streams():
        copy = type(model).load(file, custom_objects=changed, device=model.device)
        copy.set_logger(Logger(folder=None, output_formats=[]))
        copy.action_space.seed(0)
        return (_audit_on_policy if on_policy else _audit_off_policy)(copy, updates)


@contextmanager
def _preserve_global_streams() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def _audit_off_policy(model: Any, updates: int) -> NoiseReport:
    online, target = _networks(model)
    data = SyntheticData()
    for _ in range(model.replay_buffer.buffer_size):
        model.replay_buffer.add(
            _observation(data, model),
            _observation(data, model),
            np.array([model.action_space.sample()]),
            data.rewards(1),
            np.zeros(1),
            [{}],
        )
    return audit_network(
        online,
        target=target,
        act=lambda: model.policy.predict(_observation(data, model), deterministic=False),
        learn=lambda: model.train(gradient_steps=1, batch_size=32),
        evaluate=lambda: model.policy.predict(_observation(data, model), deterministic=True),
        sync=lambda: polyak_update(online.parameters(), target.parameters(), 1.0),
        contract="action",
        updates=updates,
    )


def _networks(model: Any) -> tuple[nn.Module, nn.Module]:
    """The online and the target network; those of DDPG and TD3 consist of actor and critics."""
    policy = model.policy
    if isinstance(model, TD3):
        return (
            nn.ModuleDict({"actor": policy.actor, "critic": policy.critic}),
            nn.ModuleDict({"actor": policy.actor_target, "critic": policy.critic_target}),
        )
    if isinstance(model, DQN):
        return policy.q_net, policy.q_net_target
    return policy.quantile_net, policy.quantile_net_target


def _audit_on_policy(model: Any, updates: int) -> NoiseReport:
    policy, buffer, data = model.policy, model.rollout_buffer, SyntheticData()

    def act() -> None:
        policy.set_training_mode(False)
        if buffer.full or buffer.pos == 0:
            buffer.reset()
        observation = _observation(data, model)
        with torch.no_grad():
            action, value, log_prob = policy(policy.obs_to_tensor(observation)[0])
        started, reward = np.zeros(1), data.rewards(1)
        buffer.add(observation, action.cpu().numpy(), reward, started, value, log_prob)

    def learn() -> None:
        with torch.no_grad():
            last = policy.predict_values(policy.obs_to_tensor(_observation(data, model))[0])
        buffer.compute_returns_and_advantage(last, np.zeros(1))
        model.train()

    return audit_network(
        policy,
        act=act,
        learn=learn,
        evaluate=lambda: policy.predict(_observation(data, model), deterministic=True),
        contract="rollout",
        updates=updates,
    )


def _observation(data: SyntheticData, model: Any) -> Any:
    """An observation with a batch dimension of 1."""
    found = data.observation(model.observation_space)
    if isinstance(found, dict):
        return {name: np.asarray(entry)[None] for name, entry in found.items()}
    return np.asarray(found)[None]


def load(path: str | Path) -> Any:
    """Load a model that `model.save` wrote, whichever its algorithm.

    The file contains pickles, which can execute arbitrary code. Load only files that you trust.

    Raises:
        ValueError: the file is not a saved model, or its algorithm is not in `AGENTS`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            settings = json.loads(archive.read("data"))
            file = io.BytesIO(archive.read("policy.pth"))
            weights = torch.load(file, map_location="cpu", weights_only=True)
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"expected a file that model.save wrote, got {path}: {error}") from error
    algorithm = _algorithm(path, settings, weights)
    on_policy = issubclass(algorithm, OnPolicyAlgorithm)
    return algorithm.load(path, custom_objects=None if on_policy else _SMALL_REPLAY)


def _algorithm(path: str | Path, settings: dict[str, Any], weights: dict[str, Tensor]) -> Any:
    """Infer the algorithm from weights and settings: the file does not name it."""
    networks, policy = {name.partition(".")[0] for name in weights}, settings.get("policy_class")
    if "quantile_net" in networks:
        return QRDQN
    if "q_net" in networks:
        return DQN
    if "actor_target" in networks:  # DDPG is a TD3 without its three tricks
        tricks = settings["policy_delay"] != 1 or settings["target_noise_clip"] != 0
        return TD3 if tricks else DDPG
    if "cg_max_steps" in settings:
        return TRPO
    from_contrib = "sb3_contrib" in (policy or {}).get("__module__", "")
    if "rollout_buffer_class" in settings and not from_contrib:
        return PPO if "clip_range" in settings else A2C
    raise ValueError(f"expected a model of {_NAMES} in {path}, got another algorithm")
