"""Settings as keyword arguments of Python: by dotted key, or by the last part of it alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from noisynet.config.agents import AGENT_SPECS
from noisynet.config.errors import ConfigError, all_keys
from noisynet.config.run import ActorCriticConfig, Config

# Only one key ends so, but the word means another setting to many.
_AMBIGUOUS: Final = {"epsilon": ("exploration.initial", "exploration.final", "optimiser.epsilon")}


def settings_from_keywords(agent: str, keywords: Mapping[str, Any]) -> list[str]:
    """Return keyword arguments as the `key=value` settings of `build_config`.

    Args:
        agent: one of `AGENTS`; an unknown one is an error of `build_config`.
        keywords: values by name: a dotted key such as "exploration.sigma0"; its last part, where
            one section alone has it, such as "sigma0"; or a section with a dict of its fields.
            Unknown names are left for `build_config`, which suggests the nearest.

    Raises:
        ConfigError: a name belongs to several keys, a key is given twice, or a value is not plain
            data.
    """
    spec = AGENT_SPECS.get(agent)
    known = all_keys(ActorCriticConfig if spec and spec.family == "actor-critic" else Config)
    settings: dict[str, str] = {}
    errors: list[str] = []
    for name, value in keywords.items():
        candidates = [name] if name in known else _candidates(name, known)
        if len(candidates) > 1:
            spelled = " or ".join(f'**{{"{key}": …}}' for key in candidates)
            errors.append(f"{name!r} is ambiguous: write {spelled}")
            continue
        key = candidates[0] if candidates else name
        if key in settings:
            errors.append(f"{key} is given twice")
        try:
            settings[key] = json.dumps(value, default=_plain)
        except (TypeError, ValueError):
            errors.append(f"{key}: expected numbers, strings, lists or dicts, got {value!r}")
    if errors:
        raise ConfigError("\n".join(errors))
    return [f"{key}={value}" for key, value in settings.items()]


def _candidates(name: str, known: set[str]) -> list[str]:
    found = sorted(key for key in known if key.rpartition(".")[2] == name)
    return list(_AMBIGUOUS[name]) if found and name in _AMBIGUOUS else found


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, and tensors, as Python's."""
    if not hasattr(value, "tolist"):
        raise TypeError
    return value.tolist()
