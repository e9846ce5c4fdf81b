"""NoisyNet policies for Stable-Baselines3: DQN (plain and dueling), QR-DQN, A2C and PPO.

    from stable_baselines3 import DQN
    from noisynet.integrations.sb3 import NoisyDQNPolicy

    model = DQN(NoisyDQNPolicy, "CartPole-v1", policy_kwargs=dict(sigma0=0.5)).learn(50_000)

Stable-Baselines3 acts in eval mode, where layers that ask for `.training` are silent; ours do not
ask. What a policy cannot know by itself (that ε is to be 0, when a roll-out begins, and whose rows
a batch has) its model tells it: importing this module teaches it to models with these policies, and
changes nothing for others.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MethodType
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor, nn

from noisynet.extras import extra
from noisynet.layers import (
    Noise,
    held_noise,
    hold_noise,
    make_noisy,
    noise_off,
    noisy_layers,
    resample_noise,
)

with extra("sb3"):
    from stable_baselines3 import A2C, DQN, PPO
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.preprocessing import is_image_space
    from stable_baselines3.common.torch_layers import (
        CombinedExtractor,
        FlattenExtractor,
        NatureCNN,
        create_mlp,
    )
    from stable_baselines3.common.utils import LinearSchedule
    from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
try:
    from sb3_contrib import QRDQN
    from sb3_contrib.qrdqn.policies import QRDQNPolicy, QuantileNetwork
except ImportError:  # then there is no QR-DQN to make noisy
    QRDQN = QRDQNPolicy = QuantileNetwork = None

from gymnasium import spaces

from noisynet.integrations.sb3_audit import AGENTS, check_noise, load

__all__ = [
    "AGENTS",
    "NatureConvolutions",
    "NoisyActorCriticPolicy",
    "NoisyDQNPolicy",
    "NoisyDuelingDQNPolicy",
    "NoisyQNetwork",
    "check_noise",
    "load",
]

# --- value networks ------------------------------------------------------------------------------


class _FreshNoise:
    """A network that redraws its noise for every pass, before a network class of the library.

    The passes of an update hold one sample over the batch, each its own (ξ and ξ′, Eq. 14). Where
    several environments act at once, each has a sample of its own.
    """

    _rows: Literal["one sample", "one each", "means"] = "one sample"

    def forward(self, obs: Any) -> Tensor:
        """What the library's network gives, with a fresh sample."""
        if self._rows != "means":
            resample_noise(self, rows=_several(obs) if self._rows == "one each" else None)  # type: ignore[arg-type]
        values: Tensor = super().forward(obs)  # type: ignore[misc]
        return values

    def _predict(self, observation: Any, deterministic: bool = True) -> Tensor:
        with _using(self, "means" if deterministic else "one each"):
            actions: Tensor = super()._predict(observation, deterministic)  # type: ignore[misc]
        return actions


@contextmanager
def _using(network: Any, rows: Literal["one each", "means"]) -> Iterator[None]:
    network._rows = rows
    try:
        with noise_off(network) if rows == "means" else nullcontext():
            yield
    finally:
        del network._rows


