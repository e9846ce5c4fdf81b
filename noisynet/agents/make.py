"""From a configuration to its agent."""

from __future__ import annotations

import torch

from noisynet.agents.actor_critic import ActorCriticAgent
from noisynet.agents.update import ObservationSpec
from noisynet.agents.value import ValueAgent
from noisynet.config import ActorCriticConfig, Config

Agent = ValueAgent | ActorCriticAgent
"""Either kind of agent."""


def make_agent(
    config: Config | ActorCriticConfig,
    spec: ObservationSpec,
    device: torch.device | str = "cpu",
) -> Agent:
    """The agent that a configuration describes, untrained."""
    if isinstance(config, ActorCriticConfig):
        return ActorCriticAgent(config, spec, device)
    return ValueAgent(config, spec, device)
