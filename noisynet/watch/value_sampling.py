"""Q and its distribution, or π and V, of an agent's newest weights under many noise samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet.agents import ActorCriticAgent, Agent
from noisynet.agents.streams import torch_stream
from noisynet.layers import cache_weights, noise_off, resample_noise
from noisynet.networks import (
    ActorCriticNetwork,
    CategoricalNetwork,
    LSTMState,
    ValueNetwork,
    view_with_own_noise,
)
from noisynet.runs import Trace


@dataclass(frozen=True)
class SampledValues:
    """Values of T states with A actions; without noise all samples are equal.

    Attributes:
        mean_weights: Q of the mean weights, or π of an actor-critic agent [T, A].
        spread: minimum, lower quartile, mean, upper quartile and maximum over noise samples
            [T, A, 5].
        greedy_share: the fraction of samples in which each action has the highest Q or π [T, A].
        state_value: V of an actor-critic agent, summarised like `spread` [T, 5]; otherwise None.
        mean_state_value: V of the mean weights [T]; otherwise None.
        distribution: of the return of each action over N atoms, with the mean weights, of an agent
            that learns distributions [T, A, N]; otherwise None.
        mixture: the mean of that distribution over noise samples [T, A, N]; otherwise None.
    """

    mean_weights: NDArray[np.float64]
    spread: NDArray[np.float64]
    greedy_share: NDArray[np.float64]
    state_value: NDArray[np.float64] | None = None
    mean_state_value: NDArray[np.float64] | None = None
    distribution: NDArray[np.float64] | None = None
    mixture: NDArray[np.float64] | None = None

    @property
    def disagreement(self) -> NDArray[np.float64]:
        """The fraction of samples whose greedy action is not that of the mean weights [T]."""
        greedy = self.mean_weights.argmax(axis=1)
        share: NDArray[np.float64] = self.greedy_share[np.arange(len(greedy)), greedy]
        return 1.0 - share


class ValueSampler(ABC):
    """Samples the values of many states, with the same noise samples for all of them.

    Differences between states are then due to the states alone. The trace names the random stream,
    so that an episode always has the same samples. The agent is not changed.
    """

    def __init__(self, agent: Agent, trace: Trace, samples: int) -> None:
        self.agent, self.samples = agent, samples if agent.noisy else 1
        self.view = view_with_own_noise(agent.online)
        if agent.noisy:
            role = f"watch {trace.evaluation} {trace.noise} {trace.episode}"
            stream = torch_stream(agent.config.seed, role, agent.device)
            resample_noise(self.view, stream, rows=samples)
        self._batches: list[SampledValues] = []

    @torch.no_grad()
    def add(self, observations: NDArray[Any]) -> None:
        """Sample the values of the episode's next states [B, stack, *frame]."""
        self._batches.append(self._sample(self.agent.to_device(observations)))

    def values(self) -> SampledValues:
        """The values of all states so far."""
        columns: dict[str, Any] = {}
        for field in fields(SampledValues):
            batches = [getattr(batch, field.name) for batch in self._batches]
            columns[field.name] = None if batches[0] is None else np.concatenate(batches)
        return SampledValues(**columns)

    @abstractmethod
    def _sample(self, observations: Tensor) -> SampledValues:
        """The values of a batch of states."""


class QSampler(ValueSampler):
    """Samples Q of a value agent."""

    def _sample(self, observations: Tensor) -> SampledValues:
        mean_weights, q = self._outputs(observations)  # [B, A] and [B, S, A]
        sampled = _array(q)
        return SampledValues(_array(mean_weights), _spread(sampled), _greedy_share(sampled))

    def _outputs(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """The head's outputs with the mean weights [B, ...] and for each sample [B, S, ...]."""
        network = self.view
        assert isinstance(network, ValueNetwork)
        features = network.torso(observations)  # [B, F]
        if not self.agent.noisy:
            outputs = network.head(features)
            return outputs, outputs.unsqueeze(1)
        with noise_off(network):
            mean_weights = network.head(features)
        return mean_weights, network.head(features.unsqueeze(1).expand(-1, self.samples, -1))


class CategoricalSampler(QSampler):
    """Samples the distributions of a value agent that learns them, and Q, their means."""

    def _sample(self, observations: Tensor) -> SampledValues:
        network = self.view
        assert isinstance(network, CategoricalNetwork)
        logits = self._outputs(observations)  # [B, A, N] and [B, S, A, N]
        distribution, sampled = (_array(each.softmax(dim=-1)) for each in logits)
        atoms = _array(network.atoms)
        q = sampled @ atoms  # [B, S, A]
        return SampledValues(
            distribution @ atoms,
            _spread(q),
            _greedy_share(q),
            distribution=distribution,
            mixture=sampled.mean(axis=1),
        )


class PolicySampler(ValueSampler):
    """Samples π and V of an actor-critic agent. An LSTM has one state for each noise sample."""

    def __init__(self, agent: Agent, trace: Trace, samples: int) -> None:
        super().__init__(agent, trace, samples)
        if agent.noisy:
            cache_weights(self.view)
        self._sampled_state: LSTMState | None = None
        self._mean_state: LSTMState | None = None

    def _sample(self, observations: Tensor) -> SampledValues:
        network = self.view
        assert isinstance(network, ActorCriticNetwork)
        features = network.torso(observations)[:, None]  # [B, 1, F]
        if self.agent.noisy:
            with noise_off(network):
                mean_pi, mean_v, self._mean_state = _unroll(network, features, self._mean_state)
            rows = features.expand(-1, self.samples, -1)
            pi, v, self._sampled_state = _unroll(network, rows, self._sampled_state)
        else:
            pi, v, self._sampled_state = _unroll(network, features, self._sampled_state)
            mean_pi, mean_v = pi, v
        return SampledValues(
            mean_pi[:, 0],
            _spread(pi),
            _greedy_share(pi),
            _spread(v[..., None])[:, 0],
            mean_v[:, 0],
        )


def make_sampler(agent: Agent, trace: Trace, samples: int) -> ValueSampler:
    """The sampler for this kind of agent."""
    if isinstance(agent, ActorCriticAgent):
        return PolicySampler(agent, trace, samples)
    kind = CategoricalSampler if isinstance(agent.online, CategoricalNetwork) else QSampler
    return kind(agent, trace, samples)


def _unroll(
    network: ActorCriticNetwork, features: Tensor, state: LSTMState | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], LSTMState | None]:
    """π [B, S, A] and V [B, S] from the torso's features [B, S, F], step by step."""
    found: list[tuple[Tensor, Tensor]] = []
    for hidden in network.hidden(features):
        output, state = network.step_lstm(hidden, state)
        found.append(network.heads(output))
    logits, value = (torch.stack(column) for column in zip(*found, strict=True))
    return _array(logits.softmax(dim=-1)), _array(value), state


def _array(tensor: Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = tensor.double().cpu().numpy()
    return array


def _spread(sampled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimum, quartile, mean, quartile and maximum over samples [B, S, A]: [B, A, 5]."""
    low, lower, upper, high = np.quantile(sampled, (0, 0.25, 0.75, 1), axis=1)  # [B, A] each
    return np.stack([low, lower, sampled.mean(axis=1), upper, high], axis=2)


def _greedy_share(sampled: NDArray[np.float64]) -> NDArray[np.float64]:
    greedy = sampled.argmax(axis=2)[..., None] == np.arange(sampled.shape[2])  # [B, S, A]
    share: NDArray[np.float64] = greedy.mean(axis=1)
    return share
