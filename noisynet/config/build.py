"""From what stands on the command line, or in a run folder, to a configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeVar, overload

from pydantic import TypeAdapter, ValidationError

from noisynet import presets
from noisynet.config.errors import ConfigError, explain, nearest, path_of, unknown
from noisynet.config.parts import EpsilonGreedy
from noisynet.config.run import (
    ACTOR_CRITIC_AGENTS,
    AGENTS,
    PRESETS,
    ActorCriticAgentName,
    ActorCriticConfig,
    Config,
    RunConfig,
    ValueAgentName,
    flat_settings,
)
from noisynet.contradictions import contradictions

Made = TypeVar("Made", bound=RunConfig)

# What a preset says of exploration that is not by noise does not apply to noisy agents.
_NOT_OF_NOISY: Final = {f"exploration.{name}" for name in EpsilonGreedy.model_fields} - {
    "exploration.kind"
} | {"exploration.beta"}


@overload
def build_config(
    agent: ValueAgentName,
    environment: str,
    *,
    frames: int | None = None,
    seed: int = 0,
    preset: str | None = None,
    settings: Iterable[str] = (),
) -> Config: ...


@overload
def build_config(
    agent: ActorCriticAgentName,
    environment: str,
    *,
    frames: int | None = None,
    seed: int = 0,
    preset: str | None = None,
    settings: Iterable[str] = (),
) -> ActorCriticConfig: ...


@overload
def build_config(
    agent: str,
    environment: str,
    *,
    frames: int | None = None,
    seed: int = 0,
    preset: str | None = None,
    settings: Iterable[str] = (),
) -> Config | ActorCriticConfig: ...


def build_config(
    agent: str,
    environment: str,
    *,
    frames: int | None = None,
    seed: int = 0,
    preset: str | None = None,
    settings: Iterable[str] = (),
) -> Config | ActorCriticConfig:
    """The configuration of a run, from what stands on the command line.

    Args:
        agent: one of `AGENTS`; it decides the kind of configuration.
        environment: such as "atari/pong".
        frames: the budget; None for the preset's.
        seed: decides every random stream.
        preset: one of `PRESETS`; None for the one of the environment's family.
        settings: `key=value` pairs over everything else, keys dotted: "learning.discount=0.9".

    Raises:
        ConfigError: listing everything that is wrong, with the nearest valid names.
    """
    errors: list[str] = []
    flat: dict[str, Any] = {"agent": agent, "environment": environment, "seed": seed}
    if agent not in AGENTS:
        errors.append(unknown("agent", agent, AGENTS))
        # The settings are judged as of the agent that was probably meant.
        agent = next(iter(nearest(agent, AGENTS)), "dqn")
    default_preset = presets.DEFAULT_PRESETS.get(environment.partition("/")[0], "paper")
    if preset is None:
        preset = default_preset
    elif preset not in PRESETS:
        errors.append(unknown("preset", preset, PRESETS))
        preset = next(iter(nearest(preset, PRESETS)), default_preset)  # likewise
    noisy = agent.startswith("noisynet")
    layers = _layers(agent, preset)
    if layers is None:
        fitting = ", ".join(presets.ACTOR_CRITIC_PRESETS)
        errors.append(f"preset {preset!r} has no settings for {agent}, expected one of {fitting}")
        layers = _layers(agent, default_preset) or []
    for layer in layers:
        applicable = {k: v for k, v in layer.items() if not (noisy and k in _NOT_OF_NOISY)}
        flat = _overridden(flat, applicable)
    if frames is not None:
        flat["frames"] = frames
    given: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            errors.append(f"--set expected key=value, got {setting!r}")
        else:
            given |= _by_dotted_keys(key.strip(), _parse_value(value.strip()))
    return _validated(_overridden(flat, given), errors, _model(agent))


def _layers(agent: str, preset: str) -> list[Mapping[str, Any]] | None:
    """What an agent's settings are made of, the later over the earlier."""
    if agent in ACTOR_CRITIC_AGENTS:
        if preset not in presets.ACTOR_CRITIC_PRESETS:
            return None
        return [presets.AGENT_SETTINGS[agent], presets.ACTOR_CRITIC_PRESETS[preset]]
    layers = [presets.DEFAULT_KINDS, presets.AGENT_SETTINGS[agent]]
    layers += [presets.DUELING_SETTINGS] if "dueling" in agent else []
    return [*layers, presets.PRESET_SETTINGS[preset]]


