"""Who plays the evaluations of an actor-critic agent."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from noisynet.agents.exploration import sampled_actions
from noisynet.agents.streams import numpy_stream, torch_stream
from noisynet.layers import noise_off, resample_noise
from noisynet.networks import State, view_with_own_noise

if TYPE_CHECKING:
    from noisynet.agents.actor_critic import ActorCriticAgent


class ActorCriticPolicy:
    """The latest agent, playing with noise, memory and streams of its own.

    Args:
        agent: whose weights to play with; it is left as it is.
        noise: whether a noisy agent plays with noise, redrawn at every action.
        role: names the random streams, so that every evaluation has its own.
    """

    def __init__(self, agent: ActorCriticAgent, noise: Literal["on", "off"], role: str) -> None:
        self.agent = agent
        self.noisy = agent.noisy is not None and noise == "on"
        self.network = view_with_own_noise(agent.online)
        self.stream = torch_stream(agent.config.seed, role, agent.device)
        self.explore = numpy_stream(agent.config.seed, role)
        self._memory: State | None = None

    def begin_episode(self) -> None:
        """An episode begins: nothing of the one before is remembered."""
        self._memory = None

    @torch.no_grad()
    def act(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        """Sample actions [N] from π for observations [N, stack, *frame]."""
        silent: AbstractContextManager[None] = nullcontext()
        if self.noisy:
            rows = len(observation) if len(observation) > 1 else None
            resample_noise(self.network, self.stream, rows)
        elif self.agent.noisy:
            silent = noise_off(self.network)
        with silent:
            observed = self.agent.to_device(observation)
            preference, _, self._memory = self.network(observed, self._memory)
        return sampled_actions(preference.cpu().numpy(), self.explore)
