"""NoisyNet for TorchRL: a network that follows the exploration type, and the audit of a loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisynet.audit import Contract, NoiseReport, SyntheticData, audit_network
from noisynet.audit.detect import find_noisy_layers, first_layer
from noisynet.extras import extra
from noisynet.integrations.dispatch import load_saved
from noisynet.layers import (
    Noise,
    held_noise,
    hold_noise,
    make_noisy,
    noise_off,
    noisy_layers,
    resample_noise,
)

with extra("torchrl"):
    from tensordict import TensorDict
    from torchrl.data import Composite
    from torchrl.envs.utils import ExplorationType, exploration_type, set_exploration_type
    from torchrl.modules import recurrent_mode
    from torchrl.objectives import DistributionalDQNLoss, DQNLoss, HardUpdate

__all__ = ["AGENTS", "Loss", "NoisyNetwork", "audit", "load", "separate_passes"]

Loss: TypeAlias = DQNLoss | DistributionalDQNLoss
"""A loss, which holds the network and the target parameters of an agent."""

AGENTS: Final = (DQNLoss, DistributionalDQNLoss)
"""What `audit` accepts."""

# The noise has zero mean and is symmetric, so all of these select the mean weights.
_MEAN_TYPES: Final = frozenset(ExplorationType) - {ExplorationType.RANDOM}
_BATCH_SIZE: Final = 32


class NoisyNetwork(nn.Module):
    """A network with noisy layers for `QValueActor`, `TensorDictModule` and losses.

    Every forward pass draws its own noise and restores the sample that the layers held before, so
    that TorchRL may replace the parameters and buffers of the network at any time:

    - in a loss (online, target and selector): one sample for the whole batch;
    - elsewhere without gradients, as in collectors: one sample per environment;
    - under `set_exploration_type(DETERMINISTIC)`, or MODE, MEAN, MEDIAN: the mean weights, without
      drawing random numbers. With no exploration type set, or RANDOM: noise.

    Losses set DETERMINISTIC themselves. They are recognised by the recurrent mode, which every
    `LossModule` sets too, and use noise: without it σ would have no gradient. In a custom loss,
    use `set_recurrent_mode(True)`.

    Args:
        network: a network with `NoisyLinear` layers, or one without, of which a noisy copy is made.
        noise: the kind of noise for that copy, as for `make_noisy`.
        sigma0: the initial noise for that copy, as for `make_noisy`.
        observation_dims: the number of dimensions of one observation. Default: inferred from the
            first linear or convolutional layer.
        generator: the random stream, default torch's global one. `copy.deepcopy` copies it with
            its state.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        noise: Noise | None = None,
        sigma0: float | None = None,
        observation_dims: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not noisy_layers(network):
            _check_not_lazy(network)
            kind = noise or "factorised"
            network, _ = make_noisy(network, noise=kind, sigma0=sigma0, generator=generator)
        elif noise is not None or sigma0 is not None:
            raise ValueError(
                "NoisyNetwork expected noise and sigma0 only for a network without noisy layers, "
                f"got noise={noise!r}, sigma0={sigma0!r} and a {type(network).__name__} that has "
                "noisy layers already; pass them to its layers."
            )
        self.network = network
        self.generator = generator
        self.observation_dims = observation_dims or _observation_dims(network)

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Compute the network's output with fresh noise or with the mean weights."""
        learning = bool(recurrent_mode())  # only losses set it
        if exploration_type() in _MEAN_TYPES and not learning:
            with noise_off(self.network):
                return self.network(*arguments, **keywords)
        if all(layer._noise_off for layer in noisy_layers(self.network).values()):
            return self.network(*arguments, **keywords)  # inside the caller's `noise_off`
        rows = None
        if not learning and not torch.is_grad_enabled():
            rows = self._num_environments([*arguments, *keywords.values()])
        held = held_noise(self.network)
        resample_noise(self.network, self.generator, rows)
        try:
            return self.network(*arguments, **keywords)
        finally:
            hold_noise(self.network, held)

    def _num_environments(self, arguments: list[Any]) -> int | None:
        """The number of rows in a batch of observations, or None for a single one."""
        first = next((x for x in arguments if isinstance(x, Tensor)), None)
        if first is None or first.dim() <= self.observation_dims:
            return None
        rows = first.shape[-self.observation_dims - 1]
        return rows if rows > 1 else None


