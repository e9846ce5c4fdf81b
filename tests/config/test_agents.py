"""The table of agents."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from noisynet.config import ACTOR_CRITIC_AGENTS, AGENT_SPECS, AGENTS, VALUE_AGENTS, AgentSpec
from noisynet.config.agents import ActorCriticAgentName, ValueAgentName


def test_the_types_name_the_agents_of_the_table() -> None:
    assert get_args(ValueAgentName) == VALUE_AGENTS
    assert get_args(ActorCriticAgentName) == ACTOR_CRITIC_AGENTS
    assert AGENTS == VALUE_AGENTS + ACTOR_CRITIC_AGENTS


@pytest.mark.parametrize("spec", AGENT_SPECS.values(), ids=lambda spec: spec.name)
def test_a_name_says_what_the_agent_is(spec: AgentSpec) -> None:
    assert AGENT_SPECS[spec.name] is spec
    assert spec.noisy == (spec.name.startswith("noisynet-") or spec.name == "rainbow")
    assert (spec.family == "actor-critic") == ("a3c" in spec.name)
    if spec.name.startswith("rainbow"):
        assert spec.dueling is spec.categorical is None  # settings
    else:
        assert spec.dueling == spec.name.endswith("dueling")
        assert spec.categorical == spec.name.endswith("c51")


@pytest.mark.parametrize(
    ("name", "changes", "other"),
    [
        ("noisynet-a3c", {"noise": "factorised"}, "noisynet-a3c-factorised"),
        ("noisynet-a3c-factorised", {"noise": "independent"}, "noisynet-a3c"),
        ("noisynet-a3c", {"noise": "independent"}, "noisynet-a3c"),
        ("noisynet-dqn", {"noise": "independent"}, None),
        ("noisynet-dueling", {"noise": "factorised"}, "noisynet-dueling"),
        ("noisynet-dueling", {"dueling": False}, "noisynet-dqn"),
        ("dqn", {"noise": "factorised"}, "noisynet-dqn"),
        ("dqn", {"categorical": True}, "c51"),
        ("dueling", {"categorical": True}, None),
        ("rainbow", {"noise": None}, "rainbow-without-noise"),
        ("noisynet-c51", {"dueling": None, "categorical": None}, "rainbow"),
    ],
)
def test_the_agent_with_other_properties(
    name: str, changes: dict[str, Any], other: str | None
) -> None:
    found = AGENT_SPECS[name].changed(**changes)
    assert (found.name if found else None) == other
