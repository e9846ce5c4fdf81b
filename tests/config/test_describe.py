"""Every setting has a value, a source and a meaning."""

from __future__ import annotations

import pytest

from noisynet.config import AGENTS, build_config
from noisynet.config.describe import describe_settings
from noisynet.config.run import flat_settings


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("environment", ["atari/pong", "gym/CartPole-v1"])
def test_every_setting_is_described_in_a_sentence(agent: str, environment: str) -> None:
    found = describe_settings(agent, environment)
    config = build_config(agent, environment)
    assert [setting.key for setting in found] == list(flat_settings(dict(config)))
    for setting in found:
        assert setting.meaning.endswith("."), setting
        assert setting.meaning.count("(") == setting.meaning.count(")"), setting


def test_the_source_is_the_last_that_set_the_value() -> None:
    sources = {
        setting.key: setting.source for setting in describe_settings("dueling", "atari/pong")
    }
    assert sources["agent"] == "command"
    assert sources["learning.max_gradient_norm"] == "agent"
    assert sources["frames"] == "preset paper"
    assert sources["learning.discount"] == "paper"
    assert sources["num_envs"] == "default"
    fast = {s.key: s.source for s in describe_settings("dueling", "atari/pong", preset="pong-fast")}
    # Another kind of optimiser drops what the agent has set for its own.
    assert (fast["optimiser.kind"], fast["optimiser.epsilon"]) == ("preset pong-fast", "paper")
