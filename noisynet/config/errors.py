"""Error messages of a configuration, with the nearest valid names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Final, get_args

from noisynet.config.agents import AGENT_SPECS, AGENTS
from noisynet.config.run import ActorCriticConfig, Config, RunConfig
from noisynet.config.sections import Section


class ConfigError(ValueError):
    """The configuration is invalid; the message lists every error."""


def path_of(error: Any, model: type[RunConfig]) -> list[str]:
    """The location of one of pydantic's errors, as the segments of a dotted key."""
    path = [str(segment) for segment in error["loc"]]
    if path and len(_kinds(model, path[0])) > 1:
        del path[1:2]  # pydantic inserts the kind
    return path


def explain(error: Any, nested: dict[str, Any], model: type[RunConfig]) -> str:
    """Describe one of pydantic's errors in a line, with the nearest valid key or choice."""
    path = path_of(error, model)
    key = ".".join(path)
    if error["type"] == "extra_forbidden":
        return _unknown_key(key, nested, model)
    if key == "agent":
        return _wrong_agent(str(error["input"]), model)
    if error["type"] == "union_tag_invalid":
        return _not_a_choice(f"{key}.kind", error["input"]["kind"], list(_kinds(model, key)))
    if error["type"] == "literal_error":
        owner = _section(path[0], nested, model) if len(path) > 1 else model
        assert owner is not None  # pydantic has validated the kind before its fields
        return _not_a_choice(key, error["input"], _choices(owner.model_fields[path[-1]].annotation))
    message = error["msg"].removeprefix("Value error, ")
    if not key or error["type"] == "value_error":
        return f"{key}: {message}" if key and key != "environment" else message
    return f"{key}: {message}, got {error['input']!r}"


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """Say that a name is unknown, with the known ones and the nearest."""
    near = nearest(given, known)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {given!r}, expected one of {', '.join(known)}{hint}"


def nearest(given: str, known: Iterable[str]) -> list[str]:
    """The nearest known name, or none if none is near."""
    return difflib.get_close_matches(given, list(known), n=1, cutoff=0.4)


# Keys with the same meaning in both families of agents.
_COUNTERPARTS: Final = {
    "num_envs": "envs_per_worker",
    "envs_per_worker": "num_envs",
    "learning.n_step": "learning.rollout_steps",
    "learning.rollout_steps": "learning.n_step",
}

# What other libraries call our settings.
_OTHER_NAMES: Final = {
    "lr": "learning_rate",
    "gamma": "discount",
    "n_envs": "num_envs",
    "n_steps": "n_step",
    "net_arch": "hidden",
    "hidden_sizes": "hidden",
    "buffer_size": "capacity_steps",
    "learning_starts": "starts_steps",
    "train_freq": "update_period_steps",
    "target_update_interval": "sync_target_steps",
    "max_grad_norm": "max_gradient_norm",
    "total_timesteps": "frames",
}

# Settings of earlier versions, with what holds now.
_REMOVED: Final = {
    "learning.draws_ahead": "the batch of an update is always sampled when the update is due",
}


def _unknown_key(key: str, nested: dict[str, Any], model: type[RunConfig]) -> str:
    if key in _REMOVED:
        return f"{key} was removed: {_REMOVED[key]}; start a new run"
    other = ActorCriticConfig if model is Config else Config
    near = _nearest_keys(key, list(_known_keys(nested, model)))
    name, _, field = key.partition(".")
    owners = [k for k, section in _kinds(model, name).items() if field in section.model_fields]
    whose = ""
    if owners:
        whose = f", which belongs to {name}.kind={owners[0]}"
    elif key in all_keys(other):
        whose = f", which belongs to {'A3C' if model is Config else 'value agents'}"
        near = [_COUNTERPARTS[key]] if key in _COUNTERPARTS else []
    return f"unknown key {key!r}{whose}" + (f"; did you mean {near[0]!r}?" if near else "")


def _nearest_keys(key: str, known: list[str]) -> list[str]:
    """The known key that is meant most likely, in whatever section it is; none if none is near."""
    last = key.rpartition(".")[2]
    last = _OTHER_NAMES.get(last, last)
    by_name = {name.rpartition(".")[2]: name for name in known}
    if last in by_name:
        return [by_name[last]]
    near = difflib.get_close_matches(key, known, n=1)
    return near or [by_name[name] for name in difflib.get_close_matches(last, by_name, n=1)]


def _wrong_agent(given: str, model: type[RunConfig]) -> str:
    if given not in AGENTS:
        return unknown("agent", given, AGENTS)
    expected = "actor-critic" if model is ActorCriticConfig else "value"
    family = AGENT_SPECS[given].family
    return f"agent: these settings are of the family {expected}, got {given!r} of {family}"


def _not_a_choice(key: str, given: Any, choices: list[str]) -> str:
    near = nearest(given, choices) if isinstance(given, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{key}: expected {' or '.join(map(repr, choices))}, got {given!r}{hint}"


def _choices(annotation: Any) -> list[str]:
    """The strings of a `Literal`, also within a union."""
    found: list[str] = []
    for argument in get_args(annotation):
        found += [argument] if isinstance(argument, str) else _choices(argument)
    return found


def _kinds(model: type[RunConfig], name: str) -> dict[str, type[Section]]:
    """The possible sections of the field `name` by kind; none if the field is a value."""
    if name not in model.model_fields:
        return {}
    annotation = model.model_fields[name].annotation
    members = get_args(annotation) or (annotation,)
    sections = [kind for kind in members if isinstance(kind, type) and issubclass(kind, Section)]
    return {
        str(kind.model_fields["kind"].default) if "kind" in kind.model_fields else "": kind
        for kind in sections
    }


def _section(name: str, nested: dict[str, Any], model: type[RunConfig]) -> type[Section] | None:
    """The section that this configuration has at `name`; None for a value or an unknown kind."""
    kinds = _kinds(model, name)
    kind: Any = next(iter(kinds), None)
    if len(kinds) > 1 and isinstance(chosen := nested.get(name), dict):
        kind = chosen.get("kind", kind)
    return kinds.get(kind) if isinstance(kind, str) else None


def _known_keys(nested: dict[str, Any], model: type[RunConfig]) -> Iterable[str]:
    """Every dotted key of the sections that this configuration has."""
    for name in model.model_fields:
        section = _section(name, nested, model)
        if section is None:
            yield name
        else:
            yield from (f"{name}.{field}" for field in section.model_fields)


def all_keys(model: type[RunConfig]) -> set[str]:
    """Every dotted key that a configuration of this class can have, and its sections' names."""
    keys = set(model.model_fields)
    for name in model.model_fields:
        for section in _kinds(model, name).values():
            keys |= {f"{name}.{field}" for field in section.model_fields}
    return keys