class NoisyQNetwork(_FreshNoise, QNetwork):
    """The library's Q-network with noisy layers for all fully connected ones.

    Args:
        arguments: those of the library's.
        noise: "factorised" or "independent".
        sigma0: the initial noise, None for the paper's.
        dueling: put Q together from V and A.
        keywords: those of the library's.
    """

    def __init__(
        self,
        *arguments: Any,
        noise: Noise = "factorised",
        sigma0: float | None = None,
        dueling: bool = False,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        if dueling:
            self.q_net = _DuelingHead(
                self.features_dim, int(self.action_space.n), self.net_arch, self.activation_fn
            )
        _make_layers_noisy(self, noise, sigma0)


class _DuelingHead(nn.Module):
    """V and A, each with hidden layers of its own (Eq. 3)."""

    def __init__(
        self, features: int, actions: int, hidden: list[int], activation: type[nn.Module]
    ) -> None:
        super().__init__()
        self.value = nn.Sequential(*create_mlp(features, 1, hidden, activation))
        self.advantage = nn.Sequential(*create_mlp(features, actions, hidden, activation))

    def forward(self, features: Tensor) -> Tensor:
        advantage: Tensor = self.advantage(features)
        values: Tensor = self.value(features) + advantage - advantage.mean(dim=-1, keepdim=True)
        return values


class NatureConvolutions(NatureCNN):
    """The library's convolutions without the layer of 512 units, which each dueling stream has."""

    def __init__(self, observation_space: spaces.Box, **keywords: Any) -> None:
        super().__init__(observation_space, **keywords)
        with torch.no_grad():
            self._features_dim = self.cnn(torch.zeros(1, *observation_space.shape)).shape[1]
        self.linear = nn.Sequential()


class NoisyDQNPolicy(DQNPolicy):
    """A policy for DQN that explores by its weights.

    The online network, the target network and acting draw their own noise, for every pass. ε is 0.
    `predict(deterministic=True)` uses the mean weights, `deterministic=False` the noise.

    Args:
        observation_space: images get the library's convolutions, whose last layer is noisy too.
        action_space: discrete.
        lr_schedule: as for every policy.
        sigma0: the initial noise, None for the paper's 0.5 (independent noise: 0.017).
        noise: "factorised", as the paper's DQN has it, or "independent".
        dueling: put Q together from V and A.
        keywords: what the library's own policy takes, such as `net_arch`.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        lr_schedule: Any,
        *,
        sigma0: float | None = None,
        noise: Noise = "factorised",
        dueling: bool = False,
        **keywords: Any,
    ) -> None:
        self.noise_arguments: Any = {"sigma0": sigma0, "noise": noise, "dueling": dueling}
        _choose_extractor(observation_space, keywords)
        if dueling and keywords["features_extractor_class"] is NatureCNN:
            keywords["features_extractor_class"] = NatureConvolutions
        if keywords["features_extractor_class"] is NatureConvolutions:
            options = keywords.get("features_extractor_kwargs") or {}
            if keywords.get("net_arch") is None:
                keywords["net_arch"] = [options.get("features_dim", 512)]
        super().__init__(observation_space, action_space, lr_schedule, **keywords)

    def make_q_net(self) -> NoisyQNetwork:
        """A Q-network of this policy's kind."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return NoisyQNetwork(**arguments, **self.noise_arguments).to(self.device)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), **self.noise_arguments}


class NoisyDuelingDQNPolicy(NoisyDQNPolicy):
    """`NoisyDQNPolicy` with dueling streams."""

    def __init__(self, *arguments: Any, dueling: bool = True, **keywords: Any) -> None:
        super().__init__(*arguments, dueling=dueling, **keywords)


if QRDQN is not None:

    class NoisyQuantileNetwork(_FreshNoise, QuantileNetwork):
        """sb3-contrib's quantile network with noisy layers; arguments as `NoisyQNetwork`'s."""

        def __init__(
            self,
            *arguments: Any,
            noise: Noise = "factorised",
            sigma0: float | None = None,
            **keywords: Any,
        ) -> None:
            super().__init__(*arguments, **keywords)
            _make_layers_noisy(self, noise, sigma0)

    class NoisyQRDQNPolicy(QRDQNPolicy):
        """A policy for QR-DQN that explores by its weights; arguments as `NoisyDQNPolicy`'s."""

        def __init__(
            self,
            observation_space: spaces.Space[Any],
            action_space: spaces.Discrete,
            lr_schedule: Any,
            *,
            sigma0: float | None = None,
            noise: Noise = "factorised",
            **keywords: Any,
        ) -> None:
            self.noise_arguments: Any = {"sigma0": sigma0, "noise": noise}
            _choose_extractor(observation_space, keywords)
            super().__init__(observation_space, action_space, lr_schedule, **keywords)

        def make_quantile_net(self) -> NoisyQuantileNetwork:
            """A quantile network of this policy's kind."""
            arguments = self._update_features_extractor(self.net_args, features_extractor=None)
            return NoisyQuantileNetwork(**arguments, **self.noise_arguments).to(self.device)

        def _get_constructor_parameters(self) -> dict[str, Any]:
            return {**super()._get_constructor_parameters(), **self.noise_arguments}


# --- actor-critic --------------------------------------------------------------------------------


class NoisyActorCriticPolicy(ActorCriticPolicy):
    """A policy for A2C and PPO that explores by its weights.

    One sample is drawn when a roll-out begins, for each environment its own, and is held until all
    of it is learnt: by A2C's one update (Algorithm 2), and over all epochs of PPO, whose ratio
    π_new/π_old would otherwise compare two samples instead of two sets of weights.
    `predict(deterministic=True)` uses the mean weights, `deterministic=False` a sample of its own.

    Args:
        observation_space: images get the library's convolutions, whose last layer is noisy too.
        action_space: any that the library knows.
        lr_schedule: as for every policy.
        sigma0: the initial noise, None for the paper's 0.017 (factorised noise: 0.5).
        noise: "independent", as the paper's A3C has it, or "factorised", which is faster.
        keywords: what the library's own policy takes, such as `net_arch`.

    Raises:
        ValueError: `use_sde`, which is another noise for the same purpose.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Any,
        *,
        sigma0: float | None = None,
        noise: Noise = "independent",
        **keywords: Any,
    ) -> None:
        if keywords.get("use_sde"):
            raise ValueError(
                "expected use_sde=False, got True: a noisy policy explores by its weights already"
            )
        self.noise_arguments: Any = {"sigma0": sigma0, "noise": noise}
        self._owners: Tensor | None = None
        _choose_extractor(observation_space, keywords)
        super().__init__(observation_space, action_space, lr_schedule, **keywords)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        _make_layers_noisy(self, **self.noise_arguments)
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def begin_rollout(self, num_envs: int) -> None:
        """Draw the samples of the roll-out that begins, one for each environment."""
        resample_noise(self, rows=num_envs if num_envs > 1 else None)
        self._owners = None

    def learn_from(self, owners: Tensor) -> None:
        """Say of which environment each row is that `evaluate_actions` gets next [B]."""
        self._owners = owners

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values, log-probabilities and entropy, each row with the noise that it was made with."""
        if self._samples() is None:
            return super().evaluate_actions(obs, actions)
        held, owners, self._owners = held_noise(self), self._owners, None
        if owners is None or len(owners) != len(actions):
            came = "none" if owners is None else len(owners)
            raise RuntimeError(
                f"evaluate_actions expected the environments of {len(actions)} rows, got {came}: "
                "call learn_from first, or let A2C or PPO do both"
            )
        try:
            if self.noise_arguments["noise"] == "factorised":
                hold_noise(self, {name: sample[owners] for name, sample in held.items()})
                return super().evaluate_actions(obs, actions)
            return self._by_environment(held, owners, obs, actions)
        finally:
            hold_noise(self, held)

    def _by_environment(
        self, held: dict[str, Tensor], owners: Tensor, obs: Any, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """One pass for each environment, as in `_predict`."""
        envs, parts = owners.unique(), []
        order = [(owners == env).nonzero().flatten() for env in envs]
        for env, rows in zip(envs, order, strict=True):
            hold_noise(self, {name: sample[env] for name, sample in held.items()})
            parts.append(super().evaluate_actions(_rows_of(obs, rows), actions[rows]))
        back = torch.cat(order).argsort()
        values, log_prob, entropy = zip(*parts, strict=True)
        entropies = None if entropy[0] is None else torch.cat(entropy)[back]
        return torch.cat(values)[back], torch.cat(log_prob)[back], entropies

    def predict_values(self, obs: Any) -> Tensor:
        """V of observations, one of each environment; of others by the mean weights.

        The library asks so about the last observation of a truncated episode, not saying whose.
        """
        with self._means_unless_rows_fit(obs):
            return super().predict_values(obs)

    def get_distribution(self, obs: Any) -> Any:
        """The policy at observations, one of each environment; at others by the mean weights."""
        with self._means_unless_rows_fit(obs):
            return super().get_distribution(obs)

    def _means_unless_rows_fit(self, obs: Any) -> AbstractContextManager[None]:
        return nullcontext() if self._samples() in (None, _count(obs)) else noise_off(self)

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        if deterministic:
            with noise_off(self):
                return super()._predict(observation, deterministic)
        held = held_noise(self)  # of a roll-out that goes on afterwards
        try:
            if self.noise_arguments["noise"] == "factorised":
                resample_noise(self, rows=_several(observation))
                return super()._predict(observation, deterministic)
            actions = []  # one by one: independent noise for every row would fill the memory
            for row in torch.arange(_count(observation)):
                resample_noise(self)
                actions.append(super()._predict(_rows_of(observation, row[None]), deterministic))
            return torch.cat(actions)
        finally:
            hold_noise(self, held)

    def _samples(self) -> int | None:
        """How many environments have noise of their own; None for one sample."""
        (rows,) = {layer.rows for layer in noisy_layers(self).values()}
        return rows

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), **self.noise_arguments}


