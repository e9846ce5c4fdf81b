"""A3C, plain and NoisyNet, feed-forward and recurrent: one actor-learner (Algorithm 2).

It acts through a roll-out and turns the roll-out into a gradient. Where the gradient goes, to
weights that many such actor-learners share, is the loop's affair.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet import config, losses
from noisynet.agents.exploration import sampled_actions
from noisynet.agents.policy import ActorCriticPolicy
from noisynet.agents.rollout import Rollout, RolloutLearnt
from noisynet.agents.streams import numpy_stream, torch_stream
from noisynet.agents.value import ObservationSpec
from noisynet.layers import build_weights, forget_weights, resample_noise
from noisynet.networks import (
    ActorCriticNetwork,
    ActorCriticNetworkShape,
    State,
    fitting_torso,
    flatten_parameters,
    views_of,
)
from noisynet.returns import n_step_returns


class ActorCriticAgent:
    """One worker: acts with one noise sample for each roll-out, and gives the roll-out's gradient.

    Args:
        settings: the run's configuration.
        spec: the environment's.
        device: where the network lives.
        worker: which of the run's workers it is; each has streams of its own, while the initial
            weights are the same for all.
        incarnation: how often this worker was started anew after its death; likewise.
        num_envs: how many environments it plays at once, None for the configured number.

    Attributes:
        parameters: every trainable parameter as one vector, of which those of `online` are views:
            what is copied into it is what acts and learns.
        gradient: of the last roll-out, likewise; `learn` leaves it here.
    """

    def __init__(
        self,
        settings: config.ActorCriticConfig,
        spec: ObservationSpec,
        device: torch.device | str = "cpu",
        *,
        worker: int = 0,
        incarnation: int = 0,
        num_envs: int | None = None,
    ) -> None:
        self.config, self.spec, self.device = settings, spec, torch.device(device)
        self.num_envs = settings.envs_per_worker if num_envs is None else num_envs
        exploration = settings.exploration
        self.noisy = exploration if isinstance(exploration, config.NoisyRollouts) else None
        self.online = _network(settings, spec).to(self.device)
        self.parameters = flatten_parameters(self.online)
        self.gradient = torch.zeros_like(self.parameters)
        self._trained = [p for p in self.online.parameters() if p.requires_grad]
        self._gradients = views_of(self.gradient, self.online)
        role = f"{worker}.{incarnation}"
        self.streams = {"rollout": torch_stream(settings.seed, f"rollout {role}", device)}
        self.explore = numpy_stream(settings.seed, f"explore {role}")
        self._before_draw = self.streams["rollout"].get_state()  # of the sample that is held
        self._drawn = False  # whether a roll-out's noise is held
        self._built = False  # whether the weights of the roll-out are built
        self._memory: State | None = None  # of the LSTM
        self._memory_at_begin: State | None = None  # of the roll-out
        if settings.recurrent:
            shape = (self.num_envs, settings.network.cells)
            blank = (torch.zeros(shape, device=device), torch.zeros(shape, device=device))
            self._memory = self._memory_at_begin = blank

    # --- act -------------------------------------------------------------------------------------

    def begin_rollout(self) -> None:
        """Choose the noise ξ that is held until the next roll-out begins (Algorithm 2).

        Each of several environments has a sample of its own. Weights are to be brought up to date
        before.
        """
        self._built = False  # the weights may be others now
        if self.noisy:
            self._before_draw = self.streams["rollout"].get_state()
            self._draw()
        self._memory_at_begin = self._memory

    def _draw(self) -> None:
        rows = self.num_envs if self.num_envs > 1 else None
        resample_noise(self.online, self.streams["rollout"], rows)  # ξ ~ ε
        self._drawn, self._built = True, False

    def act(
        self, observation: NDArray[Any], begins: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Sample actions [N] from π(·|x; ζ, ξ) for observations [N, stack, *frame].

        Args:
            observation: what to act on.
            begins: where an episode begins with it, so that nothing is remembered [N].
        """
        self._build_weights()
        if self._memory is not None and begins is not None and begins.any():
            self._memory = _blanked(self._memory, self.to_device(begins))
        with torch.no_grad():
            preference, _, self._memory = self.online(self.to_device(observation), self._memory)
        return sampled_actions(preference.cpu().numpy(), self.explore)

    def _build_weights(self) -> None:
        """Build μ + σ⊙ξ, once for a roll-out."""
        if self.noisy and not self._built:
            build_weights(self.online)
            self._built = True

    # --- learn -----------------------------------------------------------------------------------

    def learn(self, rollout: Rollout) -> RolloutLearnt:
        """Leave the gradient of a roll-out's loss in `gradient`; no weight changes.

        Acting's ξ is used for everything: log-probabilities, values and the bootstrap (Eqs. 26 and
        27). The loss is summed over steps and averaged over environments.
        """
        self._build_weights()
        steps = len(rollout.action)
        action, reward = self.to_device(rollout.action), self.to_device(rollout.reward)
        # The state to bootstrap from is one row more, which costs less than a pass of its own.
        passed = steps + 1 if self.num_envs == 1 else steps
        features = self.online.features(self.to_device(rollout.observation[:passed]))
        features, memories = self._unrolled(features, rollout.begins)
        preference, value = self.online.heads(features)  # [T or T + 1, N, A], the same without A
        last_value = value[steps] if passed > steps else self._last_value(rollout, memories[-1])
        returns = self._returns(rollout, reward, last_value, memories)
        log_pi = losses.log_policy(preference[:steps])
        advantage = returns - value[:steps]  # Q̂ − V
        learning = self.config.learning
        policy_loss = losses.over_rollout(losses.policy_gradient(log_pi, action, advantage))
        value_loss = learning.value_weight * losses.over_rollout(losses.squared(advantage))
        entropy = losses.over_rollout(losses.entropy(log_pi))
        loss = policy_loss + value_loss
        if isinstance(self.config.exploration, config.EntropyBonus):
            loss = loss - self.config.exploration.beta * entropy
        gradients = torch.autograd.grad(loss, self._trained)
        for place, gradient in zip(self._gradients, gradients, strict=True):
            place.copy_(gradient)
        self._forget_weights()  # they are about to change
        norm = self._clip()
        parts = [float(part.detach()) for part in (loss, policy_loss, value_loss, entropy)]
        finite = math.isfinite(norm) and math.isfinite(parts[0])
        if not finite and self._memory is not None:
            self._memory = _mended(self._memory)
        return RolloutLearnt(
            loss=parts[0],
            policy_loss=parts[1],
            value_loss=parts[2],
            entropy=parts[3] / steps,
            gradient_norm=norm,
            finite=finite,
        )

    def _unrolled(
        self, features: Tensor, begins: NDArray[np.bool_]
    ) -> tuple[Tensor, list[State | None]]:
        """Through the LSTM, if there is one: outputs [T, N, F], and its state after each step."""
        memory = self._memory_at_begin
        if memory is None:
            return features, [None] * len(features)
        outputs, memories = [], []
        for t, of_step in enumerate(features):
            if begins[t].any():
                memory = _blanked(memory, self.to_device(begins[t]))
            output, memory = self.online.remember(of_step, memory)
            assert memory is not None
            outputs.append(output)
            memories.append(memory)
        return torch.stack(outputs), list(memories)

    @torch.no_grad()
    def _last_value(self, rollout: Rollout, memory: State | None) -> Tensor:
        """V [N] of the states after the last step, with the noise of the roll-out."""
        if memory is not None and rollout.begins[-1].any():
            memory = _blanked(memory, self.to_device(rollout.begins[-1]))
        value: Tensor
        _, value, _ = self.online(self.to_device(rollout.observation[-1]), memory)
        return value

    @torch.no_grad()
    def _returns(
        self, rollout: Rollout, reward: Tensor, last_value: Tensor, memories: list[State | None]
    ) -> Tensor:
        """Q̂ [T, N], bootstrapped with the noise and the memory of the roll-out."""
        discount = self.to_device(rollout.discount)
        if not rollout.final:
            return n_step_returns(reward, discount, last_value)
        cut, cut_value = self.to_device(rollout.cut), torch.zeros_like(reward)
        for t, observation in rollout.final.items():
            _, cut_value[t], _ = self.online(self.to_device(observation), memories[t])
        return n_step_returns(reward, discount, last_value, cut, cut_value)

    def _clip(self) -> float:
        """The norm of the gradient, which is then no longer than it may be."""
        norm = float(torch.linalg.vector_norm(self.gradient))
        longest = self.config.learning.max_gradient_norm
        if longest is not None and norm > longest:
            self.gradient.mul_(longest / norm)
        return norm

    def evaluation_policy(self, noise: Literal["on", "off"], role: str) -> ActorCriticPolicy:
        """Who plays an evaluation with the latest weights; `role` names its random streams."""
        return ActorCriticPolicy(self, noise, role)

    # --- state -----------------------------------------------------------------------------------

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """The array as a tensor where the network is."""
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.to(self.device)

    def _forget_weights(self) -> None:
        if self.noisy:
            forget_weights(self.online)
        self._built = False

    def weights(self) -> dict[str, Tensor]:
        """The weights by name, as `load_weights` takes them."""
        return {f"online.{name}": value for name, value in self.online.state_dict().items()}

    def load_weights(self, tensors: dict[str, Tensor], prefix: str = "") -> None:
        """Take weights; the names begin with `prefix`."""
        prefix = f"{prefix}online."
        self.online.load_state_dict(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )
        self._forget_weights()

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on, but for the weights, which are shared."""
        named = {"stream.rollout": self._before_draw}  # what was drawn can be drawn again
        for name, memory in (("now", self._memory), ("begin", self._memory_at_begin)):
            if memory is not None:
                named |= {f"memory.{name}.hidden": memory[0], f"memory.{name}.cell": memory[1]}
        return named

    def state(self) -> dict[str, Any]:
        """The rest of the state, JSON-able."""
        return {"drawn": self._drawn, "explore": self.explore.bit_generator.state}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Take back what `tensors` and `state` gave, in the midst of a roll-out too."""
        self._before_draw = tensors["stream.rollout"]
        self.streams["rollout"].set_state(self._before_draw)
        self._drawn = False
        if state["drawn"]:
            self._draw()
        if self._memory is not None:
            self._memory, self._memory_at_begin = (
                (
                    tensors[f"memory.{name}.hidden"].to(self.device),
                    tensors[f"memory.{name}.cell"].to(self.device),
                )
                for name in ("now", "begin")
            )
        self.explore.bit_generator.state = state["explore"]


