"""Noisy networks in TorchRL: a module that obeys its exploration type, and the audit of a loss."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisynet.extras import extra
from noisynet.layers import (
    Contract,
    Noise,
    NoiseReport,
    held_noise,
    hold_noise,
    make_noisy,
    noise_off,
    noisy_layers,
    resample_noise,
)
from noisynet.layers import check_noise as check_networks
from noisynet.layers.record import find_noisy_layers

with extra("torchrl"):
    from tensordict import TensorDict
    from torchrl.data import Composite
    from torchrl.envs.utils import ExplorationType, exploration_type, set_exploration_type
    from torchrl.modules import recurrent_mode
    from torchrl.objectives import DistributionalDQNLoss, DQNLoss, HardUpdate

__all__ = ["AGENTS", "Loss", "NoisyNetwork", "check_noise", "load", "separate_passes"]

Loss: TypeAlias = DQNLoss | DistributionalDQNLoss
"""A loss with all that an agent is made of: its network, and the parameters of the target."""

AGENTS: Final = (DQNLoss, DistributionalDQNLoss)
"""What `check_noise` knows how to run."""

# Noise is symmetric, so that all of these mean the mean weights.
_MEANS: Final = frozenset(ExplorationType) - {ExplorationType.RANDOM}
_BATCH: Final = 32


class NoisyNetwork(nn.Module):
    """A network with noisy layers, to be used in `QValueActor`, `TensorDictModule` and losses.

    Every pass draws noise of its own and leaves the sample that the layers hold as it was, so that
    TorchRL may put other parameters and buffers into the network at any time:

    - in a loss (online, target and selector alike): one sample for the whole batch;
    - elsewhere without gradients, as collectors act: one sample for each environment;
    - under `set_exploration_type(DETERMINISTIC)`, or MODE, MEAN, MEDIAN: the mean weights, and no
      random number is drawn. Nothing set, or RANDOM: noise.

    Losses set DETERMINISTIC themselves, for policies that sample. They are recognised by the
    recurrent mode, which every `LossModule` sets too, and keep their noise: without it σ would
    have no gradient. A loss written by hand does the same with `set_recurrent_mode(True)`.

    Args:
        network: a network with `NoisyLinear` layers, or one without any, of which a noisy copy is
            made.
        noise: for that copy, as for `make_noisy`.
        sigma0: for that copy, as for `make_noisy`.
        observation_dims: how many dimensions one observation has, to tell a batch of them; found
            from the first linear or convolutional layer if not given.
        generator: what to draw from; torch's global one if not given. A copy of the network takes
            a copy of the generator with it, which goes on with the same numbers.
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
                "NoisyNetwork expected noise and sigma0 only for a network to be converted, got "
                f"noise={noise!r}, sigma0={sigma0!r} and a {type(network).__name__} that has noisy "
                "layers already; give them to its layers."
            )
        self.network = network
        self.generator = generator
        self.observation_dims = observation_dims or _observation_dims(network)

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """What the network gives for the same arguments, with fresh noise or with none."""
        learning = bool(recurrent_mode())  # set by losses only, which also say DETERMINISTIC
        if exploration_type() in _MEANS and not learning:
            with noise_off(self.network):
                return self.network(*arguments, **keywords)
        if all(layer._noise_off for layer in noisy_layers(self.network).values()):
            return self.network(*arguments, **keywords)  # somebody else's `noise_off`
        rows = None
        if not learning and not torch.is_grad_enabled():
            rows = self._environments([*arguments, *keywords.values()])
        held = held_noise(self.network)
        resample_noise(self.network, self.generator, rows)
        try:
            return self.network(*arguments, **keywords)
        finally:
            hold_noise(self.network, held)

    def _environments(self, arguments: list[Any]) -> int | None:
        """How many rows the batch has that the noisy layers will see."""
        first = next((x for x in arguments if isinstance(x, Tensor)), None)
        if first is None or first.dim() <= self.observation_dims:
            return None
        rows = first.shape[-self.observation_dims - 1]
        return rows if rows > 1 else None


