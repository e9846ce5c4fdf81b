"""The table of agents."""

from __future__ import annotations

from typing import get_args

import pytest

from noisynet.config import (
    ACTOR_CRITIC_AGENTS,
    AGENT_SPECS,
    AGENTS,
    VALUE_AGENTS,
    ActorCriticAgentName,
    AgentSpec,
    ValueAgentName,
)


def test_the_types_name_the_agents_of_the_table() -> None:
    assert get_args(ValueAgentName) == VALUE_AGENTS
    assert get_args(ActorCriticAgentName) == ACTOR_CRITIC_AGENTS
    assert AGENTS == VALUE_AGENTS + ACTOR_CRITIC_AGENTS


@pytest.mark.parametrize("spec", AGENT_SPECS.values(), ids=lambda spec: spec.name)
def test_a_name_says_what_the_agent_is(spec: AgentSpec) -> None:
    assert AGENT_SPECS[spec.name] is spec
    assert spec.noisy == spec.name.startswith("noisynet-")
    assert spec.dueling == spec.name.endswith("dueling")
    assert (spec.family == "actor-critic") == ("a3c" in spec.name)


@pytest.mark.parametrize(
    ("name", "noise", "other"),
    [
        ("noisynet-a3c", "factorised", "noisynet-a3c-factorised"),
        ("noisynet-a3c-factorised", "independent", "noisynet-a3c"),
        ("noisynet-a3c", "independent", "noisynet-a3c"),
        ("noisynet-dqn", "independent", None),
        ("noisynet-dueling", "factorised", "noisynet-dueling"),
    ],
)
def test_the_agent_with_another_kind_of_noise(name: str, noise: str, other: str | None) -> None:
    found = AGENT_SPECS[name].with_noise(noise)
    assert (found.name if found else None) == other