def _model(agent: Any) -> type[Config] | type[ActorCriticConfig]:
    return ActorCriticConfig if agent in ACTOR_CRITIC_AGENTS else Config


def _by_dotted_keys(key: str, value: Any) -> dict[str, Any]:
    """A part that is given whole, such as replay={"kind": …}, is given field by field."""
    parts = ("exploration", "network", "optimiser", "replay", "learning", "evaluation")
    if key not in parts or not isinstance(value, dict):
        return {key: value}
    return {f"{key}.{field}": of_field for field, of_field in value.items()}


# What outlives a change of kind, because it means the same to every kind. The rate and the ε that
# both optimisers have are tuned to one: who asks for Adam expects Adam's own, not RMSProp's.
_OF_EVERY_KIND: Final = {"replay.capacity_steps"}


def _overridden(flat: dict[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """`flat` with `layer` over it; where the layer changes a kind, the old kind's settings go."""
    for key, value in layer.items():
        part, _, last = key.rpartition(".")
        if last == "kind" and flat.get(key) != value:
            flat = {
                k: v for k, v in flat.items() if k in _OF_EVERY_KIND or not k.startswith(f"{part}.")
            }
    return flat | dict(layer)


def load_config(stored: Mapping[str, Any]) -> Config | ActorCriticConfig:
    """The configuration that a run folder holds."""
    return _validated(dict(stored), [], _model(stored.get("agent")))


def parse_count(text: str) -> int:
    """A whole number that may be written 10M, 250k or 1e6."""
    match = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?(?:e\d{1,2})?)([kKmM]?)", text.strip())
    if match:  # exactly: 1.001 * 1000 is not 1001 in binary
        scale = {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()]
        value = Fraction(match[1].replace("_", "")) * scale
        if value >= 1 and value.denominator == 1:
            return value.numerator
    raise ValueError(f"expected a positive whole number such as 500000, 500k or 10M, got {text!r}")


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        try:
            return parse_count(text)
        except ValueError:
            return text


def _validated(flat: dict[str, Any], errors: list[str], model: type[Made]) -> Made:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                break
        if isinstance(place, dict):
            place[last] = value
        else:
            errors.append(f"{key}: {'.'.join(parents)} is a value and has no parts")
    try:
        config = model.model_validate(nested)
    except ValidationError as error:
        found = error.errors()
        errors += [explain(one, nested, model) for one in found]
        # pydantic compares fields only where each is valid by itself.
        wrong = {".".join(path_of(one, model)[:2]) for one in found if one["loc"]}
        errors += contradictions(_valid_settings(nested, wrong, model)) if wrong else []
    if errors:
        raise ConfigError("\n".join(dict.fromkeys(errors)))
    return config


def _valid_settings(
    nested: dict[str, Any], wrong: set[str], model: type[RunConfig]
) -> dict[str, Any]:
    """Every field but the wrong ones, by dotted key; the default where nothing is given."""
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in wrong:
            continue
        if name in nested:
            given = nested[name]
            if isinstance(given, dict):
                given = {k: v for k, v in given.items() if f"{name}.{k}" not in wrong}
            fields[name] = TypeAdapter(field.rebuild_annotation()).validate_python(given)
        else:
            fields[name] = field.get_default(call_default_factory=True)
    return {key: value for key, value in flat_settings(fields).items() if key not in wrong}