def audit(
    loss: Loss,
    policy: Callable[[Any], Any] | None = None,
    *,
    observation_spec: Composite | None = None,
    environments: int = 1,
    contract: Contract = "action",
    noise: Noise | None = None,
    updates: int = 100,
) -> NoiseReport:
    """Check that a DQN loss and the policy keep the noise contract; see `noisynet.check_noise`.

    The loss is trained on synthetic transitions and restored afterwards. The policy acts as in a
    collector (`ExplorationType.RANDOM`, no gradients) and is evaluated under DETERMINISTIC.

    A loss copied by `copy.deepcopy` fails: TorchRL then trains parameters that are no longer those
    of its network.

    Args:
        loss: the loss.
        policy: acts on tensordicts; default: the network of the loss.
        observation_spec: the observations, such as `env.observation_spec`. Not needed if the
            network's first layer is linear.
        environments: the number of parallel environments.
        contract: when the acting noise must be resampled.
        noise: the declared kind of noise of TorchRL's layers; `NoisyLinear` has its own.
        updates: how many updates to run, with four actions before each.

    Raises:
        TypeError: the loss is not a `DQNLoss` or `DistributionalDQNLoss`.
        ValueError: the network has no noisy layers, or `observation_spec` is needed.
    """
    _check_loss(loss, "check_noise")
    actor = loss.value_network if policy is None else policy
    data = _SyntheticTensorDicts(loss, observation_spec, environments)
    optimiser = torch.optim.Adam(loss.parameters(), lr=1e-4)

    @torch.no_grad()
    def act(kind: ExplorationType, actions: int) -> None:
        with set_exploration_type(kind):
            for _ in range(actions):
                actor(data.observation())

    def learn() -> None:
        optimiser.zero_grad()
        loss(data.batch())["loss"].backward()
        optimiser.step()

    with _restored(loss):
        # Created before recording: a new updater copies all parameters to the target once.
        updater = HardUpdate(loss, value_network_update_interval=0) if loss.delay_value else None
        with separate_passes(loss) as networks:
            return audit_network(
                networks["online"],
                target=networks.get("target"),
                acting=_acting_network(loss, policy),
                act=lambda: act(ExplorationType.RANDOM, 1),
                learn=learn,
                evaluate=lambda: act(ExplorationType.DETERMINISTIC, 5),
                sync=updater.step if updater else None,
                contract=contract,
                noise=noise,
                generators=_generators(loss.value_network),
                updates=updates,
            )


@contextmanager
def separate_passes(loss: Loss) -> Iterator[dict[str, nn.Module]]:
    """Let `record_noise` distinguish the online and target passes of a loss.

    For a target pass, a loss temporarily puts the target parameters into its online network. Inside
    the `with`, such a pass goes through a copy of the network that holds the target parameters, and
    passes without learnt parameters run without gradients. The value of the loss does not change.

    Args:
        loss: the loss, not compiled.

    Yields:
        Networks for `record_noise`: `"online"`, and `"target"` if the loss has target parameters.
    """
    _check_loss(loss, "separate_passes")
    online, layers = loss.value_network, find_noisy_layers(loss.value_network)
    if not layers:
        raise ValueError(
            "expected a loss whose value_network has noisy layers, got a "
            f"{type(online).__name__} without any; build it from NoisyNetwork."
        )
    target = _target_network(loss) if loss.delay_value else None
    mean = attrgetter(".".join(filter(None, (layers[0].name, layers[0].weight[0]))))
    forward = online.forward

    def route(*arguments: Any, **keywords: Any) -> Any:
        current = [attrgetter(name)(layer.module) for layer in layers for name in layer.parameters]
        if any(tensor.requires_grad for tensor in current):
            return forward(*arguments, **keywords)
        with torch.no_grad():
            if target is not None and mean(online).data_ptr() == mean(target).data_ptr():
                return target(*arguments, **keywords)
            return forward(*arguments, **keywords)

    online.forward = route
    try:
        yield {"online": online} | ({} if target is None else {"target": target})
    finally:
        del online.forward


def load(path: str | Path) -> Loss:
    """Load a loss that `torch.save` wrote; see `load_agent` for the risk."""
    return load_saved(path, AGENTS, "a DQNLoss or DistributionalDQNLoss", "loss")


