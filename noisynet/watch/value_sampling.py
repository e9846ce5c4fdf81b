"""What an agent's newest weights make of states: Q, or π and V, under many draws of the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet.agents import ActorCriticAgent, Agent, ValueAgent
from noisynet.agents.streams import torch_stream
from noisynet.layers import cache_weights, noise_off, resample_noise
from noisynet.networks import ActorCriticNetwork, LSTMState, ValueNetwork, view_with_own_noise
from noisynet.runs import Trace


@dataclass(frozen=True)
class Values:
    """What the weights say of T states with A actions; without noise all draws are the same.

    Attributes:
        mean_weights: Q of the mean weights, or π of an actor-critic agent [T, A].
        draws: minimum, lower quartile, mean, upper quartile and maximum of it over the noise draws
            [T, A, 5].
        greedy_share: the fraction of draws for which each action has the highest Q or π [T, A].
        state_value: of an actor-critic agent V, over the draws as above [T, 5]; None otherwise.
        mean_state_value: V of the mean weights [T]; None otherwise.
    """

    mean_weights: NDArray[np.float64]
    draws: NDArray[np.float64]
    greedy_share: NDArray[np.float64]
    state_value: NDArray[np.float64] | None = None
    mean_state_value: NDArray[np.float64] | None = None

    @property
    def disagreement(self) -> NDArray[np.float64]:
        """The fraction of draws whose greedy action is not that of the mean weights [T]."""
        greedy = self.mean_weights.argmax(axis=1)
        share: NDArray[np.float64] = self.greedy_share[np.arange(len(greedy)), greedy]
        return 1.0 - share


def make_meter(agent: Agent, trace: Trace, samples: int) -> ValueMeter | PolicyMeter:
    """Who asks this agent."""
    if isinstance(agent, ActorCriticAgent):
        return PolicyMeter(agent, trace, samples)
    return ValueMeter(agent, trace, samples)


class ValueMeter:
    """Asks one agent for the values of many states, under the same noise draws for all of them.

    With the same draws, what changes from one state to the next is the state alone, not luck.

    Args:
        agent: whose weights; it is left as it is.
        trace: names the random stream, so that the same episode always looks the same.
        samples: how many draws of the noise.
    """

    def __init__(self, agent: ValueAgent, trace: Trace, samples: int) -> None:
        self.agent = agent
        self.samples = samples if agent.noisy else 1
        network = view_with_own_noise(agent.online)
        assert isinstance(network, ValueNetwork)
        self.network = network
        if agent.noisy:
            resample_noise(self.network, _stream(agent, trace), rows=samples)
        self._parts: list[Values] = []

    @torch.no_grad()
    def add(self, observations: NDArray[Any]) -> None:
        """Measure states [B, stack, *frame], after those before."""
        features = self.network.torso(self.agent.to_device(observations))  # [B, F]
        if self.agent.noisy:
            with noise_off(self.network):
                mean_weights = self.network.head(features)  # [B, A]
            rows = features.unsqueeze(1).expand(-1, self.samples, -1)
            q = self.network.head(rows)  # [B, S, A]
        else:
            mean_weights = self.network.head(features)
            q = mean_weights.unsqueeze(1)
        drawn = _array(q)
        self._parts.append(Values(_array(mean_weights), _spread(drawn), _greedy_share(drawn)))

    def values(self) -> Values:
        """What was measured so far."""
        return _joined(self._parts)


class PolicyMeter:
    """Asks one actor-critic agent for the policy and the value of an episode's states, in order.

    An LSTM remembers the episode, for each draw of the noise what that draw made of it.

    Args:
        agent: whose weights; it is left as it is.
        trace: names the random stream, so that the same episode always looks the same.
        samples: how many draws of the noise.
    """

    def __init__(self, agent: ActorCriticAgent, trace: Trace, samples: int) -> None:
        self.agent = agent
        self.samples = samples if agent.noisy else 1
        network = view_with_own_noise(agent.online)
        assert isinstance(network, ActorCriticNetwork)
        self.network = network
        if agent.noisy:
            resample_noise(network, _stream(agent, trace), rows=samples)
            cache_weights(network)
        self._drawn_memory: LSTMState | None = None
        self._mean_memory: LSTMState | None = None
        self._parts: list[Values] = []

    @torch.no_grad()
    def add(self, observations: NDArray[Any]) -> None:
        """Measure states [B, stack, *frame], after those before."""
        features = self.network.torso(self.agent.to_device(observations))[:, None]  # [B, 1, F]
        if self.agent.noisy:
            with noise_off(self.network):
                mean_pi, mean_v, self._mean_memory = self._measured(features, self._mean_memory)
            rows = features.expand(-1, self.samples, -1)
            pi, v, self._drawn_memory = self._measured(rows, self._drawn_memory)
        else:
            pi, v, self._drawn_memory = self._measured(features, self._drawn_memory)
            mean_pi, mean_v = pi, v
        self._parts.append(
            Values(
                mean_pi[:, 0],
                _spread(pi),
                _greedy_share(pi),
                _spread(v[..., None])[:, 0],
                mean_v[:, 0],
            )
        )

    def _measured(
        self, features: Tensor, memory: LSTMState | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], LSTMState | None]:
        """π [B, S, A] and V [B, S] from the torso's features [B, S, F]."""
        found: list[tuple[Tensor, Tensor]] = []
        for of_state in self.network.hidden(features):
            remembered, memory = self.network.step_lstm(of_state, memory)
            found.append(self.network.heads(remembered))
        preference, value = (torch.stack(part) for part in zip(*found, strict=True))
        return _array(preference.softmax(dim=-1)), _array(value), memory

    def values(self) -> Values:
        """What was measured so far."""
        return _joined(self._parts)


def _stream(agent: Agent, trace: Trace) -> torch.Generator:
    role = f"watch {trace.evaluation} {trace.noise} {trace.episode}"
    return torch_stream(agent.config.seed, role, agent.device)


def _array(tensor: Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = tensor.double().cpu().numpy()
    return array


def _spread(drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimum, lower quartile, mean, upper quartile and maximum over draws [B, S, A]: [B, A, 5]."""
    low, lower, upper, high = np.quantile(drawn, (0, 0.25, 0.75, 1), axis=1)  # [B, A] each
    return np.stack([low, lower, drawn.mean(axis=1), upper, high], axis=2)


def _greedy_share(drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    greedy = drawn.argmax(axis=2)[..., None] == np.arange(drawn.shape[2])  # [B, S, A]
    share: NDArray[np.float64] = greedy.mean(axis=1)
    return share


def _joined(parts: list[Values]) -> Values:
    """The parts one after the other."""

    def joined(name: str) -> Any:
        found = [getattr(part, name) for part in parts]
        return None if found[0] is None else np.concatenate(found)

    return Values(
        *map(
            joined,
            ("mean_weights", "draws", "greedy_share", "state_value", "mean_state_value"),
        )
    )
