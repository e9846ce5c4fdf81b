"""From a configuration to its agent."""

from __future__ import annotations

import pytest
import torch

from noisynet.agents import ActorCriticAgent, ValueAgent, make_agent
from noisynet.config import (
    ACTOR_CRITIC_AGENTS,
    AGENT_SPECS,
    AGENTS,
    VALUE_AGENTS,
    build_config,
)

from .synthetic import FLAT


@pytest.mark.parametrize("name", AGENTS)
def test_every_configuration_makes_its_kind_of_agent(name: str) -> None:
    config = build_config(name, FLAT.name, settings=["network.hidden=[8]"])
    agent = make_agent(config, FLAT)
    assert isinstance(agent, ActorCriticAgent) == (name in ACTOR_CRITIC_AGENTS)
    assert isinstance(agent, ValueAgent) == (name in VALUE_AGENTS)
    assert agent.config is config
    assert (agent.noisy is not None) == AGENT_SPECS[name].noisy
    assert agent.device == torch.device("cpu")
