"""NoisyNet for Tianshou's deep Q-learning: DQN, C51, Rainbow, QR-DQN and what derives from them.

    from tianshou.algorithm import DQN
    from tianshou.utils.net.common import Net
    from noisynet.integrations.tianshou import NoisyPolicy, NoisyQNetwork

    network = NoisyQNetwork(Net(state_shape=4, action_shape=2, hidden_sizes=(128, 128)))
    policy = NoisyPolicy(model=network, action_space=env.action_space)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(), target_update_freq=300)

Collectors act in eval mode, where layers that ask for `.training` are silent; ours do not ask. What
a network cannot know by itself (whether this is a test, and whether its rows are environments) its
policy tells it.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from noisynet import layers
from noisynet.extras import extra
from noisynet.layers import (
    Contract,
    Noise,
    NoiseReport,
    make_noisy,
    noise_off,
    noisy_layers,
    resample_noise,
)

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
    from tianshou.utils.net.discrete import NoisyLinear as TheirNoisyLinear
    from tianshou.utils.torch_utils import policy_within_training_step

__all__ = [
    "AGENTS",
    "NoisyC51Policy",
    "NoisyPolicy",
    "NoisyQNetwork",
    "NoisyQRDQNPolicy",
    "check_noise",
    "load",
]

AGENTS: Final = (QLearningOffPolicyAlgorithm, DiscreteQLearningPolicy)
"""What `check_noise` knows how to run: the algorithms, and their policies alone."""

_BATCH: Final = 32
_KEPT: Final = 64  # transitions of each environment in the audit's replay buffer


class NoisyQNetwork(ActionReprNet[Any]):
    """Any of Tianshou's value networks with noisy layers, redrawn for every pass.

    The passes of an update hold one sample over the batch, each its own (ξ and ξ′, Eq. 14); the
    target network is a copy that Tianshou makes, and draws for itself. Draws come from torch's
    global stream, as the library's own do. Inside `noise_off` nothing is drawn.

    Args:
        network: a network of (obs, state, info), such as Tianshou's `Net` (with `dueling_param`,
            or `softmax` and `num_atoms`), `DQNet`, or `RainbowNet` with `is_noisy=False`; it is
            copied. One that has layers of `noisynet.NoisyLinear` already is taken as it is, and
            with no other option than `per_environment`.
        where: which layers are to be noisy, as for `make_noisy`; None: every linear one.
        noise: "factorised", as the paper's DQN has it, or "independent".
        sigma0: the initial noise, None for the paper's 0.5 (independent noise: 0.017).
        per_environment: whether environments that act at once have a sample each. False for a
            network whose noisy layers do not see one row for each of them, as in IQN.

    Raises:
        ValueError: the network has noisy layers of Tianshou's, or none that can be noisy.
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
        if any(isinstance(layer, TheirNoisyLinear) for layer in network.modules()):
            raise ValueError(
                "NoisyQNetwork expected a network with plain linear layers, got a "
                f"{type(network).__name__} with Tianshou's NoisyLinear, which is silent when it "
                "acts; build it with nn.Linear (RainbowNet: is_noisy=False)."
            )
        asked = where is not None or sigma0 is not None or noise != "factorised"
        if asked or not noisy_layers(network):  # what is noisy already cannot be asked for more
            network, _ = make_noisy(network, where, noise=noise, sigma0=sigma0)
        self.network = network
        self.per_environment = per_environment
        self._acting = False

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Inside the `with`, rows are environments, each with a sample of its own."""
        before, self._acting = self._acting, True
        try:
            yield
        finally:
            self._acting = before

    def forward(
        self, obs: Any, state: Any = None, info: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        """What the network gives, with a fresh sample."""
        if not any(layer._noise_off for layer in noisy_layers(self.network).values()):
            several = self._acting and self.per_environment and len(obs) > 1
            resample_noise(self.network, rows=len(obs) if several else None)
        values, state = self.network(obs, state=state, info=info, **options)
        return values, state


def _always_zero(name: str) -> property:
    """An ε that is 0, and refuses to be set to anything else: by schedules, too."""

    def get(_policy: NoisyPolicy) -> float:
        return 0.0

    def refuse(policy: NoisyPolicy, eps: float) -> None:
        if eps != 0:
            raise ValueError(
                f"{type(policy).__name__} expected {name}=0, for it explores by its weights alone, "
                f"got {eps}; leave it out, and take schedules of ε from training_fn and test_fn."
            )

    return property(get, refuse)


class NoisyPolicy(DiscreteQLearningPolicy[NoisyQNetwork]):
    """A policy for DQN that explores by its weights, and is tested with their means.

    Noise is on within training steps (`is_within_training_step`, which Tianshou's trainers set) and
    off outside of them: in test collection and in `compute_action`. For another of Tianshou's
    policies, put this class before it: `class NoisyIQNPolicy(NoisyPolicy, IQNPolicy)`.

    Args:
        model: the network.
        options: what Tianshou's own policy takes, such as `action_space`; no ε.

    Raises:
        TypeError: another network.
        ValueError: an ε that is not 0, here or later on.
    """

    eps_training = _always_zero("eps_training")
    eps_inference = _always_zero("eps_inference")

    def __init__(self, *, model: NoisyQNetwork, **options: Any) -> None:
        if not isinstance(model, NoisyQNetwork):
            raise TypeError(
                f"{type(self).__name__} expected a NoisyQNetwork, which redraws its noise, got a "
                f"{type(model).__name__}; wrap it: NoisyQNetwork(model)."
            )
        super().__init__(model=model, **options)

    def forward(
        self, batch: Any, state: Any = None, model: nn.Module | None = None, **options: Any
    ) -> Any:
        """Actions and values, as Tianshou's policy gives them."""
        if not self.is_within_training_step:
            with noise_off(self.model if model is None else model):
                return super().forward(batch, state, model=model, **options)
        # A roll-out is a training step in eval mode (see `policy_within_training_step`). Targets
        # are computed in whatever mode the algorithm was left in, but never with gradients.
        if self.training or not torch.is_grad_enabled():
            return super().forward(batch, state, model=model, **options)
        with torch.no_grad(), self.model.acting():  # nobody learns from a collector's graph
            return super().forward(batch, state, model=model, **options)


class NoisyC51Policy(NoisyPolicy, C51Policy):
    """`NoisyPolicy` for C51 and Rainbow; options as Tianshou's `C51Policy`."""


class NoisyQRDQNPolicy(NoisyPolicy, QRDQNPolicy):
    """`NoisyPolicy` for QR-DQN; options as Tianshou's `QRDQNPolicy`."""


def check_noise(
    agent: Any,
    *,
    observation_space: gym.Space[Any] | None = None,
    environments: int = 3,
    contract: Contract = "action",
    updates: int = 100,
) -> NoiseReport:
    """Audit an agent's noise, whoever wrote its noisy layers: see `noisynet.check_noise`.

    A copy of it acts through a collector, learns by the algorithm's own `update` and is tested
    through another collector, on made-up observations.

    Args:
        agent: a deep Q-learning algorithm, or a policy of one, which then acts and is tested only.
        observation_space: the environment's; None: the policy's, or a vector if the first layer of
            the network is linear.
        environments: how many act at once.
        contract: when acting noise must be redrawn.
        updates: how many updates to watch, with four actions before each.

    Raises:
        TypeError: another algorithm, or none.
        ValueError: observations that are known neither from the policy nor from the network.
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
        learner.lr_schedulers.clear()  # they are no matter of noise, and copies of them warn
    space = observation_space or _observation_space(policy)
    training, testing = (
        _collector(policy, space, first, environments) for first in (0, environments)
    )

    def act() -> None:
        with policy_within_training_step(policy):
            training.collect(n_step=environments)

    def learn() -> None:
        with policy_within_training_step(policy):
            learner.update(training.buffer, _BATCH)

    def evaluate() -> None:
        with policy_within_training_step(policy, enabled=False):
            testing.collect(n_step=5 * environments)

    target = getattr(learner, "model_old", None)
    theirs = any(isinstance(layer, TheirNoisyLinear) for layer in policy.model.modules())
    return layers.check_noise(
        policy.model,
        # Layers are compared by name, so without the wrapper, which would precede them all.
        target=target.module if isinstance(target, EvalModeModuleWrapper) else target,
        act=act,
        learn=None if learner is None else learn,
        evaluate=evaluate,
        sync=None if learner is None else learner._update_lagged_network_weights,
        contract=contract,
        noise="factorised" if theirs else None,
        updates=updates,
    )


def load(path: str | Path) -> Any:
    """An algorithm or policy that `torch.save` wrote. It is a pickle: read only what you trust.

    Raises:
        ValueError: the file holds something else, such as a `state_dict` alone.
    """
    expected = "a deep Q-learning algorithm of Tianshou, or its policy, saved whole"
    how = "save it with torch.save(algorithm, path)"
    try:
        agent = torch.load(path, map_location="cpu", weights_only=False)
    except (pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"expected {expected} in {path}: {error}; {how}.") from error
    if not isinstance(agent, AGENTS):
        came = "a dictionary, as state_dict() gives" if isinstance(agent, dict) else "another type"
        name = type(agent).__name__
        raise ValueError(f"expected {expected} in {path}, got a {name} ({came}); {how}.")
    return agent


def _observation_space(policy: Policy) -> gym.Space[Any]:
    if policy.observation_space is not None:
        return policy.observation_space
    model: Any = policy.model
    first = next(layer for layer in model.modules() if list(layer.parameters(recurse=False)))
    features = getattr(first, "in_features", None)
    if features is None:
        raise ValueError(
            "check_noise expected a policy that knows its observation_space, or a network that "
            f"begins with a linear layer, got one that begins with a {type(first).__name__}; "
            "give it observation_space=env.observation_space."
        )
    return gym.spaces.Box(-np.inf, np.inf, (features,))


def _collector(
    policy: Policy, space: gym.Space[Any], first: int, count: int
) -> Collector[CollectStats]:
    """A collector that plays `count` made-up environments, seeded from `first` on."""
    games = DummyVectorEnv(
        [
            lambda seed=seed: _MadeUp(space, policy.action_space, seed)
            for seed in range(first, first + count)
        ]
    )
    collector: Collector[CollectStats] = Collector(
        policy, games, VectorReplayBuffer(_KEPT * count, count)
    )
    collector.reset()
    return collector


class _MadeUp(gym.Env[Any, Any]):
    """Random observations, rewards and ends of episodes, from a stream of its own."""

    def __init__(self, observations: gym.Space[Any], actions: gym.Space[Any], seed: int) -> None:
        self.observation_space = copy.deepcopy(observations)
        self.observation_space.seed(seed)
        self.action_space = actions
        self._rng = np.random.default_rng(seed)

    def reset(self, **_options: Any) -> tuple[Any, dict[str, Any]]:
        return self._observation(), {}

    def step(self, _action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        end = self._rng.random() < 0.1
        return self._observation(), float(self._rng.standard_normal()), bool(end), False, {}

    def _observation(self) -> Any:
        space = self.observation_space
        if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
            # Not the space's own sample, which is as large as bounds like 3e38 allow.
            return self._rng.standard_normal(space.shape).astype(space.dtype)
        return space.sample()
