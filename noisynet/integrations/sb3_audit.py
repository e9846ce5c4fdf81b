"""The audit of Stable-Baselines3 models: DQN, QR-DQN, A2C and PPO, with anybody's noisy layers."""

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
from gymnasium import spaces
from torch import Tensor

from noisynet import layers
from noisynet.extras import extra
from noisynet.layers import NoiseReport
from noisynet.layers.checks import ACTIONS_PER_UPDATE

with extra("sb3"):
    from stable_baselines3 import A2C, DQN, PPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.utils import polyak_update
try:
    from sb3_contrib import QRDQN
except ImportError:  # then there is no QR-DQN to audit
    QRDQN = None

AGENTS: Final = (DQN, A2C, PPO) if QRDQN is None else (DQN, QRDQN, A2C, PPO)
"""The algorithms that `check_noise` knows how to run."""


def check_noise(model: Any, *, updates: int = 100) -> NoiseReport:
    """Audit a model's noise, whoever wrote its noisy layers: see `noisynet.check_noise`.

    A copy of the model acts as one environment, learns by the algorithm's own `train` and is
    evaluated, on made-up observations of its space. Neither the model nor a random stream moves.

    Args:
        model: of DQN, QR-DQN, A2C or PPO, with noisy layers in its policy.
        updates: how many updates to watch, with four actions before each.

    Raises:
        TypeError: another algorithm, or no model.
    """
    if not isinstance(model, AGENTS):
        known = ", ".join(agent.__name__ for agent in AGENTS)
        raise TypeError(f"expected a model of {known}, got a {type(model).__name__}")
    file, changed = io.BytesIO(), {"n_envs": 1, "seed": None}
    model.save(file)
    on_policy = isinstance(model, OnPolicyAlgorithm)
    changed |= {"n_steps": ACTIONS_PER_UPDATE} if on_policy else _SMALL_REPLAY
    with _streams_kept():
        copy = type(model).load(file, custom_objects=changed, device=model.device)
        copy.set_logger(Logger(folder=None, output_formats=[]))
        copy.action_space.seed(0)
        made_up = _MadeUp(copy.observation_space)
        audit = _audit_rollouts if on_policy else _audit_values
        return audit(copy, made_up, updates)


# Whatever the user's own replay needs, made-up transitions need a plain one.
_SMALL_REPLAY: Final[dict[str, Any]] = {
    "buffer_size": 256,
    "replay_buffer_class": None,
    "replay_buffer_kwargs": {},
}


@contextmanager
def _streams_kept() -> Iterator[None]:
    """Put the global random streams back afterwards."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def _audit_values(model: Any, made_up: _MadeUp, updates: int) -> NoiseReport:
    kind = "q_net" if isinstance(model, DQN) else "quantile_net"
    online, target = (getattr(model.policy, name) for name in (kind, f"{kind}_target"))
    for _ in range(model.replay_buffer.buffer_size):
        model.replay_buffer.add(
            made_up.observation(),
            made_up.observation(),
            np.array([model.action_space.sample()]),
            made_up.reward(),
            np.zeros(1),
            [{}],
        )
    return layers.check_noise(
        online,
        target=target,
        act=lambda: model.policy.predict(made_up.observation(), deterministic=False),
        learn=lambda: model.train(gradient_steps=1, batch_size=32),
        evaluate=lambda: model.policy.predict(made_up.observation(), deterministic=True),
        sync=lambda: polyak_update(online.parameters(), target.parameters(), 1.0),
        contract="action",
        updates=updates,
    )


def _audit_rollouts(model: Any, made_up: _MadeUp, updates: int) -> NoiseReport:
    policy, buffer = model.policy, model.rollout_buffer

    def act() -> None:
        policy.set_training_mode(False)
        if buffer.full or buffer.pos == 0:
            buffer.reset()
        observation = made_up.observation()
        with torch.no_grad():
            action, value, log_prob = policy(policy.obs_to_tensor(observation)[0])
        started, reward = np.zeros(1), made_up.reward()
        buffer.add(observation, action.cpu().numpy(), reward, started, value, log_prob)

    def learn() -> None:
        with torch.no_grad():
            last = policy.predict_values(policy.obs_to_tensor(made_up.observation())[0])
        buffer.compute_returns_and_advantage(last, np.zeros(1))
        model.train()

    return layers.check_noise(
        policy,
        act=act,
        learn=learn,
        evaluate=lambda: policy.predict(made_up.observation(), deterministic=True),
        contract="rollout",
        updates=updates,
    )


class _MadeUp:
    """Observations and rewards of one environment, from a stream of their own."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space, self.rng = space, np.random.default_rng(0)
        space.seed(0)

    def observation(self) -> Any:
        if isinstance(self.space, spaces.Dict):
            return {name: self._sample(part)[None] for name, part in self.space.items()}
        return self._sample(self.space)[None]

    def reward(self) -> np.ndarray[Any, Any]:
        return self.rng.standard_normal(1)

    def _sample(self, space: spaces.Space[Any]) -> np.ndarray[Any, Any]:
        if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            # Not the space's own sample, which is as large as bounds like 3e38 allow.
            return self.rng.standard_normal(space.shape).astype(space.dtype)
        return np.asarray(space.sample())


def load(path: str | Path) -> Any:
    """The model in a file that `model.save` wrote. It holds pickles: read only what you trust.

    Raises:
        ValueError: it is no such file, or of an algorithm that `check_noise` does not know.
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
    """Files do not say by which algorithm they are, but each has settings of its own."""
    if any(name.startswith("quantile_net.") for name in weights) and QRDQN is not None:
        return QRDQN
    if any(name.startswith("q_net.") for name in weights):
        return DQN
    policy = settings.get("policy_class") or {}
    if "rollout_buffer_class" in settings and "sb3_contrib" not in policy.get("__module__", ""):
        return PPO if "clip_range" in settings else A2C
    known = ", ".join(agent.__name__ for agent in AGENTS)
    raise ValueError(f"expected a model of {known} in {path}, got another algorithm's")
