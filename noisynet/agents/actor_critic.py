"""A3C, plain and NoisyNet, feed-forward and recurrent: one actor-learner (Algorithm 2).

It acts through a roll-out and computes the gradient of its loss. The loop applies the gradient to
weights that many such actor-learners share.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet import config, losses
from noisynet.agents.compute import resolve_compute, use_kernels
from noisynet.agents.exploration import sampled_actions
from noisynet.agents.policy import ActorCriticPolicy
from noisynet.agents.rollout import Rollout, RolloutLearnt
from noisynet.agents.streams import numpy_stream, torch_stream
from noisynet.agents.update import ObservationSpec
from noisynet.layers import noise_off, noisy_layers, resample_noise
from noisynet.networks import (
    ActorCriticNetwork,
    ActorCriticNetworkShape,
    LSTMState,
    flatten_parameters,
    resolve_torso,
    views_of,
)
from noisynet.returns import n_step_returns
from noisynet.state_dicts import add_prefix, strip_prefix


class ActorCriticAgent:
    """One worker: acts with one noise sample per roll-out and computes the roll-out's gradient.

    Args:
        settings: the run's configuration.
        spec: the environment's specification.
        device: device of the network.
        worker: which of the run's workers it is; each has random streams of its own, while the
            initial weights are the same for all.
        incarnation: how often this worker was restarted after a death; each has its own streams.
        num_envs: how many environments it plays at once, None for the configured number.

    Attributes:
        compute: `"kernels"` or `"torch"`.
        parameters: every trainable parameter as one vector, of which those of `online` are views.
        gradient: of the last roll-out, in the layout of `parameters`; `learn` writes it. It is the
            sum over environments divided by `gradient_scale`.
        gradient_scale: √N for N environments. Gradients of different environments are nearly
            independent, so that `gradient` is as large as that of a single environment, and √N
            times the learning rate makes one update move the weights as far as N updates would.
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
        self.compute = resolve_compute(settings.compute, self.device)
        self.online = _network(settings, spec).to(self.device)
        if self.compute == "kernels":
            use_kernels(self.online)
        self._noisy_layers = [*noisy_layers(self.online).values()]
        self._trained = [p for p in self.online.parameters() if p.requires_grad]
        self.parameters = flatten_parameters(self._trained)
        self.gradient = torch.zeros_like(self.parameters)
        self.gradient_scale = math.sqrt(self.num_envs)
        self._gradients = views_of(self.gradient, self._trained)
        # Multiplies a mean over N environments: their sum, divided by √N.
        self._scale = torch.tensor(self.gradient_scale, device=self.device)
        role = f"{worker}.{incarnation}"
        self.streams = {"rollout": torch_stream(settings.seed, f"rollout {role}", device)}
        self.explore = numpy_stream(settings.seed, f"explore {role}")
        self._before_draw = self.streams["rollout"].get_state()  # of the sample that is held
        self._drawn = False  # whether a roll-out's noise is held
        self._cached = False  # whether the weights of the roll-out are cached
        self._lstm_state: LSTMState | None = None
        self._lstm_state_at_begin: LSTMState | None = None  # of the roll-out
        if settings.recurrent:
            shape = (self.num_envs, settings.network.cells)
            blank = (torch.zeros(shape, device=device), torch.zeros(shape, device=device))
            self._lstm_state = self._lstm_state_at_begin = blank

    # --- act -------------------------------------------------------------------------------------

    def begin_rollout(self) -> None:
        """Draw the noise ξ that is held until the next roll-out begins (Algorithm 2).

        Each of several environments has a sample of its own. Update the weights before.
        """
        self._cached = False  # the weights may have changed
        if self.noisy:
            self._before_draw = self.streams["rollout"].get_state()
            self._draw()
        self._lstm_state_at_begin = self._lstm_state

    def _draw(self) -> None:
        rows = self.num_envs if self.num_envs > 1 else None
        resample_noise(self.online, self.streams["rollout"], rows)  # ξ ~ ε
        self._drawn, self._cached = True, False

    def act(
        self, observation: NDArray[Any], begins: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Sample actions [N] from π(·|x; ζ, ξ) for observations [N, stack, *frame].

        Args:
            observation: the observations.
            begins: where an episode begins, so that the LSTM starts from zeros [N].
        """
        self._cache_weights()
        if self._lstm_state is not None and begins is not None and begins.any():
            self._lstm_state = _reset(self._lstm_state, self.to_device(begins))
        with torch.no_grad(), self._noise_in("acting"):
            logits, _, self._lstm_state = self.online(self.to_device(observation), self._lstm_state)
        return sampled_actions(logits.cpu().numpy(), self.explore)

    def _noise_in(self, use: Literal["acting", "learning"]) -> AbstractContextManager[None]:
        """Switches noise off where it is not used: the controls of `exploration.used_in`."""
        used = self.noisy is None or use in self.noisy.used_in
        return nullcontext() if used else noise_off(self.online)

    def _cache_weights(self) -> None:
        """Compute μ + σ⊙ξ once for a roll-out."""
        if self.noisy and not self._cached:
            for layer in self._noisy_layers:
                layer.cache_weights()
            self._cached = True

    # --- learn -----------------------------------------------------------------------------------

    def learn(self, rollout: Rollout) -> RolloutLearnt:
        """Compute the gradient of a roll-out's loss into `gradient`; no weight changes.

        The ξ of the actions is used for log-probabilities, values and the bootstrap value, too
        (Eqs. 26, 27). The loss is summed over steps and averaged over environments; the gradient is
        √N times that of this mean, see `gradient_scale`.
        """
        with self._noise_in("learning"):
            return self._learn(rollout)

    def _learn(self, rollout: Rollout) -> RolloutLearnt:
        self._cache_weights()
        steps = len(rollout.action)
        action, reward = self.to_device(rollout.action), self.to_device(rollout.reward)
        # The bootstrap state is one more row of the batch, cheaper than a pass of its own.
        passed = steps + 1 if self.num_envs == 1 else steps
        features = self.online.features(self.to_device(rollout.observation[:passed]))
        features, states = self._unrolled(features, rollout.begins)
        logits, value = self.online.heads(features)  # [T or T + 1, N, A], the same without A
        bootstrap = value[steps] if passed > steps else self._bootstrap(rollout, states[-1])
        returns = self._returns(rollout, reward, bootstrap, states)
        log_pi = losses.log_policy(logits[:steps])
        advantage = returns - value[:steps]  # Q̂ − V
        learning = self.config.learning
        policy_loss = losses.over_rollout(losses.policy_gradient(log_pi, action, advantage))
        value_loss = learning.value_weight * losses.over_rollout(losses.squared(advantage))
        entropy = losses.over_rollout(losses.entropy(log_pi))
        loss = policy_loss + value_loss
        if isinstance(self.config.exploration, config.EntropyBonus):
            loss = loss - self.config.exploration.beta * entropy
        gradients = torch.autograd.grad(loss, self._trained, self._scale)
        for view, gradient in zip(self._gradients, gradients, strict=True):
            view.copy_(gradient)
        self._drop_cached_weights()  # the parameters are about to change
        norm = self._clip()
        terms = torch.stack((loss, policy_loss, value_loss, entropy)).tolist()
        finite = math.isfinite(norm) and math.isfinite(terms[0])
        if not finite and self._lstm_state is not None:
            self._lstm_state = _finite(self._lstm_state)
        return RolloutLearnt(
            loss=terms[0],
            policy_loss=terms[1],
            value_loss=terms[2],
            entropy=terms[3] / steps,
            gradient_norm=norm,
            finite=finite,
        )

    def _unrolled(
        self, features: Tensor, begins: NDArray[np.bool_]
    ) -> tuple[Tensor, list[LSTMState | None]]:
        """Through the LSTM, if there is one: outputs [T, N, F], and its state after each step."""
        state = self._lstm_state_at_begin
        if state is None:
            return features, [None] * len(features)
        outputs, states = [], []
        for t, of_step in enumerate(features):
            if begins[t].any():
                state = _reset(state, self.to_device(begins[t]))
            output, state = self.online.step_lstm(of_step, state)
            assert state is not None
            outputs.append(output)
            states.append(state)
        return torch.stack(outputs), list(states)

    @torch.no_grad()
    def _bootstrap(self, rollout: Rollout, state: LSTMState | None) -> Tensor:
        """V [N] of the states after the last step, with the noise of the roll-out."""
        if state is not None and rollout.begins[-1].any():
            state = _reset(state, self.to_device(rollout.begins[-1]))
        value: Tensor
        _, value, _ = self.online(self.to_device(rollout.observation[-1]), state)
        return value

    @torch.no_grad()
    def _returns(
        self, rollout: Rollout, reward: Tensor, bootstrap: Tensor, states: list[LSTMState | None]
    ) -> Tensor:
        """Q̂ [T, N], bootstrapped with the noise and the LSTM states of the roll-out."""
        discount = self.to_device(rollout.discount)
        if not rollout.final:
            return n_step_returns(reward, discount, bootstrap)
        truncated, truncated_value = self.to_device(rollout.cut), torch.zeros_like(reward)
        for t, observation in rollout.final.items():
            _, truncated_value[t], _ = self.online(self.to_device(observation), states[t])
        return n_step_returns(reward, discount, bootstrap, truncated, truncated_value)

    def _clip(self) -> float:
        """Clip the gradient to the longest norm allowed; return its norm before."""
        norm = float(torch.linalg.vector_norm(self.gradient))
        longest = self.config.learning.max_gradient_norm
        if longest is not None and norm > longest:
            self.gradient.mul_(longest / norm)
        return norm

    def evaluation_policy(self, noise: Literal["on", "off"], role: str) -> ActorCriticPolicy:
        """A policy that plays an evaluation with the latest weights; `role` names its streams."""
        return ActorCriticPolicy(self, noise, role)

    # --- state -----------------------------------------------------------------------------------

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """The array as a tensor on the network's device."""
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.to(self.device)

    def _drop_cached_weights(self) -> None:
        for layer in self._noisy_layers:
            layer.drop_cached_weights()
        self._cached = False

    def weights(self) -> dict[str, Tensor]:
        """The weights by name, as `load_weights` expects them."""
        return add_prefix("online.", self.online.state_dict())

    def load_weights(self, tensors: dict[str, Tensor], prefix: str = "") -> None:
        """Load weights; the names begin with `prefix`."""
        self.online.load_state_dict(strip_prefix(f"{prefix}online.", tensors))
        self._drop_cached_weights()

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on, except the weights, which are shared."""
        named = {"stream.rollout": self._before_draw}  # the held sample is redrawn from it
        for name, state in (("now", self._lstm_state), ("begin", self._lstm_state_at_begin)):
            if state is not None:
                named |= {f"lstm.{name}.hidden": state[0], f"lstm.{name}.cell": state[1]}
        return named

    def state(self) -> dict[str, Any]:
        """The rest of the state, JSON-able."""
        return {"drawn": self._drawn, "explore": self.explore.bit_generator.state}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Restore what `tensors` and `state` returned, within a roll-out too."""
        self._before_draw = tensors["stream.rollout"]
        self.streams["rollout"].set_state(self._before_draw)
        self._drawn = False
        if state["drawn"]:
            self._draw()
        if self._lstm_state is not None:
            self._lstm_state, self._lstm_state_at_begin = (
                (
                    tensors[f"lstm.{name}.hidden"].to(self.device),
                    tensors[f"lstm.{name}.cell"].to(self.device),
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
    assert network.hidden is not None, "the configuration has filled it in"
    return ActorCriticNetworkShape(
        convolutions=resolve_torso(network.torso, spec.frame_shape),
        hidden=network.hidden,
        cells=network.cells if settings.recurrent else None,
        noise=noisy.noise if noisy else None,
        noisy=noisy.layers if noisy else "all",
        noisy_lstm=settings.noisy_lstm,
        sigma0=noisy.sigma0 if noisy else None,
        # A loss of mean weights gives σ no gradient.
        learn_sigma=noisy.learn_sigma and "learning" in noisy.used_in if noisy else True,
        scale=spec.pixel_scale,
        distribution=noisy.distribution if noisy else "gaussian",
        f=noisy.f if noisy else "signed_sqrt",
        initial_weights=network.initial_weights,
        centre_images=network.centre_images,
    )


def _finite(state: LSTMState) -> LSTMState:
    """Zero the state of environments where it is not finite: one bad observation suffices."""
    bad = ~(state[0] + state[1]).isfinite().all(dim=1)
    return _reset(state, bad)


def _reset(state: LSTMState, where: Tensor) -> LSTMState:
    """Zero the state of these environments [N]."""
    hidden, cell = state
    return hidden.masked_fill(where[:, None], 0), cell.masked_fill(where[:, None], 0)
