"""Policies that play evaluations, with noise, memory and random streams of their own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet import config
from noisynet.agents.exploration import epsilon_greedy, sampled_actions
from noisynet.agents.streams import numpy_stream, torch_stream
from noisynet.layers import noise_off, resample_noise
from noisynet.networks import LSTMState, view_with_own_noise

if TYPE_CHECKING:
    from noisynet.agents.actor_critic import ActorCriticAgent
    from noisynet.agents.value import ValueAgent


class EvaluationPolicy:
    """The latest weights of an agent, which is left as it is.

    Args:
        agent: whose weights to play with.
        noise: whether a noisy agent plays with noise, redrawn at every action.
        role: names the random streams, so that every evaluation has its own.
    """

    def __init__(
        self, agent: ValueAgent | ActorCriticAgent, noise: Literal["on", "off"], role: str
    ) -> None:
        self.agent = agent
        self.noisy = agent.noisy is not None and noise == "on"
        self.network: Any = view_with_own_noise(agent.online)
        self.stream = torch_stream(agent.config.seed, role, agent.device)
        self.explore = numpy_stream(agent.config.seed, role)

    def begin_episode(self) -> None:
        """An episode begins."""

    def resampled(self, rows: int) -> AbstractContextManager[None]:
        """Redraw the noise for so many environments, or switch it off in the context returned."""
        if self.noisy:
            resample_noise(self.network, self.stream, rows)
        return nullcontext() if self.noisy or self.agent.noisy is None else noise_off(self.network)


class ValuePolicy(EvaluationPolicy):
    """Greedy or ε-greedy in Q."""

    @torch.no_grad()
    def act(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        """Choose actions [N] for observations [N, stack, *frame]."""
        exploration, count = self.agent.config.exploration, len(observation)
        epsilon = 0.0
        if isinstance(exploration, config.EpsilonGreedy):
            epsilon = exploration.evaluation

        def greedy() -> NDArray[np.int64]:
            with self.resampled(count):
                q: Tensor = self.network(self.agent.to_device(observation))
            actions: NDArray[np.int64] = q.argmax(dim=1).cpu().numpy()
            return actions

        if epsilon == 0:
            return greedy()
        actions = self.agent.spec.num_actions
        return epsilon_greedy(greedy, epsilon, count, actions, self.explore)


class ActorCriticPolicy(EvaluationPolicy):
    """Samples from π, and carries the state of an LSTM through an episode."""

    _lstm_state: LSTMState | None = None

    def begin_episode(self) -> None:
        """An episode begins: the LSTM starts from zeros."""
        self._lstm_state = None

    @torch.no_grad()
    def act(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        """Sample actions [N] from π for observations [N, stack, *frame]."""
        with self.resampled(len(observation)):
            observed = self.agent.to_device(observation)
            logits, _, self._lstm_state = self.network(observed, self._lstm_state)
        return sampled_actions(logits.cpu().numpy(), self.explore)