# --- what models do for these policies -----------------------------------------------------------


def _explore_by_noise_alone(model: Any) -> None:
    """ε is 0; who asked for another is told."""
    algorithm: Any = DQN if isinstance(model, DQN) else QRDQN
    defaults = inspect.signature(algorithm.__init__).parameters
    for name in ("exploration_initial_eps", "exploration_final_eps"):
        asked = getattr(model, name)
        if asked not in (0, defaults[name].default):
            said = f"{name}={asked} is taken for 0: a noisy policy explores by its weights, and "
            said += f"random actions would hide whether they do. Leave {name} out, or set it to 0."
            warnings.warn(said, UserWarning, stacklevel=2)
        setattr(model, name, 0.0)
    model.exploration_rate = 0.0
    model.exploration_schedule = LinearSchedule(0.0, 0.0, model.exploration_fraction)


def _tell_of_rollouts(model: Any) -> None:
    """When a roll-out begins, and where the rows of a shuffled batch were before.

    Only the buffer knows. Methods of the model, so that a copy of it has its own.
    """
    if not isinstance(model, (A2C, PPO)):
        raise TypeError(
            f"NoisyActorCriticPolicy expected A2C or PPO, got {type(model).__name__}, which asks "
            "its policy otherwise: its noise would not be that of the roll-out"
        )
    model.rollout_buffer.reset = MethodType(_reset_and_tell, model)
    model.rollout_buffer._get_samples = MethodType(_get_samples_and_tell, model)