def check_noise(
    loss: Loss,
    policy: Callable[[Any], Any] | None = None,
    *,
    observation_spec: Composite | None = None,
    environments: int = 1,
    contract: Contract = "action",
    noise: Noise | None = None,
    updates: int = 100,
) -> NoiseReport:
    """Audit the noise of a DQN loss and of the policy that acts, with our layers or TorchRL's.

    The loss really learns, from made-up transitions, and is put back afterwards. The policy acts as
    in a collector (`ExplorationType.RANDOM`, no gradients) and is evaluated under DETERMINISTIC.
    A loss that was copied by `copy.deepcopy` fails: TorchRL then learns parameters that are no
    longer those of its network.

    Args:
        loss: the loss, with the network and the target parameters that it holds.
        policy: what acts on tensordicts; the loss's own network if not given.
        observation_spec: what to make observations of, such as `env.observation_spec`; a network
            that begins with a linear layer needs none.
        environments: how many environments act at once.
        contract: when acting noise must be redrawn.
        noise: the kind that TorchRL's layers claim to be; our own layers say it themselves.
        updates: how many updates to run, with four actions before each.

    Returns:
        A report with a pass or fail, and the evidence, for each question.
    """
    _check_loss(loss, "check_noise")
    act_on = loss.value_network if policy is None else policy
    made_up = _MadeUp(loss, observation_spec, environments)
    optimiser = torch.optim.Adam(loss.parameters(), lr=1e-4)

    @torch.no_grad()
    def explore(kind: ExplorationType, actions: int) -> None:
        with set_exploration_type(kind):
            for _ in range(actions):
                act_on(made_up.observation())

    def learn() -> None:
        optimiser.zero_grad()
        loss(made_up.batch())["loss"].backward()
        optimiser.step()

    with _put_back(loss):
        # Made before anything is watched: a new updater copies everything to the target once.
        updater = HardUpdate(loss, value_network_update_interval=0) if loss.delay_value else None
        with separate_passes(loss) as networks:
            return check_networks(
                networks["online"],
                target=networks.get("target"),
                acting=_acting_network(loss, policy),
                act=lambda: explore(ExplorationType.RANDOM, 1),
                learn=learn,
                evaluate=lambda: explore(ExplorationType.DETERMINISTIC, 5),
                sync=updater.step if updater else None,
                contract=contract,
                noise=noise,
                generators=_generators(loss.value_network),
                updates=updates,
            )


@contextmanager
def separate_passes(loss: Loss) -> Iterator[dict[str, nn.Module]]:
    """Let `record_noise` tell apart the passes of a loss, which all go through one network.

    For a target pass, a loss puts the target's parameters into its online network for a moment.
    Inside the `with`, such a pass goes through a copy of the network that holds these very
    parameters; and passes that nothing is learnt from run without gradients, which is how they are
    recorded. What the loss computes stays the same.

    Args:
        loss: the loss, not compiled.

    Yields:
        Networks for `record_noise`: `"online"`, and `"target"` if the loss has target parameters.
    """
    _check_loss(loss, "separate_passes")
    online, views = loss.value_network, find_noisy_layers(loss.value_network)
    if not views:
        raise ValueError(
            "expected a loss whose value_network has noisy layers, got a "
            f"{type(online).__name__} without any; build it of NoisyNetwork."
        )
    target = _target_network(loss) if loss.delay_value else None
    mean = attrgetter(".".join(filter(None, (views[0].name, views[0].weight_mu))))
    forward = online.forward

    def route(*arguments: Any, **keywords: Any) -> Any:
        in_force = [attrgetter(name)(view.layer) for view in views for name in view.parameters]
        if any(tensor.requires_grad for tensor in in_force):
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
    """A loss that `torch.save` wrote, on the CPU. It is a pickle: read only what you trust.

    Raises:
        ValueError: the file holds something else, such as a `state_dict` alone.
    """
    expected = f"expected a DQNLoss or DistributionalDQNLoss, saved whole, in {path}"
    how = "save it with torch.save(loss, path)"
    try:
        loss = torch.load(path, map_location="cpu", weights_only=False)
    except (pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"{expected}: {error}; {how}.") from error
    if not isinstance(loss, AGENTS):
        raise ValueError(f"{expected}, got a {type(loss).__name__}; {how}.")
    return loss


