"""What is wrong with a configuration, in words: every error, with the nearest valid name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Final, get_args

from noisynet.config.parts import Part
from noisynet.config.run import ACTOR_CRITIC_AGENTS, AGENTS, ActorCriticConfig, Config, RunConfig


class ConfigError(ValueError):
    """A configuration that cannot be; the message lists every error."""


def path_of(error: Any, model: type[RunConfig]) -> list[str]:
    """Where one of pydantic's errors is, as in a dotted key."""
    path = [str(part) for part in error["loc"]]
    if path and len(_kinds(model, path[0])) > 1:
        del path[1:2]  # the kind, which is no part of the key
    return path


def explain(error: Any, nested: dict[str, Any], model: type[RunConfig]) -> str:
    """One line for one of pydantic's errors, with the nearest valid key or choice."""
    path = path_of(error, model)
    key = ".".join(path)
    if error["type"] == "extra_forbidden":
        return _unknown_key(key, nested, model)
    if key == "agent":
        return _wrong_agent(str(error["input"]), model)
    if error["type"] == "union_tag_invalid":
        return _not_a_choice(f"{key}.kind", error["input"]["kind"], list(_kinds(model, key)))
    if error["type"] == "literal_error":
        part = _part(path[0], nested, model)
        assert part is not None  # the agent's name is the only other choice
        return _not_a_choice(key, error["input"], _choices(part.model_fields[path[1]].annotation))
    message = error["msg"].removeprefix("Value error, ")
    if not key or error["type"] == "value_error":
        return f"{key}: {message}" if key and key != "environment" else message
    return f"{key}: {message}, got {error['input']!r}"


def unknown(what: str, came: str, known: Iterable[str]) -> str:
    """A name that there is not, and those that there are."""
    near = nearest(came, known)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {came!r}, expected one of {', '.join(known)}{hint}"


def nearest(came: str, known: Iterable[str]) -> list[str]:
    """The one that was probably meant, if any is near."""
    return difflib.get_close_matches(came, list(known), n=1, cutoff=0.4)


# What the two kinds of agents have for one and the same thing.
_COUNTERPARTS: Final = {
    "num_envs": "envs_per_worker",
    "envs_per_worker": "num_envs",
    "learning.n_step": "learning.rollout_steps",
    "learning.rollout_steps": "learning.n_step",
}


def _unknown_key(key: str, nested: dict[str, Any], model: type[RunConfig]) -> str:
    other = ActorCriticConfig if model is Config else Config
    near = difflib.get_close_matches(key, list(_known_keys(nested, model)), n=1)
    name, _, field = key.partition(".")
    owners = [k for k, part in _kinds(model, name).items() if field in part.model_fields]
    whose = ""
    if owners:
        whose = f", which is of {name}.kind={owners[0]} only"
    elif key in _all_keys(other):
        whose = f", which is of {'A3C' if model is Config else 'value agents'} only"
        near = [_COUNTERPARTS[key]] if key in _COUNTERPARTS else []
    return f"unknown key {key!r}{whose}" + (f"; did you mean {near[0]!r}?" if near else "")


def _wrong_agent(came: str, model: type[RunConfig]) -> str:
    if came not in AGENTS:
        return unknown("agent", came, AGENTS)
    here = "an actor-critic" if model is ActorCriticConfig else "a value"
    there = "an actor-critic" if came in ACTOR_CRITIC_AGENTS else "a value"
    return f"agent: expected {here} agent among these settings, got {came!r}, which is {there} one"


def _not_a_choice(key: str, came: Any, choices: list[str]) -> str:
    near = nearest(came, choices) if isinstance(came, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{key}: expected {' or '.join(map(repr, choices))}, got {came!r}{hint}"


def _choices(annotation: Any) -> list[str]:
    """The texts of a `Literal`, which may stand in a union."""
    found: list[str] = []
    for argument in get_args(annotation):
        found += [argument] if isinstance(argument, str) else _choices(argument)
    return found


def _kinds(model: type[RunConfig], name: str) -> dict[str, type[Part]]:
    """The parts that may stand under `name`, by kind; none if that is a value."""
    if name not in model.model_fields:
        return {}
    annotation = model.model_fields[name].annotation
    members = get_args(annotation) or (annotation,)
    parts = [part for part in members if isinstance(part, type) and issubclass(part, Part)]
    return {
        str(part.model_fields["kind"].default) if "kind" in part.model_fields else "": part
        for part in parts
    }


def _part(name: str, nested: dict[str, Any], model: type[RunConfig]) -> type[Part] | None:
    """What this configuration has under `name`; None for a value, or an unknown kind."""
    kinds = _kinds(model, name)
    kind: Any = next(iter(kinds), None)
    if len(kinds) > 1 and isinstance(chosen := nested.get(name), dict):
        kind = chosen.get("kind", kind)
    return kinds.get(kind) if isinstance(kind, str) else None


def _known_keys(nested: dict[str, Any], model: type[RunConfig]) -> Iterable[str]:
    """Every dotted key of the parts that this configuration has."""
    for name in model.model_fields:
        part = _part(name, nested, model)
        if part is None:
            yield name
        else:
            yield from (f"{name}.{field}" for field in part.model_fields)


def _all_keys(model: type[RunConfig]) -> set[str]:
    """Every dotted key that a configuration of this kind could have, and the names of its parts."""
    keys = set(model.model_fields)
    for name in model.model_fields:
        for part in _kinds(model, name).values():
            keys |= {f"{name}.{field}" for field in part.model_fields}
    return keys
