"""DQN, Dueling, C51 and Rainbow, plain and NoisyNet: one class, told apart by its configuration.

Algorithm 1 of the paper; what is learnt is chosen once, in `PlainUpdate`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet import config, losses
from noisynet.agents.compute import optimiser_for, resolve_compute
from noisynet.agents.exploration import epsilon_at, epsilon_greedy
from noisynet.agents.fused import FusedUpdate, is_small
from noisynet.agents.policy import ValuePolicy
from noisynet.agents.streams import numpy_stream, torch_stream
from noisynet.agents.update import (
    NORM_PERIOD_UPDATES,
    Learnt,
    NoiseStreams,
    NonFiniteLoss,
    ObservationSpec,
    Update,
    ValueNetworks,
    describe_non_finite,
)
from noisynet.layers import held_noise, hold_noise
from noisynet.networks import (
    CategoricalNetwork,
    NetworkShape,
    ValueNetwork,
    make_value_network,
    resolve_torso,
    view_with_own_noise,
)
from noisynet.replay import TransitionBatch
from noisynet.state_dicts import add_prefix, strip_prefix

NOISE_ROLES: Final = ("act", "online", "target", "select")
"""The uses of noise in training, each with a random stream of its own; so has evaluation."""

_USES: Final = {role: "acting" if role == "act" else "learning" for role in NOISE_ROLES}
_LOSSES: Final = {"huber": losses.huber, "squared": losses.squared}


class ValueAgent:
    """Acts, learns, and saves and restores its whole state.

    Args:
        settings: the run's configuration.
        spec: the environment's specification.
        device: device of the networks.

    Attributes:
        compute: `"torch"`, `"compile"` or `"kernels"`.
        update: what computes values and updates (see `agents/update.py`).
        plain: the same in plain PyTorch.
        updates: the number of updates so far.
    """

    def __init__(
        self,
        settings: config.Config,
        spec: ObservationSpec,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config, self.spec, self.device = settings, spec, torch.device(device)
        exploration = settings.exploration
        self.noisy = exploration if isinstance(exploration, config.NoisyWeights) else None
        self.compute = resolve_compute(settings.compute, self.device)
        self.online = _network(settings, spec).to(self.device)
        self.acting = view_with_own_noise(self.online)
        self.selector = view_with_own_noise(self.online)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.networks = ValueNetworks(self.online, self.acting, self.selector, self.target)
        self.optimiser = optimiser_for(settings.optimiser, self.online, self.compute)
        self.streams = {role: torch_stream(settings.seed, role, device) for role in NOISE_ROLES}
        self.explore = numpy_stream(settings.seed, "explore")
        used_in = self.noisy.used_in if self.noisy else ""
        roles = {role for role, use in _USES.items() if use in used_in}
        noise = NoiseStreams(self.networks, self.streams, roles)
        self.plain = PlainUpdate(self, noise)
        self.update: Update = self.plain
        if self.compute == "kernels" and is_small(self.online, spec.frame_dtype):
            self.update = FusedUpdate(settings, self.networks, self.optimiser, noise)
        self.updates = 0
        self._redraw_due = True

    # --- act -------------------------------------------------------------------------------------

    def act(self, observation: NDArray[Any], step: int) -> NDArray[np.int64]:
        """Choose actions [N] for observations [N, stack, *frame] at a step of training."""
        warming_up = step < self.config.learning.starts_steps
        if isinstance(self.config.exploration, config.EpsilonGreedy):
            starts = self.config.learning.starts_steps
            epsilon = epsilon_at(self.config.exploration, step, starts)
        else:
            epsilon = float(warming_up and self.config.exploration.warm_up == "uniform")
        if epsilon == 0:
            return self._greedy(observation)
        count, actions = len(observation), self.spec.num_actions
        return epsilon_greedy(
            lambda: self._greedy(observation), epsilon, count, actions, self.explore
        )

    def _greedy(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        """argmax_b Q(x, b, ξ; ζ), with ξ drawn anew where that is due."""
        if self._redraw_due:
            self.update.resample(len(observation))  # ξ of the action (Algorithm 1)
        self._redraw_due = self.noisy is not None and self.noisy.redraw == "action"
        actions: NDArray[np.int64] = self.update.q_values(observation).argmax(axis=1)
        return actions

    def begin_episode(self) -> None:
        """Tell the agent that an episode begins, for noise that is redrawn once per episode."""
        if self.noisy and self.noisy.redraw == "episode":
            self._redraw_due = True

    # --- learn -----------------------------------------------------------------------------------

    def learn(self, batch: TransitionBatch) -> Learnt:
        """One update from a batch of transitions; see `PlainUpdate.learn`."""
        learnt = self.update.learn(batch)
        if not math.isfinite(learnt.loss):
            where = describe_non_finite(learnt, batch, self.networks, self.updates + 1)
            raise NonFiniteLoss(where)
        self.updates += 1
        if self.noisy and self.noisy.redraw == "update":
            self._redraw_due = True
        return learnt

    def sync_target(self) -> None:
        """ζ⁻ ← ζ: weights only, each network keeps its own ε."""
        self.target.load_state_dict(self.online.state_dict())

    def evaluation_policy(self, noise: Literal["on", "off"], role: str) -> ValuePolicy:
        """A policy that plays an evaluation with the latest weights; `role` names its stream."""
        return ValuePolicy(self, noise, role)

    # --- state -----------------------------------------------------------------------------------

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """The array as a tensor on the networks' device, through pinned memory for CUDA."""
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on, by name."""
        named = add_prefix("online.", self.online.state_dict())
        named |= add_prefix("target.", self.target.state_dict())
        named |= add_prefix("noise.", held_noise(self.acting))
        for index, state in self.optimiser.state_dict()["state"].items():
            named |= add_prefix(f"optimiser.{index}.", state)
        return named | {f"stream.{role}": s.get_state() for role, s in self.streams.items()}

    def state(self) -> dict[str, Any]:
        """The rest of the state, JSON-able."""
        return {
            "updates": self.updates,
            "redraw_due": self._redraw_due,
            "explore": self.explore.bit_generator.state,
        }

    def load_weights(self, tensors: dict[str, Tensor], prefix: str = "") -> None:
        """Load the weights alone, to play with them; the names begin with `prefix`."""
        self.online.load_state_dict(strip_prefix(f"{prefix}online.", tensors))
        self.update.reload()

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Restore what `tensors` and `state` returned."""
        self.online.load_state_dict(strip_prefix("online.", tensors))
        self.target.load_state_dict(strip_prefix("target.", tensors))
        hold_noise(self.acting, strip_prefix("noise.", tensors))
        groups = self.optimiser.state_dict()["param_groups"]
        parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        optimiser: dict[int, dict[str, Tensor]] = {}
        for name, value in strip_prefix("optimiser.", tensors).items():
            index, _, field = name.partition(".")
            like = parameters[int(index)]
            if value.shape == like.shape:  # files do not store strides, the kernels need them
                value = torch.empty_like(like).copy_(value)
            optimiser.setdefault(int(index), {})[field] = value
        self.optimiser.load_state_dict({"state": optimiser, "param_groups": groups})
        for role, stream in self.streams.items():
            stream.set_state(tensors[f"stream.{role}"])
        self.updates, self._redraw_due = state["updates"], state["redraw_due"]
        self.explore.bit_generator.state = state["explore"]
        self.update.reload(self.updates)