def _network(settings: config.ActorCriticConfig, spec: ObservationSpec) -> ActorCriticNetwork:
    """The network with its initial weights, which derive from the seed alone."""
    generator = torch_stream(settings.seed, "init noisy")
    with torch.random.fork_rng(devices=[]):  # plain layers initialise from the global stream
        torch.manual_seed(torch_stream(settings.seed, "init").initial_seed())
        shape, observation = _network_shape(settings, spec), (spec.stack, *spec.frame_shape)
        return ActorCriticNetwork(shape, observation, spec.num_actions, generator)


def _network_shape(
    settings: config.ActorCriticConfig, spec: ObservationSpec
) -> ActorCriticNetworkShape:
    exploration, network = settings.exploration, settings.network
    noisy = exploration if isinstance(exploration, config.NoisyRollouts) else None
    torso = network.torso
    if torso == "auto":
        torso = fitting_torso(spec.frame_shape, "nature")
    assert network.hidden is not None, "the configuration has filled it in"
    return ActorCriticNetworkShape(
        torso=torso,  # type: ignore[arg-type]
        hidden=network.hidden,
        cells=network.cells if settings.recurrent else None,
        noise=noisy.noise if noisy else None,
        noisy=noisy.layers if noisy else "all",
        noisy_lstm=settings.noisy_lstm,
        sigma0=noisy.sigma0 if noisy else None,
        learn_sigma=noisy.learn_sigma if noisy else True,
        scale=spec.pixel_scale,
    )


def _mended(memory: State) -> State:
    """Nothing remembered where what is remembered is of no use: one bad observation is enough."""
    useless = ~(memory[0] + memory[1]).isfinite().all(dim=1)
    return _blanked(memory, useless)


def _blanked(memory: State, begins: Tensor) -> State:
    """Nothing remembered where an episode begins [N]."""
    hidden, cell = memory
    return hidden.masked_fill(begins[:, None], 0), cell.masked_fill(begins[:, None], 0)