class _SyntheticTensorDicts:
    """Synthetic observations and transitions that fit the network of a loss."""

    def __init__(self, loss: Loss, spec: Composite | None, environments: int) -> None:
        self.loss, self.keys = loss, loss.tensor_keys
        self.environments = () if environments == 1 else (environments,)
        self.data = SyntheticData()
        self.device = next(loss.parameters()).device
        self.pool = _observations(self.data, loss.value_network, spec).to(self.device)
        with torch.no_grad():
            answer = loss.value_network(self.pool.clone())
        self.actions: Tensor = answer[self.keys.action]
        self.num_actions: int = answer[self.keys.action_value].shape[-1]

    def observation(self, *shape: int) -> TensorDict:
        shape = shape or self.environments
        rows = self.data.rng.integers(len(self.pool), size=shape)
        return self.pool[torch.as_tensor(rows)]

    def batch(self) -> TensorDict:
        first, following = self.observation(_BATCH_SIZE), self.observation(_BATCH_SIZE)
        reward = torch.from_numpy(self.data.rewards(_BATCH_SIZE, 1))
        following[self.keys.reward] = reward.to(self.device)
        for key in (self.keys.done, self.keys.terminated):
            following[key] = torch.zeros(_BATCH_SIZE, 1, dtype=torch.bool, device=self.device)
        first["next"] = following
        first[self.keys.action] = self._action()
        return first

    def _action(self) -> Tensor:
        like = self.actions[:_BATCH_SIZE]
        chosen = torch.from_numpy(self.data.actions(_BATCH_SIZE, self.num_actions))
        if self.loss.action_space == "categorical":
            return chosen.reshape(like.shape).to(like)
        if self.loss.action_space == "one_hot":
            return F.one_hot(chosen, self.num_actions).to(like)
        raise ValueError(
            "check_noise expected a loss with 'categorical' or 'one_hot' actions, got "
            f"{self.loss.action_space!r}; audit it with noisynet.audit.audit_network instead."
        )


def _observations(data: SyntheticData, network: Any, spec: Composite | None) -> TensorDict:
    """Random observations, of the given specification or for a linear first layer."""
    count = 2 * _BATCH_SIZE
    if spec is not None:
        # Bounds of floating-point entries may be as large as 3e38, so those entries are replaced.
        pool = spec.rand((count,)).select(*network.in_keys).reshape(-1)[:count]
        return pool.apply(lambda x: torch.randn_like(x) if x.is_floating_point() else x)
    first = first_layer(network)
    if len(network.in_keys) != 1 or not hasattr(first, "in_features"):
        raise ValueError(
            "check_noise expected observation_spec for a network without a linear first layer on "
            f"one entry, got inputs {list(network.in_keys)} and the first layer {first}; pass "
            "env.observation_spec."
        )
    x = torch.from_numpy(data.array((count, first.in_features)))
    return TensorDict({network.in_keys[0]: x.to(next(network.parameters()).dtype)}, [count])


def _target_network(loss: Loss) -> nn.Module:
    """A copy of the network whose tensors are the loss's target parameters."""
    shared = {id(g): g for g in _generators(loss.value_network).values()}
    network: nn.Module = copy.deepcopy(loss.value_network, shared)
    for key, tensor in loss.target_value_network_params.items(True, True):
        *owner, name = (key,) if isinstance(key, str) else key
        getattr(network.get_submodule(".".join(owner)), name).data = tensor.data
    return network.requires_grad_(False)


@contextmanager
def _restored(loss: Loss) -> Iterator[None]:
    """Restore the loss afterwards, in place: the network and the loss share tensors."""
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    try:
        yield
    finally:
        loss.zero_grad()
        after = loss.state_dict()
        for name, value in before.items():
            after[name].copy_(value)


def _acting_network(loss: Loss, policy: object) -> nn.Module | None:
    """The policy, if it has noisy layers that the loss does not have."""
    known = set(loss.value_network.modules())
    if isinstance(policy, nn.Module):
        layers = find_noisy_layers(policy)
        return policy if any(layer.module not in known for layer in layers) else None
    return None


def _generators(network: nn.Module) -> dict[str, torch.Generator]:
    return {
        f"generator of {name}": module.generator
        for name, module in network.named_modules()
        if isinstance(module, NoisyNetwork) and module.generator is not None
    }


def _observation_dims(network: nn.Module) -> int:
    # The input of an n-dimensional convolution has n dimensions and the channels.
    return 1 + len(getattr(first_layer(network), "kernel_size", ()))


def _check_not_lazy(network: nn.Module) -> None:
    if any(nn.parameter.is_lazy(parameter) for parameter in network.parameters()):
        raise ValueError(
            "NoisyNetwork expected a network of known sizes, got lazy layers; set in_features, or "
            "run the network once before."
        )


def _check_loss(loss: object, caller: str) -> None:
    if not isinstance(loss, AGENTS):
        raise TypeError(
            f"{caller} expected a DQNLoss or DistributionalDQNLoss, got a {type(loss).__name__}; "
            "audit other agents with noisynet.audit.audit_network."
        )
