"""DQN and Dueling, plain and NoisyNet: one class, told apart by its configuration (Algorithm 1)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet import config
from noisynet.agents.exploration import epsilon_at, epsilon_greedy
from noisynet.agents.gradient import Columns, Gradient, ValueGradient, hooks_of
from noisynet.agents.pairing import Learner
from noisynet.agents.streams import numpy_stream, torch_stream
from noisynet.layers import held_noise, hold_noise, noise_off, resample_noise
from noisynet.networks import (
    NetworkShape,
    Share,
    TorsoKind,
    ValueNetwork,
    ValuePass,
    in_turn,
    view_with_own_noise,
)
from noisynet.optimisers import CentredRMSProp, clip_by_norm
from noisynet.replay import TransitionBatch

NOISE_ROLES: Final = ("act", "online", "target", "select")
"""The uses of noise in training, each with a stream of its own; evaluation has its own too."""


class ObservationSpec(Protocol):
    """What an agent must know of an environment."""

    @property
    def num_actions(self) -> int:
        """How many actions there are."""

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """The shape of one frame."""

    @property
    def frame_dtype(self) -> str:
        """The type of a frame: "uint8" or "float32"."""

    @property
    def stack(self) -> int:
        """How many frames make an observation."""

    @property
    def pixel_scale(self) -> float:
        """What observations are multiplied by before the network."""


class NonFiniteLoss(ArithmeticError):  # noqa: N818 — says what happened
    """The loss is NaN or infinite; the message says where that came from."""


@dataclass(frozen=True)
class Learnt:
    """What an update did.

    Attributes:
        loss: the mean loss of the batch.
        td_error: target − Q(x, a) [B].
    """

    loss: float
    td_error: NDArray[np.float32]


class ValueAgent:
    """Acts, learns, and gives and takes its whole state.

    Args:
        settings: the run's configuration.
        spec: the environment's.
        device: where the networks live.
        learner: a second thread that computes updates while the agent acts.
    """

    def __init__(
        self,
        settings: config.Config,
        spec: ObservationSpec,
        device: torch.device | str = "cpu",
        learner: Learner | None = None,
    ) -> None:
        self.config, self.spec, self.device = settings, spec, torch.device(device)
        exploration = settings.exploration
        self.noisy = exploration if isinstance(exploration, config.NoisyWeights) else None
        init = torch_stream(settings.seed, "init noisy")
        with torch.random.fork_rng(devices=[]):  # plain layers initialise from the global stream
            torch.manual_seed(torch_stream(settings.seed, "init").initial_seed())
            online = ValueNetwork(
                _network_shape(settings, spec),
                (spec.stack, *spec.frame_shape),
                spec.num_actions,
                init,
            )
        self.online = online.to(self.device)
        self.acting = view_with_own_noise(self.online)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        learning = settings.learning
        self.gradient = ValueGradient(
            self.online, self.target, learning.loss, learning.double_q, self._redraw
        )
        self.optimiser = _optimiser(settings.optimiser, self.online)
        self.streams = {role: torch_stream(settings.seed, role, device) for role in NOISE_ROLES}
        self.explore = numpy_stream(settings.seed, "explore")
        self._acting_pass = ValuePass(self.acting, self.gradient.online_pass)
        self._acting_hooks = hooks_of(self.acting)
        self.learner = learner
        self.updates = 0
        self._redraw_due = True
        self._update: tuple[TransitionBatch, Callable[[], Gradient]] | None = None
        self._streams_at_begin: dict[str, Tensor] = {}

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
            return self._greedy_while_training(observation)
        count, actions = len(observation), self.spec.num_actions
        return epsilon_greedy(
            lambda: self._greedy_while_training(observation), epsilon, count, actions, self.explore
        )

    def begin_episode(self) -> None:
        """Tell the agent that an episode begins, for noise that is redrawn by episodes."""
        if self.noisy and self.noisy.redraw == "episode":
            self._redraw_due = True

    def prepare(self, count: int) -> None:
        """Draw the noise of the next `count` actions if it is due, while the emulator still runs.

        Acting would draw the same sample itself.
        """
        if self._noise_in("acting") and self._redraw_due:
            rows = count if count > 1 else None
            stream = self.streams["act"]
            resample_noise(self.acting.head, stream, rows)  # ξ of the action (Algorithm 1)
            self._redraw_due = False

    def _greedy_while_training(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        self.prepare(len(observation))
        with self._mean_unless(self.acting, self._noise_in("acting")):
            actions = greedy_actions(self._values(len(observation)), self.to_device(observation))
        self._redraw_due = self._redraw_due or self._redraw_at_every_action
        return actions

    def _values(self, rows: int) -> Callable[[Tensor], Tensor]:
        """What gives Q of so many observations; each of several has noise of its own."""
        by_hand = rows == 1 and self.device.type == "cpu"
        return self._acting_pass if by_hand and not any(self._acting_hooks) else self.acting

    @property
    def _redraw_at_every_action(self) -> bool:
        return self.noisy is not None and self.noisy.redraw == "action"

    # --- learn -----------------------------------------------------------------------------------

    def learn(self, batch: TransitionBatch) -> Learnt:
        """One update from a batch of transitions (Eq. 14, or Eqs. 15 and 16 with double Q)."""
        self.begin(batch)
        return self.finish()

    def begin(self, batch: TransitionBatch) -> None:
        """Begin an update: with a learner its gradient is computed while the agent acts.

        Nothing that acting or evaluating depends on changes until `finish`.
        """
        if self._update is not None:
            raise RuntimeError("begin expected no update under way: call finish first")
        columns = Columns(
            x=self.to_device(batch.x),
            action=self.to_device(batch.action),
            reward=self.to_device(batch.reward),
            discount=self.to_device(batch.discount),
            y=self.to_device(batch.y),
            weight=self.to_device(batch.weight),
        )
        work = partial(self._gradient, self.gradient.begin(columns))
        if self.learner is None:
            self._update = batch, partial(work, in_turn)
            return
        self._streams_at_begin = self._stream_states()
        del self._streams_at_begin["stream.act"]  # acting goes on
        self._update = batch, self.learner.start(work).join

    def finish(self) -> Learnt:
        """Move the weights by the update that was begun."""
        if self._update is None:
            raise RuntimeError("finish expected an update under way: call begin first")
        (batch, compute), self._update = self._update, None
        gradient = compute()
        self._streams_at_begin = {}
        value = gradient.loss
        if not math.isfinite(value):
            raise NonFiniteLoss(self._where_not_finite(value, gradient, batch))
        share = in_turn if self.learner is None else self.learner.share
        if self.config.learning.max_gradient_norm is not None:
            clip_by_norm(self.online.parameters(), self.config.learning.max_gradient_norm, share)
        if isinstance(self.optimiser, CentredRMSProp):
            share(self.optimiser.parts())
        else:
            self.optimiser.step()
            # Fused ones do not say so themselves, and passes by hand ask what has changed.
            torch.autograd.graph.increment_version(self.online.parameters())
        if self.learner is not None and self.device.type == "cpu":
            self.learner.prepare(self.gradient.online_pass.torso.packed)
        self.updates += 1
        if self.noisy and self.noisy.redraw == "update":
            self._redraw_due = True
        return Learnt(value, gradient.error.cpu().numpy())

    def _gradient(self, compute: Callable[[Share], Gradient], share: Share) -> Gradient:
        learning = self._noise_in("learning")
        with self._mean_unless(self.online, learning), self._mean_unless(self.target, learning):
            return compute(share)

    def sync_target(self) -> None:
        """ζ⁻ ← ζ: weights only, each network keeps its own ε."""
        self.target.load_state_dict(self.online.state_dict())

    def _redraw(self, network: ValueNetwork, role: str) -> None:
        if self._noise_in("learning"):
            resample_noise(network.head, self.streams[role])

    def _noise_in(self, use: Literal["acting", "learning"]) -> bool:
        return self.noisy is not None and use in self.noisy.used_in

    def _mean_unless(self, network: nn.Module, noisy: bool) -> AbstractContextManager[None]:
        return nullcontext() if self.noisy is None or noisy else noise_off(network)

    def _where_not_finite(self, loss: float, gradient: Gradient, batch: TransitionBatch) -> str:
        columns = {"reward": "reward", "the observations": "x", "the observations after": "y"}
        places = [
            (name, torch.from_numpy(getattr(batch, column))) for name, column in columns.items()
        ]
        places += self.online.state_dict().items()
        places += [(f"target {name}", value) for name, value in self.target.state_dict().items()]
        places.append(("the targets of the loss", gradient.target))
        bad = [name for name, value in places if not bool(value.isfinite().all())]
        where = f"first in {bad[0]!r}" if bad else "in the network's outputs"
        if not bad and bool(gradient.error.isfinite().all()):
            largest = float(gradient.error.abs().max())
            where = f"errors of up to {largest:.3g} are too large for it; are the rewards right?"
        return f"expected a finite loss at update {self.updates + 1}, got {loss}: {where}"

    def evaluation_policy(self, noise: Literal["on", "off"], role: str) -> EvaluationPolicy:
        """Who plays an evaluation with the latest weights; `role` names its random stream."""
        return EvaluationPolicy(self, noise, role)

    # --- state -----------------------------------------------------------------------------------

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """The array as a tensor where the networks are, through pinned memory if that is CUDA."""
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on, by name.

        Of an update under way nothing: it is to be begun again by the same batch.
        """
        named = {f"online.{name}": value for name, value in self.online.state_dict().items()}
        named |= {f"target.{name}": value for name, value in self.target.state_dict().items()}
        named |= {f"noise.{name}": value for name, value in held_noise(self.acting).items()}
        for index, state in self.optimiser.state_dict()["state"].items():
            named |= {f"optimiser.{index}.{name}": value for name, value in state.items()}
        # An update under way is begun again, and then draws its noise again.
        named |= self._stream_states() | self._streams_at_begin
        return named

    def _stream_states(self) -> dict[str, Tensor]:
        return {f"stream.{role}": stream.get_state() for role, stream in self.streams.items()}

    def state(self) -> dict[str, Any]:
        """The rest of the state, JSON-able."""
        return {
            "updates": self.updates,
            "redraw_due": self._redraw_due,
            "explore": self.explore.bit_generator.state,
        }

    def load_weights(self, tensors: dict[str, Tensor], prefix: str = "") -> None:
        """Take the weights alone, to play with them; the names begin with `prefix`."""
        self.online.load_state_dict(_part(tensors, f"{prefix}online."))

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Take back what `tensors` and `state` gave."""
        self.online.load_state_dict(_part(tensors, "online."))
        self.target.load_state_dict(_part(tensors, "target."))
        hold_noise(self.acting, _part(tensors, "noise."))
        groups = self.optimiser.state_dict()["param_groups"]
        parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        optimiser: dict[int, dict[str, Tensor]] = {}
        for name, value in _part(tensors, "optimiser.").items():
            index, _, field = name.partition(".")
            like = parameters[int(index)]
            if value.shape == like.shape:  # files know no layout, but the optimisers' passes do
                value = torch.empty_like(like).copy_(value)
            optimiser.setdefault(int(index), {})[field] = value
        self.optimiser.load_state_dict({"state": optimiser, "param_groups": groups})
        for role, stream in self.streams.items():
            stream.set_state(tensors[f"stream.{role}"])
        self.updates, self._redraw_due = state["updates"], state["redraw_due"]
        self.explore.bit_generator.state = state["explore"]


class EvaluationPolicy:
    """The latest agent, playing with noise and streams of its own.

    Args:
        agent: whose weights to play with; it is left as it is.
        noise: whether a noisy agent plays with noise, redrawn at every action.
        role: names the random stream, so that every evaluation has its own.
    """

    def __init__(self, agent: ValueAgent, noise: Literal["on", "off"], role: str) -> None:
        self.agent = agent
        self.noisy = agent.noisy is not None and noise == "on"
        self.network = view_with_own_noise(agent.online)
        self.stream = torch_stream(agent.config.seed, role, agent.device)
        self.explore = numpy_stream(agent.config.seed, role)
        exploration = agent.config.exploration
        self.epsilon = 0.0
        if isinstance(exploration, config.EpsilonGreedy):
            self.epsilon = exploration.evaluation

    def begin_episode(self) -> None:
        """An episode begins: nothing of the one before is remembered anyway."""

    def act(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        """Choose actions [N] for observations [N, stack, *frame]."""
        if self.epsilon == 0:
            return self._greedy(observation)
        count, actions = len(observation), self.agent.spec.num_actions
        return epsilon_greedy(
            lambda: self._greedy(observation), self.epsilon, count, actions, self.explore
        )

    def _greedy(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        if self.noisy:
            rows = len(observation) if len(observation) > 1 else None
            resample_noise(self.network, self.stream, rows)
        with self.agent._mean_unless(self.network, self.noisy):
            return greedy_actions(self.network, self.agent.to_device(observation))


@torch.no_grad()
def greedy_actions(values: Callable[[Tensor], Tensor], observation: Tensor) -> NDArray[np.int64]:
    """argmax_b Q(x, b) for each observation."""
    actions: NDArray[np.int64] = values(observation).argmax(dim=1).cpu().numpy()
    return actions


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _network_shape(settings: config.Config, spec: ObservationSpec) -> NetworkShape:
    exploration = settings.exploration
    noisy = exploration if isinstance(exploration, config.NoisyWeights) else None
    return NetworkShape(
        torso=_torso(settings.network.torso, spec.frame_shape),
        hidden=settings.network.hidden,
        dueling=settings.network.dueling,
        noise=noisy.noise if noisy else None,
        sigma0=noisy.sigma0 if noisy else None,
        learn_sigma=noisy.learn_sigma if noisy else True,
        trunk_gradient_scale=settings.network.trunk_gradient_scale,
        scale=spec.pixel_scale,
    )


def _torso(asked: config.Torso, frame_shape: tuple[int, ...]) -> TorsoKind:
    if asked != "auto":
        return asked  # type: ignore[return-value]
    if len(frame_shape) not in (2, 3) or min(frame_shape[-2:]) < 3:
        return "flat"
    return "nature" if min(frame_shape[-2:]) >= 36 else "minatar"


def _optimiser(
    settings: config.CentredRMSProp | config.Adam, network: nn.Module
) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if isinstance(settings, config.Adam):
        return torch.optim.Adam(
            parameters, lr=settings.learning_rate, eps=settings.epsilon, fused=True
        )
    return CentredRMSProp(parameters, settings.learning_rate, settings.decay, settings.epsilon)