def _reset_and_tell(model: Any) -> None:
    buffer = model.rollout_buffer
    type(buffer).reset(buffer)
    model.policy.begin_rollout(buffer.n_envs)


def _get_samples_and_tell(model: Any, rows: np.ndarray[Any, Any], *rest: Any) -> Any:
    buffer = model.rollout_buffer
    if buffer.n_envs > 1:  # rows lie environment by environment
        model.policy.learn_from(torch.as_tensor(rows // buffer.buffer_size))
    return type(buffer)._get_samples(buffer, rows, *rest)


def _extend(algorithm: Any, policy: Any, prepare: Callable[[Any], None]) -> None:
    """Let an algorithm's models prepare themselves for a policy of ours once they are set up."""
    set_up = algorithm._setup_model

    @functools.wraps(set_up)
    def set_up_and_prepare(self: Any) -> None:
        set_up(self)
        if isinstance(self.policy, policy):
            prepare(self)

    algorithm._setup_model = set_up_and_prepare


_extend(DQN, NoisyDQNPolicy, _explore_by_noise_alone)
_extend(OnPolicyAlgorithm, NoisyActorCriticPolicy, _tell_of_rollouts)
_KINDS: Final = ("Mlp", "Cnn", "MultiInput")  # one class for all: it looks at the observations
for _kind in _KINDS:
    DQN.policy_aliases[f"Noisy{_kind}Policy"] = NoisyDQNPolicy
    DQN.policy_aliases[f"NoisyDueling{_kind}Policy"] = NoisyDuelingDQNPolicy
    for _algorithm in (A2C, PPO):
        _algorithm.policy_aliases[f"Noisy{_kind}Policy"] = NoisyActorCriticPolicy
if QRDQN is not None:
    _extend(QRDQN, NoisyQRDQNPolicy, _explore_by_noise_alone)
    for _kind in _KINDS:
        QRDQN.policy_aliases[f"Noisy{_kind}Policy"] = NoisyQRDQNPolicy

# --- observations and layers ---------------------------------------------------------------------


def _choose_extractor(observation_space: spaces.Space[Any], keywords: dict[str, Any]) -> None:
    """What the library would take for such observations, unless the user says it."""
    normalised = not keywords.get("normalize_images", True)
    found: Any = FlattenExtractor
    if isinstance(observation_space, spaces.Dict):
        found = CombinedExtractor
    elif is_image_space(observation_space, normalized_image=normalised):
        assert observation_space.shape is not None
        if sorted(observation_space.shape)[1] >= 36:  # for smaller ones it has no convolutions
            found = NatureCNN
    keywords.setdefault("features_extractor_class", found)


def _make_layers_noisy(module: nn.Module, noise: Noise, sigma0: float | None) -> None:
    """Every linear layer, in place; what stands at several places stays one."""
    twins: dict[nn.Module, nn.Module] = {}
    for name, child in module._modules.items():
        if child is None or not any(type(layer) is nn.Linear for layer in child.modules()):
            continue
        if child not in twins:
            twins[child] = make_noisy(child, noise=noise, sigma0=sigma0)[0]
        module._modules[name] = twins[child]


def _count(obs: Any) -> int:
    return len(next(iter(obs.values())) if isinstance(obs, dict) else obs)


def _several(obs: Any) -> int | None:
    """How many observations there are, if more than one."""
    count = _count(obs)
    return count if count > 1 else None


def _rows_of(obs: Any, rows: Tensor) -> Any:
    return {k: value[rows] for k, value in obs.items()} if isinstance(obs, dict) else obs[rows]
