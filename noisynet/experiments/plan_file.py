"""Plan files: which agents, environments and seeds to run, and with which settings, in TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from noisynet.config import AGENTS, PRESETS, parse_count
from noisynet.config.errors import nearest, unknown
from noisynet.config.sections import Count, Section

PLANS: Final = ("atari57", "atari5", "minatar5", "classic", "controls")
"""The plans shipped with the package, in `presets/`."""

ALL: Final = "all"
"""Stands for every agent."""

_RULE_KEYS: Final = ("agents", "environments", "frames", "preset", "settings")
_KEYS: Final = {
    "where": _RULE_KEYS,
    "variant": ("name", *_RULE_KEYS),
    "": (*_RULE_KEYS, "seeds", "variants_only", "where", "variant", "search"),
}
_PLAN_KEYS: Final = ("agent", "environment", "seed", "frames")
_MAX_SEEDS: Final = 10_000


class PlanError(ValueError):
    """An invalid plan; the message lists every error."""


@dataclass(frozen=True)
class Rule:
    """Settings for the runs of some agents on some environments; None leaves a value as it is.

    `settings` are `key=value`, as after `--set`. A rule with a name is a variant.
    """

    agents: tuple[str, ...] = ("*",)
    environments: tuple[str, ...] = ("*",)
    frames: int | None = None
    preset: str | None = None
    settings: tuple[str, ...] = ()
    name: str = ""

    def matches(self, agent: str, environment: str) -> bool:
        """Whether the rule applies to this agent on this environment."""
        return _matches(agent, self.agents) and _matches(environment, self.environments)


class Values(Section):
    """What a search samples for a setting: numbers from `low` to `high`, or one of `choices`."""

    low: int | float = 0
    high: int | float = 0
    log: bool = False
    choices: tuple[Any, ...] = ()

    @property
    def ends(self) -> tuple[Any, ...]:
        """Both ends of the range, or all choices."""
        return self.choices or (self.low, self.high)

    def describe(self) -> str:
        """As in "0.001 to 0.1 (log)" or "32, 64"."""
        scale = " (log)" if self.log else ""
        return ", ".join(map(setting_text, self.choices)) or f"{self.low} to {self.high}{scale}"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(map(setting_text, self.ends))) < max(2, len(self.choices)):
            raise ValueError("expected at least two different values, or low < high")
        if not self.choices and (self.low > self.high or (self.log and self.low <= 0)):
            raise ValueError("expected low < high, and 0 < low with log = true")
        return self


def _space(value: Any) -> dict[str, Any]:
    """Fields of `Values` by dotted key; tables and dotted keys are equivalent."""
    from noisynet.runs.encoding import flatten  # not at the top: `noisynet --help` stays fast

    found: dict[str, Any] = {}
    for key, leaf in flatten(value).items():
        setting, _, field = key.rpartition(".")
        if isinstance(leaf, list):
            found[key] = {"choices": leaf}
        else:
            found.setdefault(setting, {})[field] = leaf
    return found


class Search(Section):
    """The table [search] of a plan: settings to find, for each agent on each environment."""

    trials: Count
    """How many; each has a run for every seed of the plan."""
    space: Annotated[dict[str, Values], BeforeValidator(_space), Field(min_length=1)]
    """What is sampled, by dotted key: lists are choices, tables with low and high ranges."""
    objective: Literal["score", "last", "mean"] = "score"
    """Of a run: the highest of its evaluations (the paper's score), the last, or their mean. That
    of a trial is the mean over its seeds."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the search itself."""
    startup_trials: Annotated[int, Field(ge=0)] = 10
    """Trials that are sampled uniformly, and completed trials before others are pruned."""
    prune_after: Annotated[int, Field(ge=0)] = 1
    """Evaluations of a trial before it can be pruned."""


def read_plan(plan: str) -> tuple[dict[str, Any], str]:
    """The parsed TOML of a plan, not validated, and its source for error messages.

    Args:
        plan: one of `PLANS`, or the path of a TOML file.

    Raises:
        PlanError: the plan does not exist, or is not TOML.
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
    """Validates a parsed plan and the options that override it; see `build_plan`.

    It collects every error; the other attributes are the plan's valid part. Later rules override
    earlier ones. Each variant adds a run for every agent and environment that it matches.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        *,
        agents: str | Sequence[str] | None = None,
        environments: str | Sequence[str] | None = None,
        seeds: int | str | Sequence[int] | None = None,
    ) -> None:
        self.errors: list[str] = []
        self.agents = self._agents(document.get("agents"), "agents")
        self.environments = self._names(document.get("environments"), "environments")
        self.seeds = self._seeds(document.get("seeds", 1) if seeds is None else seeds)
        # Rules are for the plan's own lists: options may leave some of them without a run.
        self.rules = (self._rule(document, ""), *self._rules(document, "where"))
        self.variants = self._rules(document, "variant")
        names = [variant.name for variant in self.variants if variant.name]
        for repeated in _repeated(names):
            self.errors.append(f"variant: the name {repeated!r} is used more than once")
        self.variants_only = self._variants_only(document)
        self.search = self._search(document.get("search"))
        if agents is not None:
            self.agents = self._agents(_split_names(agents), "--agents")
        if environments is not None:
            self.environments = self._names(_split_names(environments), "--environments")

    # --- lists -----------------------------------------------------------------------------------

    def _agents(self, value: Any, where: str) -> tuple[str, ...]:
        """The agents that match names, patterns or "all", each once."""
        found: dict[str, None] = {}
        for name in self._names([value] if value == ALL else value, where):
            matching = [agent for agent in AGENTS if _matches(agent, [name])]
            if not matching:
                self.errors.append(f"{where}: {unknown('agent', name, (*AGENTS, ALL))}")
            found |= dict.fromkeys(matching)
        return tuple(found)

    def _seeds(self, value: Any) -> tuple[int, ...]:
        """The seeds 0 to n - 1 for a number n, or those listed, as in [0, 7], "0,7" or "3-5"."""
        if isinstance(value, str):
            value = _parse_seeds(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_SEEDS:
            return tuple(range(value))
        if isinstance(value, Sequence) and value and all(type(seed) is int for seed in value):
            self.errors += [f"seeds: {seed} listed more than once" for seed in _repeated(value)]
            return tuple(dict.fromkeys(value))
        self.errors.append(
            f"seeds: expected how many (1 to {_MAX_SEEDS:,}) or a list such as [0, 7], "
            f"got {value!r}"
        )
        return ()

    def _names(self, value: Any, where: str) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not value:
            given = "nothing" if value is None else repr(value)
            self.errors.append(f"{where}: expected a list of names, got {given}")
            return ()
        names = [name.strip() for name in value if isinstance(name, str) and name.strip()]
        wrong = [name for name in value if not isinstance(name, str) or not name.strip()]
        self.errors += [f"{where}: expected names, got {name!r}" for name in wrong]
        self.errors += [f"{where}: {name!r} listed more than once" for name in _repeated(names)]
        return tuple(dict.fromkeys(names))

    # --- rules -----------------------------------------------------------------------------------

    def _rules(self, document: Mapping[str, Any], key: str) -> tuple[Rule, ...]:
        tables = document.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self.errors.append(f"{key}: expected tables headed [[{key}]], got {tables!r}")
            return ()
        return tuple(self._rule(table, key, f"{key} {n}: ") for n, table in enumerate(tables, 1))

    def _rule(self, table: Mapping[str, Any], key: str, at: str = "") -> Rule:
        """The rule of a table; that of the plan's top level applies to every run."""
        for name in table:
            if name not in _KEYS[key]:
                self.errors.append(f"{at}{unknown('key', name, _KEYS[key])}")
        frames, preset = table.get("frames"), table.get("preset")
        try:
            frames = None if frames is None else parse_count(str(frames))
        except ValueError as error:
            self.errors.append(f"{at}frames: {error}")
            frames = None
        if preset is not None and preset not in PRESETS:
            self.errors.append(f"{at}{unknown('preset', str(preset), PRESETS)}")
            preset = None
        return Rule(
            self._patterns(table, "agents", self.agents, at) if key else ("*",),
            self._patterns(table, "environments", self.environments, at) if key else ("*",),
            frames,
            preset,
            self._settings(table.get("settings", {}), at),
            self._variant_name(table.get("name"), at) if key == "variant" else "",
        )

    def _patterns(
        self, table: Mapping[str, Any], axis: str, names: Sequence[str], at: str
    ) -> tuple[str, ...]:
        """The patterns of a rule, each of which must match something of the plan."""
        patterns = self._names(table[axis], f"{at}{axis}") if axis in table else ()
        for pattern in patterns:
            if names and not any(_matches(name, [pattern]) for name in names):
                near = nearest(pattern, names)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                self.errors.append(f"{at}no {axis[:-1]} of the plan matches {pattern!r}{hint}")
        return patterns or ("*",)

    def _variant_name(self, name: Any, at: str) -> str:
        if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            return name
        self.errors.append(
            f"{at}name: expected letters, digits, '.', '_' and '-' for the folder, as in "
            f"'frozen-sigma', got {name!r}"
        )
        return ""

    def _variants_only(self, document: Mapping[str, Any]) -> bool:
        value = document.get("variants_only", False)
        if not isinstance(value, bool):
            self.errors.append(f"variants_only: expected true or false, got {value!r}")
        elif value and not self.variants:
            self.errors.append("variants_only: the plan has no [[variant]]")
        return value is True

    def _search(self, table: Any) -> Search | None:
        if table is None:
            return None
        if self.variants:
            self.errors.append("search: expected a plan without [[variant]]; use two plans")
        try:
            search = Search.model_validate(table)
        except ValidationError as error:
            for one in error.errors():
                at = ["search", *map(str, one["loc"])]
                given = "" if isinstance(one["input"], Mapping) else f", got {one['input']!r}"
                message = one["msg"].removeprefix("Value error, ") + given
                if one["type"] == "extra_forbidden":
                    known = (Values if at[2:] else Search).model_fields
                    message = unknown("key", at.pop(), known)
                self.errors.append(": ".join([*at, message]))
            return None
        taken = [key for key in search.space if key in _PLAN_KEYS]
        self.errors += [f"search: space: {key!r} is set by the plan" for key in taken]
        return search

    def _settings(self, value: Any, at: str) -> tuple[str, ...]:
        if not isinstance(value, Mapping):
            self.errors.append(f"{at}settings: expected a table of keys and values, got {value!r}")
            return ()
        from noisynet.runs.encoding import flatten  # not at the top: `noisynet --help` stays fast

        found = []
        for key, setting in flatten(value).items():
            if setting == {}:
                continue  # an empty table
            if key in _PLAN_KEYS:
                self.errors.append(f"{at}settings: {key!r} is set by the plan, not in settings")
                continue
            try:
                found.append(f"{key}={setting_text(setting)}")
            except TypeError:
                self.errors.append(
                    f"{at}settings: {key} expected a number, string, boolean or list, got a "
                    f"{type(setting).__name__}"
                )
        return tuple(found)


def setting_text(value: Any) -> str:
    """A value as after `--set key=`."""
    return value if isinstance(value, str) else json.dumps(value)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(pattern == ALL or fnmatchcase(name, pattern) for pattern in patterns)


def _repeated(values: Sequence[Any]) -> list[Any]:
    """The values that occur more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


def _split_names(value: str | Sequence[str]) -> list[str]:
    """A comma-separated string, or any sequence, as a list."""
    return [name for name in value.split(",") if name] if isinstance(value, str) else list(value)


def _parse_seeds(text: str) -> Any:
    """A number of seeds, or a list of seeds and ranges; the text itself if it is neither."""
    if text.strip().isdecimal():
        return int(text)
    seeds: list[int] = []
    for word in filter(None, text.replace(" ", "").split(",")):
        match = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", word)
        if not match:
            return text
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first < _MAX_SEEDS:
            return text
        seeds += range(first, last + 1)
    return seeds