class _MadeUp:
    """Random observations and transitions that fit the network of a loss."""

    def __init__(self, loss: Loss, spec: Composite | None, environments: int) -> None:
        self.loss, self.keys = loss, loss.tensor_keys
        self.environments = () if environments == 1 else (environments,)
        self.rng = torch.Generator().manual_seed(0)  # evaluation must leave training's alone
        self.device = next(loss.parameters()).device
        self.pool = _observations(loss.value_network, spec).to(self.device)
        with torch.no_grad():
            answer = loss.value_network(self.pool.clone())
        self.actions: Tensor = answer[self.keys.action]
        self.count: int = answer[self.keys.action_value].shape[-1]

    def observation(self) -> TensorDict:
        return self.pool[torch.randint(len(self.pool), self.environments, generator=self.rng)]

    def batch(self) -> TensorDict:
        seen, following = (
            self.pool[torch.randint(len(self.pool), (_BATCH,), generator=self.rng)]
            for _ in range(2)
        )
        following[self.keys.reward] = torch.randn(_BATCH, 1, generator=self.rng).to(self.device)
        for key in (self.keys.done, self.keys.terminated):
            following[key] = torch.zeros(_BATCH, 1, dtype=torch.bool, device=self.device)
        seen["next"] = following
        seen[self.keys.action] = self._action()
        return seen

    def _action(self) -> Tensor:
        like = self.actions[:_BATCH]
        if self.loss.action_space == "categorical":
            return torch.randint(self.count, like.shape, generator=self.rng).to(like)
        if self.loss.action_space == "one_hot":
            chosen = torch.randint(self.count, (_BATCH,), generator=self.rng)
            return F.one_hot(chosen, self.count).to(like)
        raise ValueError(
            "check_noise expected a loss with 'categorical' or 'one_hot' actions, got "
            f"{self.loss.action_space!r}; audit it with noisynet.layers.check_noise instead."
        )


def _observations(network: Any, spec: Composite | None) -> TensorDict:
    """A pool of random observations, as the specification or the first layer asks for."""
    if spec is not None:
        # Gym's bounds of continuous entries are often the largest floats, in which noise drowns.
        pool = spec.rand((2 * _BATCH,)).select(*network.in_keys).reshape(-1)[: 2 * _BATCH]
        return pool.apply(lambda x: torch.randn_like(x) if x.is_floating_point() else x)
    first = _first_layer(network)
    if len(network.in_keys) != 1 or not hasattr(first, "in_features"):
        raise ValueError(
            "check_noise expected observation_spec for a network that does not begin with a linear "
            f"layer on one entry, got inputs {list(network.in_keys)} and the first layer {first}; "
            "give env.observation_spec."
        )
    x = torch.randn(2 * _BATCH, first.in_features, dtype=next(network.parameters()).dtype)
    return TensorDict({network.in_keys[0]: x}, [2 * _BATCH])


def _target_network(loss: Loss) -> nn.Module:
    """A copy of the network whose tensors are the loss's target parameters."""
    shared = {id(g): g for g in _generators(loss.value_network).values()}
    network: nn.Module = copy.deepcopy(loss.value_network, shared)
    for key, held in loss.target_value_network_params.items(True, True):
        *owner, name = (key,) if isinstance(key, str) else key
        getattr(network.get_submodule(".".join(owner)), name).data = held.data
    return network.requires_grad_(False)


@contextmanager
def _put_back(loss: Loss) -> Iterator[None]:
    """Undo what is learnt inside the `with`, in place: the network and the loss share tensors."""
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    try:
        yield
    finally:
        loss.zero_grad()
        after = loss.state_dict()
        for name, value in before.items():
            after[name].copy_(value)


def _acting_network(loss: Loss, policy: object) -> nn.Module | None:
    """The policy, if it has noisy layers that the loss has not."""
    known = set(loss.value_network.modules())
    if isinstance(policy, nn.Module):
        views = find_noisy_layers(policy)
        return policy if any(view.layer not in known for view in views) else None
    return None


def _generators(network: nn.Module) -> dict[str, torch.Generator]:
    return {
        f"generator of {name}": module.generator
        for name, module in network.named_modules()
        if isinstance(module, NoisyNetwork) and module.generator is not None
    }


def _first_layer(network: nn.Module) -> Any:
    """The first layer with parameters of its own: TorchRL's MLP has sizes too, but no weights."""
    for module in network.modules():
        if module._parameters and (
            hasattr(module, "in_features") or hasattr(module, "in_channels")
        ):
            return module
    return None


def _observation_dims(network: nn.Module) -> int:
    # A convolution over n dimensions sees n of them, and the channels.
    return 1 + len(getattr(_first_layer(network), "kernel_size", ()))


def _check_not_lazy(network: nn.Module) -> None:
    if any(nn.parameter.is_lazy(parameter) for parameter in network.parameters()):
        raise ValueError(
            "NoisyNetwork expected a network whose sizes are known, got lazy layers; give "
            "in_features, or call the network once before."
        )


def _check_loss(loss: object, caller: str) -> None:
    if not isinstance(loss, AGENTS):
        raise TypeError(
            f"{caller} expected a DQNLoss or DistributionalDQNLoss, got a {type(loss).__name__}; "
            "audit other agents with noisynet.layers.check_noise."
        )