class PlainUpdate:
    """Values and updates in plain PyTorch, on any device: the definition of all others.

    Args:
        agent: its networks, optimiser and settings.
        noise: draws the samples.
    """

    def __init__(self, agent: ValueAgent, noise: NoiseStreams) -> None:
        self.agent, self.noise, self.networks = agent, noise, agent.networks
        self.parameters = [p for p in agent.online.parameters() if p.requires_grad]
        self.loss = self.q_loss
        if isinstance(agent.online, CategoricalNetwork):
            self.loss = self.categorical_loss
        self._loss = self.loss
        if agent.compute == "compile":
            # The shapes of a batch never change: one graph. `fullgraph` raises where PyTorch would
            # otherwise fall back to eager mode. Acting is not compiled: for a single observation,
            # checking that the graph still applies takes longer than it saves.
            self._loss = torch.compile(self.loss, dynamic=False, fullgraph=True)

    def resample(self, rows: int) -> None:
        """Draw the acting noise: one sample for each of `rows` environments."""
        self.noise.resample("act", rows)

    @torch.no_grad()
    def q_values(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Q [N, A] of the acting network, with the noise that it holds."""
        q: NDArray[np.float32] = self.agent.acting(self.agent.to_device(observation)).cpu().numpy()
        return q

    def learn(self, batch: TransitionBatch) -> Learnt:
        """One update from a batch of transitions (Eq. 14, or Eqs. 15 and 16 with double Q)."""
        for role in ("online", "target", "select"):
            self.noise.resample(role)  # ξ, ξ′ and ξ″, each held over the batch
        loss, error, q = self._loss(*self.columns(batch))
        learnt = Learnt(float(loss.detach()), error.cpu().numpy(), float(q))
        if not math.isfinite(learnt.loss):
            return learnt
        self.agent.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        longest = self.agent.config.learning.max_gradient_norm or math.inf
        if longest < math.inf or (self.agent.updates + 1) % NORM_PERIOD_UPDATES == 0:
            norm = nn.utils.clip_grad_norm_(self.parameters, longest)
            learnt = replace(learnt, gradient_norm=float(norm))
        self.agent.optimiser.step()
        return learnt

    def columns(self, batch: TransitionBatch) -> list[Tensor]:
        """A batch as the arguments of `loss`."""
        columns = batch.x, batch.action, batch.reward, batch.discount, batch.y, batch.weight
        return [self.agent.to_device(column) for column in columns]

    def q_loss(
        self,
        x: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        y: Tensor,
        weight: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The mean loss of a batch, target − Q(x, a) [B], and the mean of Q(x, a)."""
        learning = self.agent.config.learning
        with torch.no_grad():
            q_y = self.networks.target(y)  # Q(y, ·, ξ′; ζ⁻)
            if learning.double_q:
                selector = self.networks.selector(y)  # Q(y, ·, ξ″; ζ)
                target = losses.double_q_target(reward, discount, q_y, selector)  # Eqs. 15, 16
            else:
                target = losses.q_learning_target(reward, discount, q_y)  # Eq. 14
        error = losses.td_error(self.networks.online(x), action, target)  # Q(x, a, ξ; ζ)
        loss = losses.mean_over_batch(_LOSSES[learning.loss](error), weight)
        return loss, error.detach(), (target - error.detach()).mean()

    def categorical_loss(
        self,
        x: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        y: Tensor,
        weight: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The mean cross-entropy to the projected target (C51), KL divergence [B], mean Q(x, a)."""
        online, target = self.networks.online, self.networks.target
        assert isinstance(online, CategoricalNetwork)
        assert isinstance(target, CategoricalNetwork)
        with torch.no_grad():
            logits_y = target.logits(y)  # of Z(y, ·, ξ′; ζ⁻) [B, A, N]
            q_y = losses.categorical_mean(logits_y, target.atoms)
            if self.agent.config.learning.double_q:
                q_y = self.networks.selector(y)  # Q(y, ·, ξ″; ζ)
            p_y = _of_action(logits_y, q_y.argmax(dim=1)).softmax(dim=-1)
            projected = losses.categorical_projection(reward, discount, p_y, target.atoms)
        logits = _of_action(online.logits(x), action)  # of Z(x, a, ξ; ζ) [B, N]
        loss = losses.mean_over_batch(losses.cross_entropy(projected, logits), weight)
        q = losses.categorical_mean(logits.detach(), target.atoms).mean()
        return loss, losses.kl_divergence(projected, logits.detach()), q

    def reload(self, updates: int = 0) -> None:
        """Nothing to do: weights, optimiser state and noise are read where they are."""


def _of_action(values: Tensor, action: Tensor) -> Tensor:
    """The row of one action [B, N] of values [B, A, N]."""
    return values.gather(1, action[:, None, None].expand(-1, 1, values.shape[2]))[:, 0]


def _network(settings: config.Config, spec: ObservationSpec) -> ValueNetwork:
    """The network with its initial weights, which derive from the seed alone."""
    exploration = settings.exploration
    noisy = exploration if isinstance(exploration, config.NoisyWeights) else None
    shape = NetworkShape(
        convolutions=resolve_torso(settings.network.torso, spec.frame_shape),
        hidden=settings.network.hidden,
        dueling=settings.network.dueling,
        noise=noisy.noise if noisy else None,
        sigma0=noisy.sigma0 if noisy else None,
        learn_sigma=noisy.learn_sigma if noisy else True,
        trunk_gradient_scale=settings.network.trunk_gradient_scale,
        scale=spec.pixel_scale,
        atoms=settings.network.support,
        distribution=noisy.distribution if noisy else "gaussian",
        f=noisy.f if noisy else "signed_sqrt",
    )
    generator = torch_stream(settings.seed, "init noisy")
    with torch.random.fork_rng(devices=[]):  # plain layers initialise from the global stream
        torch.manual_seed(torch_stream(settings.seed, "init").initial_seed())
        observation_shape = (spec.stack, *spec.frame_shape)
        return make_value_network(shape, observation_shape, spec.num_actions, generator)
