"""Build a configuration from the command line or from a run folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, TypedDict, TypeVar, Unpack, overload

from pydantic import TypeAdapter, ValidationError

from noisynet.config import presets
from noisynet.config.agents import AGENT_SPECS, AGENTS, ActorCriticAgentName, ValueAgentName
from noisynet.config.contradictions import contradictions
from noisynet.config.errors import ConfigError, explain, nearest, path_of, unknown
from noisynet.config.run import PRESETS, ActorCriticConfig, Config, RunConfig, flat_settings
from noisynet.config.sections import EpsilonGreedy
from noisynet.envs.names import FAMILIES

Made = TypeVar("Made", bound=RunConfig)

# A preset's settings of exploration without noise are not applied to noisy agents.
_WITHOUT_NOISE: Final = {f"exploration.{name}" for name in EpsilonGreedy.model_fields} - {
    "exploration.kind"
}


class _Options(TypedDict, total=False):
    frames: int | None
    seed: int
    preset: str | None
    settings: Iterable[str]


@overload
def build_config(
    agent: ValueAgentName, environment: str, **options: Unpack[_Options]
) -> Config: ...


@overload
def build_config(
    agent: ActorCriticAgentName, environment: str, **options: Unpack[_Options]
) -> ActorCriticConfig: ...


@overload
def build_config(
    agent: str, environment: str, **options: Unpack[_Options]
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
    """Build the configuration of a run.

    The agent's settings come first, then the preset's, then `settings`; later ones override.

    Args:
        agent: one of `AGENTS`; its family decides the class of the configuration.
        environment: such as "atari/pong".
        frames: the budget; None for the preset's.
        seed: the seed of all random streams.
        preset: one of `PRESETS`; None for that of the environment or of its family.
        settings: `key=value` pairs with dotted keys, such as "learning.discount=0.9".

    Raises:
        ConfigError: lists every error, with the nearest valid names.
    """
    errors: list[str] = []
    flat: dict[str, Any] = {"agent": agent, "environment": environment, "seed": seed}
    if agent not in AGENTS:
        errors.append(unknown("agent", agent, AGENTS))
        # The settings are checked against those of the nearest agent.
        agent = next(iter(nearest(agent, AGENTS)), "dqn")
    spec = AGENT_SPECS[agent]
    default_preset = _default_preset(agent, environment)
    if preset is None:
        preset = default_preset
    elif preset not in PRESETS:
        errors.append(unknown("preset", preset, PRESETS))
        preset = next(iter(nearest(preset, PRESETS)), default_preset)  # likewise
    of_family = presets.PRESETS_OF_FAMILY[spec.family]
    if preset not in of_family:
        known = ", ".join(of_family)
        errors.append(f"preset {preset!r} has no settings for {agent}, expected one of {known}")
        preset = default_preset
    for _, layer in _layers(agent, preset):
        flat = _overridden(flat, layer)
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


def setting_sources(agent: str, environment: str, preset: str | None = None) -> dict[str, str]:
    """Which settings of a valid run are not defaults: "command", "agent" or "preset <name>"."""
    sources = dict.fromkeys(("agent", "environment", "seed"), "command")
    flat: dict[str, Any] = dict(sources)
    for source, layer in _layers(agent, preset or _default_preset(agent, environment)):
        flat = _overridden(flat, layer)
        sources = {key: source if key in layer else sources[key] for key in flat}
    return sources


def _default_preset(agent: str, environment: str) -> str:
    if (
        AGENT_SPECS[agent].family == "value"
        and "network.atoms" not in presets.AGENT_SETTINGS[agent]
    ):
        of_name = presets.PRESETS_OF_NAMES.get(environment.partition("-v")[0])
        if of_name is not None:
            return of_name
    family = FAMILIES.get(environment.partition("/")[0])  # None: an error of the environment
    return family.preset if family else "paper"


def _layers(agent: str, preset: str) -> list[tuple[str, dict[str, Any]]]:
    """The settings of an agent and of a preset, with their source; later ones override."""
    spec = AGENT_SPECS[agent]
    of_agent = presets.AGENT_SETTINGS[agent]
    of_preset = dict(presets.PRESETS_OF_FAMILY[spec.family][preset])
    if "network.atoms" in of_agent:
        of_preset |= presets.CATEGORICAL_PRESETS.get(preset, {})
    skipped = _WITHOUT_NOISE if spec.noisy else set()
    of_preset = {key: value for key, value in of_preset.items() if key not in skipped}
    return [("agent", of_agent), (f"preset {preset}", of_preset)]


def _model(agent: Any) -> type[Config] | type[ActorCriticConfig]:
    spec = AGENT_SPECS.get(agent) if isinstance(agent, str) else None
    return ActorCriticConfig if spec and spec.family == "actor-critic" else Config


def _by_dotted_keys(key: str, value: Any) -> dict[str, Any]:
    """Split a section that is given as an object, such as replay={"kind": …}, into its fields."""
    if "." in key or not isinstance(value, dict):
        return {key: value}
    return {f"{key}.{field}": of_field for field, of_field in value.items()}


# Kept when the kind of its section changes, because every kind has it with the same meaning. The
# learning rate and ε of an optimiser are not: they are tuned for one kind.
_OF_EVERY_KIND: Final = {"replay.capacity_steps"}


def _overridden(flat: dict[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """`flat` overridden by `layer`; a change of kind drops the settings of the previous kind."""
    for key, value in layer.items():
        section, _, last = key.rpartition(".")
        if last == "kind" and flat.get(key) != value:
            flat = {
                k: v
                for k, v in flat.items()
                if k in _OF_EVERY_KIND or not k.startswith(f"{section}.")
            }
    return flat | dict(layer)


def load_config(stored: Mapping[str, Any]) -> Config | ActorCriticConfig:
    """Validate the configuration of a run folder.

    Raises:
        ConfigError: lists every error; settings that were removed since are named as such.
    """
    return _validated(dict(stored), [], _model(stored.get("agent")))


def parse_count(text: str) -> int:
    """Parse a positive whole number, which may be written 10M, 250k or 1e6."""
    match = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?(?:e\d{1,2})?)([kKmM]?)", text.strip())
    if match:  # as a fraction: 1.001 * 1000 is not 1001 in floating point
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
        section = nested
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                break
        if isinstance(section, dict):
            section[last] = value
        else:
            errors.append(f"{key}: {'.'.join(parents)} is a value and has no fields")
    try:
        config = model.model_validate(nested)
    except ValidationError as error:
        found = error.errors()
        errors += [explain(one, nested, model) for one in found]
        # pydantic runs the check for contradictions only if every field is valid.
        wrong = {".".join(path_of(one, model)[:2]) for one in found if one["loc"]}
        errors += contradictions(_valid_settings(nested, wrong, model)) if wrong else []
    if errors:
        raise ConfigError("\n".join(dict.fromkeys(errors)))
    return config


def _valid_settings(
    nested: dict[str, Any], wrong: set[str], model: type[RunConfig]
) -> dict[str, Any]:
    """Every field that is valid, by dotted key, with defaults filled in."""
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
