"""NoisyNet for Tianshou's deep Q-learning: DQN, C51, Rainbow, QR-DQN and their subclasses.

    from tianshou.algorithm import DQN
    from tianshou.utils.net.common import Net
    from noisynet.integrations.tianshou import NoisyPolicy, NoisyQNetwork

    network = NoisyQNetwork(Net(state_shape=4, action_shape=2, hidden_sizes=(128, 128)))
    policy = NoisyPolicy(model=network, action_space=env.action_space)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(), target_update_freq=300)

Tianshou's collectors run in eval mode. Layers that gate noise on `module.training` explore without
noise there; `NoisyLinear` does not depend on train/eval. The policy turns noise off in tests, and
gives each environment its own noise sample.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from noisynet.audit import Contract, NoiseReport, SyntheticData, audit_network
from noisynet.audit.detect import first_layer
from noisynet.extras import extra
from noisynet.integrations.dispatch import load_saved
from noisynet.layers import Noise, make_noisy, noise_off, noisy_layers, resample_noise

with extra("tianshou"):
    import gymnasium as gym
    from tianshou.algorithm.algorithm_base import Policy
    from tianshou.algorithm.modelfree.c51 import C51Policy
    from tianshou.algorithm.modelfree.dqn import (
        DiscreteQLearningPolicy,
        QLearningOffPolicyAlgorithm,
    )
    from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy
    from tianshou.data import Collector, CollectStats, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.lagged_network import EvalModeModuleWrapper
    from tianshou.utils.net.common import ActionReprNet
    from tianshou.utils.net.discrete import NoisyLinear as TianshouNoisyLinear
    from tianshou.utils.torch_utils import policy_within_training_step

__all__ = [
    "AGENTS",
    "NoisyC51Policy",
    "NoisyPolicy",
    "NoisyQNetwork",
    "NoisyQRDQNPolicy",
    "audit",
    "load",
]

AGENTS: Final = (QLearningOffPolicyAlgorithm, DiscreteQLearningPolicy)
"""What `audit` accepts: algorithms, and policies without an algorithm."""

_BATCH_SIZE: Final = 32
_REPLAY_STEPS: Final = 64  # per environment, in an audit


class NoisyQNetwork(ActionReprNet[Any]):
    """A Tianshou Q-network with noisy layers that are resampled before every forward pass.

    Each pass of an update uses one sample for the whole batch (ξ and ξ′ of Eq. 14). The target
    network is a copy made by Tianshou and has its own samples. Noise is drawn from torch's global
    stream. Inside `noise_off` nothing is drawn.

    Args:
        network: a network with arguments (obs, state, info), such as Tianshou's `Net` (with
            `dueling_param`, or `softmax` and `num_atoms`), `DQNet`, or `RainbowNet` with
            `is_noisy=False`. It is copied and its layers are made noisy. A network that already
            has `noisynet.NoisyLinear` layers is used as it is.
        where: which layers to make noisy, as for `make_noisy`; None for all linear layers.
        noise: "factorised", as in the paper's DQN, or "independent".
        sigma0: the initial noise, or None for the paper's 0.5 (independent noise: 0.017).
        per_environment: whether parallel environments have separate samples when acting. False
            for a network whose noisy layers do not see one row per environment, as in IQN.

    Raises:
        ValueError: the network has Tianshou's noisy layers, or no layer to make noisy.
    """

    def __init__(
        self,
        network: nn.Module,
        where: Iterable[str] | Callable[[str, nn.Module], bool] | None = None,
        *,
        noise: Noise = "factorised",
        sigma0: float | None = None,
        per_environment: bool = True,
    ) -> None:
        super().__init__()
        if _has_tianshou_layers(network):
            raise ValueError(
                "NoisyQNetwork expected a network with plain linear layers, got a "
                f"{type(network).__name__} with Tianshou's NoisyLinear, which has no noise in eval "
                "mode; build it with nn.Linear (RainbowNet: is_noisy=False)."
            )
        conversion = where is not None or sigma0 is not None or noise != "factorised"
        if conversion or not noisy_layers(network):
            network, _ = make_noisy(network, where, noise=noise, sigma0=sigma0)
        self.network = network
        self.per_environment = per_environment
        self._acting = False

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Treat the rows of inputs as environments with separate samples inside the `with`."""
        before, self._acting = self._acting, True
        try:
            yield
        finally:
            self._acting = before

    def forward(
        self, obs: Any, state: Any = None, info: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        """Compute the network's output with fresh noise."""
        if not any(layer._noise_off for layer in noisy_layers(self.network).values()):
            per_row = self._acting and self.per_environment and len(obs) > 1
            resample_noise(self.network, rows=len(obs) if per_row else None)
        values, state = self.network(obs, state=state, info=info, **options)
        return values, state


def _has_tianshou_layers(network: nn.Module) -> bool:
    return any(isinstance(layer, TianshouNoisyLinear) for layer in network.modules())


def _always_zero(name: str) -> property:
    """An ε that is always 0: setting another value, even by a schedule, is an error."""

    def get(_policy: NoisyPolicy) -> float:
        return 0.0

    def refuse(policy: NoisyPolicy, eps: float) -> None:
        if eps != 0:
            raise ValueError(
                f"{type(policy).__name__} expected {name}=0, because it explores by its weights, "
                f"got {eps}; omit it, and remove ε schedules from training_fn and test_fn."
            )

    return property(get, refuse)


class NoisyPolicy(DiscreteQLearningPolicy[NoisyQNetwork]):
    """A policy for DQN that explores by noisy weights and is tested with the mean weights.

    Noise is on within training steps (`is_within_training_step`, set by Tianshou's trainers) and
    off elsewhere: in test collection and in `compute_action`. To use another of Tianshou's
    policies, put this class before it: `class NoisyIQNPolicy(NoisyPolicy, IQNPolicy)`.

    Args:
        model: the network.
        options: the arguments of Tianshou's policy, such as `action_space`.

    Raises:
        TypeError: the model is not a `NoisyQNetwork`.
        ValueError: an ε other than 0, on construction or later.
    """

    eps_training = _always_zero("eps_training")
    eps_inference = _always_zero("eps_inference")

    def __init__(self, *, model: NoisyQNetwork, **options: Any) -> None:
        if not isinstance(model, NoisyQNetwork):
            raise TypeError(
                f"{type(self).__name__} expected a NoisyQNetwork, which resamples its noise, got a "
                f"{type(model).__name__}; wrap it: NoisyQNetwork(model)."
            )
        super().__init__(model=model, **options)

    def forward(
        self, batch: Any, state: Any = None, model: nn.Module | None = None, **options: Any
    ) -> Any:
        """Compute actions and values, as Tianshou's policy does."""
        if not self.is_within_training_step:
            with noise_off(self.model if model is None else model):
                return super().forward(batch, state, model=model, **options)
        # Within a training step, a collector acts in eval mode with gradients enabled. Targets may
        # be computed in either mode, but without gradients.
        if self.training or not torch.is_grad_enabled():
            return super().forward(batch, state, model=model, **options)
        with torch.no_grad(), self.model.acting():
            return super().forward(batch, state, model=model, **options)


class NoisyC51Policy(NoisyPolicy, C51Policy):
    """`NoisyPolicy` for C51 and Rainbow; arguments as for Tianshou's `C51Policy`."""


class NoisyQRDQNPolicy(NoisyPolicy, QRDQNPolicy):
    """`NoisyPolicy` for QR-DQN; arguments as for Tianshou's `QRDQNPolicy`."""


def audit(
    agent: Any,
    *,
    observation_space: gym.Space[Any] | None = None,
    environments: int = 3,
    contract: Contract = "action",
    updates: int = 100,
) -> NoiseReport:
    """Check that an agent keeps the noise contract; see `noisynet.check_noise`.

    A copy of the agent acts through a collector, learns by its own `update` and is tested through
    another collector, in synthetic environments.

    Args:
        agent: a deep Q-learning algorithm, or a policy, which then only acts and is tested.
        observation_space: the observations. None: those of the policy, or vectors if the first
            layer of the network is linear.
        environments: the number of parallel environments.
        contract: when the acting noise must be resampled.
        updates: how many updates to run, with four actions before each.

    Raises:
        TypeError: the argument is not such an agent.
        ValueError: the observation space is unknown.
    """
    if not isinstance(agent, AGENTS):
        raise TypeError(
            "check_noise expected an algorithm of Tianshou's deep Q-learning (DQN, C51, Rainbow, "
            f"QR-DQN, …) or its policy, got a {type(agent).__name__}."
        )
    agent = copy.deepcopy(agent)
    learner: Any = None if isinstance(agent, DiscreteQLearningPolicy) else agent
    policy: Any = agent if learner is None else learner.policy
    if learner is not None:
        learner.lr_schedulers.clear()  # copies of schedulers warn, and the audit needs none
    space = observation_space or _observation_space(policy)
    training, testing = (
        _collector(policy, space, first, environments) for first in (0, environments)
    )

    def act() -> None:
        with policy_within_training_step(policy):
            training.collect(n_step=environments)

    def learn() -> None:
        with policy_within_training_step(policy):
            learner.update(training.buffer, _BATCH_SIZE)

    def evaluate() -> None:
        with policy_within_training_step(policy, enabled=False):
            testing.collect(n_step=5 * environments)

    target = getattr(learner, "model_old", None)
    return audit_network(
        policy.model,
        # Layers are matched by name, so the wrapper, which prefixes all names, is removed.
        target=target.module if isinstance(target, EvalModeModuleWrapper) else target,
        act=act,
        learn=None if learner is None else learn,
        evaluate=evaluate,
        sync=None if learner is None else learner._update_lagged_network_weights,
        contract=contract,
        noise="factorised" if _has_tianshou_layers(policy.model) else None,
        updates=updates,
    )


def load(path: str | Path) -> Any:
    """Load an algorithm or a policy that `torch.save` wrote; see `load_agent` for the risk."""
    description = "a deep Q-learning algorithm of Tianshou, or its policy"
    return load_saved(path, AGENTS, description, "algorithm")


def _observation_space(policy: Policy) -> gym.Space[Any]:
    if policy.observation_space is not None:
        return policy.observation_space
    first = first_layer(policy.model)
    features = getattr(first, "in_features", None)
    if features is None:
        raise ValueError(
            "check_noise expected a policy with an observation_space, or a network whose first "
            f"layer is linear, got a {type(first).__name__}; pass "
            "observation_space=env.observation_space."
        )
    return gym.spaces.Box(-np.inf, np.inf, (features,))


def _collector(
    policy: Policy, space: gym.Space[Any], seed: int, count: int
) -> Collector[CollectStats]:
    """A collector of `count` synthetic environments with consecutive seeds."""
    environments = DummyVectorEnv(
        [
            lambda seed=seed: _SyntheticEnv(space, policy.action_space, seed)
            for seed in range(seed, seed + count)
        ]
    )
    collector: Collector[CollectStats] = Collector(
        policy, environments, VectorReplayBuffer(_REPLAY_STEPS * count, count)
    )
    collector.reset()
    return collector


class _SyntheticEnv(gym.Env[Any, Any]):
    """Random observations, rewards and episode ends."""

    def __init__(self, observations: gym.Space[Any], actions: gym.Space[Any], seed: int) -> None:
        self.observation_space, self.action_space = observations, actions
        self._data = SyntheticData(seed)

    def reset(self, **_options: Any) -> tuple[Any, dict[str, Any]]:
        return self._data.observation(self.observation_space), {}

    def step(self, _action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation = self._data.observation(self.observation_space)
        terminated = bool(self._data.rng.random() < 0.1)
        return observation, float(self._data.rewards(1)[0]), terminated, False, {}
