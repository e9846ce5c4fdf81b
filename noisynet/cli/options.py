"""Options that several commands have, and how they become a configuration and a device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from noisynet.cli.messages import fail
from noisynet.config import (
    ACTOR_CRITIC_AGENTS,
    AGENT_SPECS,
    AGENTS,
    PRESETS,
    ActorCriticConfig,
    Config,
    ConfigError,
    build_config,
    missing_for,
    parse_count,
)
from noisynet.envs.names import FAMILIES


def complete_agents(typed: str) -> list[str]:
    """Shell completion of an agent's name."""
    return [name for name in AGENTS if name.startswith(typed)]


def complete_environments(typed: str) -> list[str]:
    """Shell completion of an environment's name."""
    games = [f"{name}/{game}" for name, spec in FAMILIES.items() for game in spec.games or ("",)]
    return [name for name in games if name.startswith(typed)]


Agent = Annotated[
    str,
    typer.Argument(metavar="AGENT", help=", ".join(AGENTS), autocompletion=complete_agents),
]
Environment = Annotated[
    str,
    typer.Argument(
        metavar="ENV",
        help="atari/<rom>, minatar/<game>, deep_sea/<n> or gym/<id>; see `noisynet envs`.",
        autocompletion=complete_environments,
    ),
]
Out = Annotated[Path, typer.Option(help="Parent folder of the runs.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Preset = Annotated[str | None, typer.Option(help=", ".join(PRESETS))]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")]
TensorBoard = Annotated[bool, typer.Option(help="Write TensorBoard events.")]
TRACKERS = ("wandb", "trackio", "mlflow")
"""Experiment trackers, each a module of `noisynet.integrations`."""
Track = Annotated[
    list[str] | None,
    typer.Option(help=f"{', '.join(TRACKERS)}, or such a name with :project; may be repeated."),
]


def configure(
    agent: str,
    environment: str,
    *,
    frames: str | None = None,
    seed: int = 0,
    preset: str | None = None,
    settings: Sequence[str] | None = None,
    workers: int | None = None,
    patience: float | None = None,
) -> Config | ActorCriticConfig:
    """Build the configuration of a command, or exit with every error."""
    errors, given = [], list(settings or ())
    spec = AGENT_SPECS.get(agent)
    for option, value in (("--workers", workers), ("--patience", patience)):
        if value is not None and spec is not None and spec.family == "value":
            errors.append(
                f"{option} is for {', '.join(ACTOR_CRITIC_AGENTS)}; {agent} learns in one process: "
                "leave it out, or use several environments with --set num_envs=N"
            )
        elif value is not None and not 0 < value < float("inf"):
            errors.append(f"{option} expected a number above 0, got {value}")
        elif option == "--workers" and value is not None:
            given.append(f"workers={value}")
    budget = None
    if frames is not None:
        try:
            budget = parse_count(frames)
        except ValueError as error:
            errors.append(f"--frames {error}")
    try:
        config = build_config(
            agent, environment, frames=budget, seed=seed, preset=preset, settings=given
        )
        errors += filter(None, [missing_for(config.compute)])
    except ConfigError as error:
        errors += str(error).splitlines()
    if errors:
        fail("\n".join(errors), code=2)
    return config


def count(option: str, text: str | None) -> int | None:
    """Parse the value of an option such as `--frames 10M`, or exit; None if it was not given."""
    if text is None:
        return None
    try:
        return parse_count(text)
    except ValueError as error:
        fail(f"{option} {error}", code=2)


def check_choice(option: str, given: str, choices: Sequence[str]) -> None:
    """Exit unless an option has one of its values."""
    if given not in choices:
        expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
        fail(f"{option} expected {expected}, got {given!r}", code=2)


def choose_device(name: str, config: Config | ActorCriticConfig) -> str:
    """The device of a run, or exit; see `noisynet.agents.choose_device`."""
    from noisynet.agents import choose_device

    try:
        return choose_device(name, config)
    except ValueError as error:
        fail(f"--{error}", code=2)


def check_run(run: Path) -> None:
    """Refuse a folder that is no run before anything slow is imported."""
    if not os.path.lexists(run / "config.json"):
        from noisynet.runs import find_run_folders

        below = next(find_run_folders(run), None)
        hint = f"did you mean {below}?" if below else "see `noisynet runs`"
        fail(f"expected a run folder with a config.json, got {run}; {hint}")
