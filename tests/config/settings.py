"""What the tests of configurations share."""

from __future__ import annotations

from typing import Any, Final

import pytest

from noisynet.config import ConfigError, RunConfig, build_config

ENVIRONMENTS: Final = {
    "atari": "atari/pong",
    "minatar": "minatar/breakout",
    "deep_sea": "deep_sea/10",
    "gym": "gym/CartPole-v1",
    "object": "object/MyEnv",
    "function": "function/make_env",
}
"""One environment of each family."""


def value_of(config: RunConfig, key: str) -> Any:
    """The setting at a dotted key."""
    found: Any = config
    for name in key.split("."):
        found = getattr(found, name)
    return found


def refusal(*arguments: Any, **keywords: Any) -> list[str]:
    """The lines of the error that these arguments of `build_config` raise."""
    with pytest.raises(ConfigError) as caught:
        build_config(*arguments, **keywords)
    return str(caught.value).splitlines()
