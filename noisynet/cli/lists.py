"""Commands that say what there is: agents, envs and settings."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

import typer

from noisynet.cli.messages import fail, failing, show, show_table
from noisynet.cli.options import Agent, Environment, Preset
from noisynet.config import AGENT_SPECS, ConfigError
from noisynet.envs.names import FAMILIES, suggestion


def agents() -> None:
    """List the agents: what they learn, and how they explore."""
    rows = [(spec.name, spec.learns, spec.explores_by) for spec in AGENT_SPECS.values()]
    show_table(("agent", "learns", "explores by"), rows)


def envs(
    pattern: Annotated[
        str | None, typer.Argument(metavar="[PATTERN]", help="Part of a name, or with * and ?.")
    ] = None,
) -> None:
    """List the environments, one name per line."""
    names = [f"{family}/{game}" for family, spec in FAMILIES.items() for game in spec.games or ()]
    names += ["deep_sea/<n>", *_gymnasium_names()]
    wanted = (pattern or "*").lower()
    wanted = wanted if any(character in wanted for character in "*?[") else f"*{wanted}*"
    found = [name for name in names if fnmatchcase(name.lower(), wanted)]
    if not found:
        fail(f"no environment matches {pattern!r}." + suggestion(str(pattern), names))
    for name in found:
        show(name)


def _gymnasium_names() -> list[str]:
    """The newest version of each of Gymnasium's environments; a placeholder without Gymnasium."""
    try:
        from gymnasium.envs.registration import registry
    except ImportError:
        return ["gym/<id>"]
    newest: dict[str, tuple[int, str]] = {}
    for name, spec in registry.items():
        # Others are packages of their own; ALE registers its games under both forms.
        if spec.namespace is None and not str(spec.entry_point).startswith("ale_py"):
            newest[spec.name] = max(newest.get(spec.name, (-1, "")), (spec.version or 0, name))
    return [f"gym/{name}" for _, name in newest.values()]


def settings(
    agent: Agent = "noisynet-dqn",
    environment: Environment = "atari/pong",
    preset: Preset = None,
) -> None:
    """List the settings of an agent: key, value, where the value is from, and what it means.

    Change one by `noisynet train … --set key=value`.
    """
    from noisynet.config.describe import describe_settings

    with failing(ConfigError, code=2):
        found = describe_settings(agent, environment, preset=preset)
    rows = [(setting.key, setting.value, setting.source, setting.meaning) for setting in found]
    show_table(("key", "value", "source", "meaning"), rows)
