"""The settings that every run has."""

from __future__ import annotations

import pytest

from noisynet.config import AGENTS, build_config, has_large_convolutions

from .settings import ENVIRONMENTS


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", ENVIRONMENTS.values())
def test_how_a_run_is_computed_is_left_open_unless_given(agent: str, name: str) -> None:
    config = build_config(agent, name)
    assert (config.compute, config.threads) == ("auto", None)
    config = build_config(agent, name, settings=["compute=torch", "threads=4"])
    assert (config.compute, config.threads) == ("torch", 4)


@pytest.mark.parametrize(
    ("name", "torso", "large"),
    [
        ("atari/pong", "auto", True),
        ("atari/pong", "flat", False),
        ("minatar/breakout", "auto", False),
        ("minatar/breakout", "nature", True),
        ("deep_sea/10", "auto", False),
        ("gym/CartPole-v1", "auto", False),
        ("gym/CarRacing-v3", "a3c", True),
        ("gym/CarRacing-v3", "[[16, 8, 4, 0]]", True),
        ("gym/CarRacing-v3", "minatar", False),
    ],
)
@pytest.mark.parametrize("agent", ["dqn", "a3c"])
def test_convolutions_are_large_by_torso_and_family(
    agent: str, name: str, torso: str, large: bool
) -> None:
    config = build_config(agent, name, settings=[f"network.torso={torso}"])
    assert has_large_convolutions(config) == large
