"""What a plan says, as it stands in a TOML file: which runs there are, and how some differ."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any, Final

from noisynet.config import AGENTS, PRESETS, parse_count
from noisynet.config.errors import nearest, unknown

PLANS: Final = ("atari57", "atari5", "minatar5", "classic")
"""The plans that come with the package, in `presets/`."""

ALL: Final = "all"
"""In place of the list of agents: every one."""

_RULE_KEYS: Final = ("agents", "environments", "frames", "preset", "settings")
_KEYS: Final = {
    "where": _RULE_KEYS,
    "variant": ("name", *_RULE_KEYS),
    "": (*_RULE_KEYS, "seeds", "variants_only", "where", "variant"),
}
_OF_THE_PLAN: Final = ("agent", "environment", "seed", "frames")
_MOST_SEEDS: Final = 10_000


class PlanError(ValueError):
    """A plan that cannot be carried out; the message lists every error."""


@dataclass(frozen=True)
class Rule:
    """What the runs of some agents on some environments have of their own.

    Attributes:
        agents: names or patterns; a run takes part if one fits.
        environments: likewise.
        frames: the budget, None for what is said elsewhere.
        preset: of the settings, likewise.
        settings: `key=value`, as after `--set`.
        name: of a variant, "" for a rule that holds for every variant.
    """

    agents: tuple[str, ...] = ("*",)
    environments: tuple[str, ...] = ("*",)
    frames: int | None = None
    preset: str | None = None
    settings: tuple[str, ...] = ()
    name: str = ""

    def fits(self, agent: str, environment: str) -> bool:
        """Whether the rule holds for this agent on this environment."""
        return _fits(agent, self.agents) and _fits(environment, self.environments)


@dataclass(frozen=True)
class PlanFile:
    """A plan as it stands in its file.

    Attributes:
        agents: by name, patterns resolved.
        environments: by name.
        seeds: one run each.
        rules: from the general to the particular; the later wins.
        variants: each is a further run of whatever it fits.
        variants_only: whether the runs without any variant are left out.
    """

    agents: tuple[str, ...]
    environments: tuple[str, ...]
    seeds: tuple[int, ...]
    rules: tuple[Rule, ...]
    variants: tuple[Rule, ...] = ()
    variants_only: bool = False


def read_plan(plan: str) -> tuple[dict[str, Any], str]:
    """The document of a plan, unchecked, and where it stands.

    Args:
        plan: one of `PLANS`, or the path of a TOML file.

    Raises:
        PlanError: there is no such plan, or it is not TOML.
    """
    if plan in PLANS:
        source = f"the preset {plan}"
        text = resources.files(__package__).joinpath("presets", f"{plan}.toml").read_text("utf-8")
    elif Path(plan).is_file():
        source = plan
        try:
            text = Path(plan).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"cannot read the plan {plan}: {error}") from error
    else:
        near = nearest(plan, PLANS)
        raise PlanError(
            f"expected a plan, one of {', '.join(PLANS)} or the path of a TOML file, got {plan!r}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    try:
        return tomllib.loads(text), source
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{source} is not TOML: {error}") from error


class PlanReader:
    """Checks a plan's document and what the command says over it, and gathers every error.

    Args:
        document: as TOML gives it.

    Attributes:
        errors: what is wrong so far.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.errors: list[str] = []

    def read(
        self,
        *,
        agents: str | Sequence[str] | None = None,
        environments: str | Sequence[str] | None = None,
        seeds: int | str | Sequence[int] | None = None,
    ) -> PlanFile:
        """The plan, as far as it is valid; what the command names takes the place of its lists."""
        self._known_keys(self.document, "", "")
        own_agents = self.agents(self.document.get("agents"), "agents")
        own_environments = self._names(self.document.get("environments"), "environments")
        chosen = (own_agents, own_environments)
        if agents is not None:
            own_agents = self.agents(_listed(agents), "--agents")
        if environments is not None:
            own_environments = self._names(_listed(environments), "--environments")
        of_all = self._rule(self.document, "", "")
        return PlanFile(
            own_agents,
            own_environments,
            self.seeds(self.document.get("seeds", 1) if seeds is None else seeds),
            (
                Rule(frames=of_all.frames, preset=of_all.preset, settings=of_all.settings),
                *self._rules("where", chosen),
            ),
            self._variants(chosen),
            self._flag("variants_only"),
        )

    # --- lists -----------------------------------------------------------------------------------

    def agents(self, value: Any, where: str) -> tuple[str, ...]:
        """Names of agents from names and patterns, "all" among them, each once."""
        found: dict[str, None] = {}
        for name in self._names([value] if value == ALL else value, where):
            fitting = AGENTS if name == ALL else [one for one in AGENTS if fnmatchcase(one, name)]
            if not fitting:
                self.errors.append(f"{where}: {unknown('agent', name, (*AGENTS, ALL))}")
            found |= dict.fromkeys(fitting)
        return tuple(found)

    def seeds(self, value: Any) -> tuple[int, ...]:
        """So many seeds from 0 on, or those listed, as in [0, 7], "0,7" or "3-5"."""
        if isinstance(value, str):
            value = _seeds_from(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_SEEDS:
            return tuple(range(value))
        if isinstance(value, Sequence) and value and all(type(seed) is int for seed in value):
            twice = sorted({seed for seed in value if list(value).count(seed) > 1})
            if twice:
                self.errors.append(f"seeds: {', '.join(map(str, twice))} more than once")
            return tuple(dict.fromkeys(value))
        self.errors.append(
            f"seeds: expected how many (1 to {_MOST_SEEDS:,}) or a list such as [0, 7], "
            f"got {value!r}"
        )
        return ()

    def _names(self, value: Any, where: str) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not value:
            came = "nothing" if value is None else repr(value)
            self.errors.append(f"{where}: expected a list of names, got {came}")
            return ()
        for name in value:
            if not isinstance(name, str) or not name.strip():
                self.errors.append(f"{where}: expected names, got {name!r} among them")
        names = [name.strip() for name in value if isinstance(name, str) and name.strip()]
        for twice in dict.fromkeys(name for name in names if names.count(name) > 1):
            self.errors.append(f"{where}: {twice!r} more than once")
        return tuple(dict.fromkeys(names))

    # --- rules -----------------------------------------------------------------------------------

    def _rules(self, key: str, chosen: tuple[Sequence[str], Sequence[str]]) -> list[Rule]:
        tables = self.document.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self.errors.append(f"{key}: expected tables headed [[{key}]], got {tables!r}")
            return []
        rules = []
        for number, table in enumerate(tables, start=1):
            at = f"{key} {number}: "
            self._known_keys(table, key, at)
            rule = self._rule(table, key, at)
            for axis, patterns, names in zip(
                ("agents", "environments"), (rule.agents, rule.environments), chosen, strict=True
            ):
                for pattern in patterns:
                    if names and not any(_fits(name, [pattern]) for name in names):
                        near = nearest(pattern, names)
                        hint = f"; did you mean {near[0]!r}?" if near else ""
                        self.errors.append(f"{at}none of the {axis} is {pattern!r}{hint}")
            rules.append(rule)
        return rules

    def _variants(self, chosen: tuple[Sequence[str], Sequence[str]]) -> tuple[Rule, ...]:
        variants = self._rules("variant", chosen)
        names = [variant.name for variant in variants]
        for twice in dict.fromkeys(name for name in names if name and names.count(name) > 1):
            self.errors.append(f"variant: the name {twice!r} more than once")
        return tuple(variants)

    def _rule(self, table: Mapping[str, Any], key: str, at: str) -> Rule:
        patterns = {
            axis: self._names(table[axis], f"{at}{axis}") or ("*",) if axis in table else ("*",)
            for axis in (("agents", "environments") if key else ())
        }
        return Rule(
            patterns.get("agents", ("*",)),
            patterns.get("environments", ("*",)),
            self._frames(table.get("frames"), at),
            self._preset(table.get("preset"), at),
            self._settings(table.get("settings", {}), at),
            self._name(table, at) if key == "variant" else "",
        )

    def _name(self, table: Mapping[str, Any], at: str) -> str:
        name = table.get("name")
        if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            return name
        self.errors.append(
            f"{at}name: expected letters, digits, '.', '_' and '-' for the folder, as in "
            f"'frozen-sigma', got {name!r}"
        )
        return "?"

    def _frames(self, value: Any, at: str) -> int | None:
        if value is None:
            return None
        try:
            return parse_count(str(value))
        except ValueError as error:
            self.errors.append(f"{at}frames: {error}")
            return None

    def _preset(self, value: Any, at: str) -> str | None:
        if value is None or value in PRESETS:
            return None if value is None else str(value)
        self.errors.append(f"{at}{unknown('preset', str(value), PRESETS)}")
        return None

    def _settings(self, value: Any, at: str) -> tuple[str, ...]:
        if not isinstance(value, Mapping):
            self.errors.append(f"{at}settings: expected a table of keys and values, got {value!r}")
            return ()
        found = []
        for key, setting in _dotted(value):
            if key in _OF_THE_PLAN:
                self.errors.append(f"{at}settings: {key!r} belongs in the plan, not among settings")
                continue
            try:
                found.append(
                    f"{key}={setting if isinstance(setting, str) else json.dumps(setting)}"
                )
            except TypeError:
                self.errors.append(
                    f"{at}settings: {key} expected a number, text, truth value or list, got a "
                    f"{type(setting).__name__}"
                )
        return tuple(found)

    def _flag(self, key: str) -> bool:
        value = self.document.get(key, False)
        if not isinstance(value, bool):
            self.errors.append(f"{key}: expected true or false, got {value!r}")
        elif value and not self.document.get("variant"):
            self.errors.append(f"{key}: there is no [[variant]], so that no run would be left")
        return value is True

    def _known_keys(self, table: Mapping[str, Any], key: str, at: str) -> None:
        for name in table:
            if name not in _KEYS[key]:
                self.errors.append(f"{at}{unknown('key', name, _KEYS[key])}")


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(pattern == ALL or fnmatchcase(name, pattern) for pattern in patterns)


def _listed(value: str | Sequence[str]) -> list[str]:
    """Names as a command line gives them, with commas, or as a list."""
    return [name for name in value.split(",") if name] if isinstance(value, str) else list(value)


def _seeds_from(text: str) -> Any:
    """A number of seeds, or a list of seeds and ranges of them; the text where it is neither."""
    if text.strip().isdecimal():
        return int(text)
    seeds: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        match = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", part)
        if not match:
            return text
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first < _MOST_SEEDS:
            return text
        seeds += range(first, last + 1)
    return seeds


def _dotted(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Values by dotted key, whether the file has `"a.b" = 1`, `a.b = 1` or a table [a]."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
