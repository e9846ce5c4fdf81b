"""Expands a plan into its runs, and validates every one before any of them starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Self

from noisynet.config import ActorCriticConfig, Config, ConfigError, build_config, parse_count
from noisynet.envs import environment_folder, parse_environment
from noisynet.experiments.plan_file import (
    PlanError,
    PlanReader,
    Rule,
    Search,
    read_plan,
    setting_text,
)


@dataclass(frozen=True)
class RunSpec:
    """One run of a plan; `settings` are `key=value`, as after `--set`."""

    agent: str
    environment: str
    seed: int
    variant: str
    preset: str | None
    settings: tuple[str, ...]
    out: Path
    config: Config | ActorCriticConfig

    @property
    def frames(self) -> int:
        """The budget in frames."""
        return self.config.frames

    @property
    def label(self) -> str:
        """The agent with its variant, as in the name of the folder."""
        return f"{self.agent}+{self.variant}" if self.variant else self.agent

    @property
    def name(self) -> str:
        """The run folder relative to `out`; without a variant, the same as for `noisynet train`."""
        folder = environment_folder(self.config.environment)
        return f"{folder}/{self.label}/seed-{self.seed}"

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.out / self.name

    @property
    def log(self) -> Path:
        """The file with the output of the run's processes, next to the folder."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def family(self) -> str:
        """The family of the environment: atari, minatar, deep_sea or gym."""
        return parse_environment(self.environment)[0]

    @property
    def processes(self) -> int:
        """How many processes train: the number of workers of an actor-critic agent, otherwise 1."""
        return self.config.workers if isinstance(self.config, ActorCriticConfig) else 1

    def with_settings(self, variant: str, settings: Mapping[str, Any]) -> Self:
        """The same run with other values of some settings.

        Raises:
            ConfigError: they are invalid.
        """
        changed = (*self.settings, *(f"{key}={setting_text(v)}" for key, v in settings.items()))
        config = build_config(
            self.agent,
            self.environment,
            frames=self.frames,
            seed=self.seed,
            preset=self.preset,
            settings=changed,
        )
        return replace(self, variant=variant, settings=changed, config=config)

    def arguments(self) -> list[str]:
        """The arguments of `noisynet` for this run."""
        preset = [] if self.preset is None else ["--preset", self.preset]
        settings = [word for setting in self.settings for word in ("--set", setting)]
        return [
            *("train", self.agent, self.environment, "--frames", str(self.frames)),
            *("--seed", str(self.seed), *preset, *settings),
            *("--out", str(self.out), "--name", self.name),
        ]


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep.

    All agents and environments of one seed come before the next seed, so that an unfinished sweep
    can be compared. With a search, the runs of each trial are these with other settings.
    """

    name: str
    out: Path
    specs: tuple[RunSpec, ...]
    search: Search | None = None


def build_plan(
    plan: str,
    *,
    out: Path,
    agents: str | Sequence[str] | None = None,
    environments: str | Sequence[str] | None = None,
    seeds: int | str | Sequence[int] | None = None,
    frames: int | str | None = None,
) -> Plan:
    """Read a plan and build the configuration of every run. Nothing on disk is changed.

    Args:
        plan: one of `PLANS`, or the path of a TOML file.
        out: parent of the run folders.
        agents: overrides the plan's: names or patterns, as a list or comma-separated; "all".
        environments: overrides the plan's: names, as a list or comma-separated.
        seeds: overrides the plan's: how many, or which: "0,7" or "3-5".
        frames: overrides every budget of the plan.

    Raises:
        PlanError: the plan is invalid; the message lists every error, with the nearest valid names.
    """
    document, source = read_plan(plan)
    file = PlanReader(document, agents=agents, environments=environments, seeds=seeds)
    errors = [f"{source}: {error}" for error in file.errors]
    budget = None
    if frames is not None:
        try:
            budget = parse_count(str(frames))
        except ValueError as error:
            errors.append(f"--frames {error}")
    specs, invalid = _build_runs(file, budget, out)
    errors += invalid or _duplicates(specs)
    if file.search is not None and not errors:
        errors += [f"{source}: search: {error}" for error in _wrong_space(file.search, specs)]
    if not (errors or specs):
        errors.append(f"{source}: expected at least one run, got none; see variants_only")
    if errors:
        raise PlanError("\n".join(errors))
    return Plan(plan, out, tuple(specs), file.search)


def _build_runs(file: PlanReader, budget: int | None, out: Path) -> tuple[list[RunSpec], list[str]]:
    """The valid runs, and each error once, with the runs that have it."""
    specs: list[RunSpec] = []
    invalid: dict[str, list[str]] = {}
    variants = (*(() if file.variants_only else (Rule(),)), *file.variants)
    for seed, environment, agent in product(file.seeds, file.environments, file.agents):
        rules = [rule for rule in file.rules if rule.matches(agent, environment)]
        for variant in variants:
            if not variant.matches(agent, environment):
                continue
            try:
                specs.append(_make_spec(agent, environment, seed, [*rules, variant], budget, out))
            except ConfigError as error:
                label = f"{agent}+{variant.name}" if variant.name else agent
                for line in str(error).splitlines():
                    invalid.setdefault(line, []).append(f"{label} on {environment}, seed {seed}")
    return specs, [
        f"{line} (in {runs[0]}{f' and {len(runs) - 1:,} more' if runs[1:] else ''})"
        for line, runs in invalid.items()
    ]


def _make_spec(
    agent: str, environment: str, seed: int, rules: list[Rule], budget: int | None, out: Path
) -> RunSpec:
    """The run that these rules give; later ones override earlier ones, the last is the variant."""
    frames, preset = budget, None
    for rule in rules:
        frames = frames if budget or rule.frames is None else rule.frames
        preset = preset if rule.preset is None else rule.preset
    settings = tuple(setting for rule in rules for setting in rule.settings)
    config = build_config(
        agent, environment, frames=frames, seed=seed, preset=preset, settings=settings
    )
    return RunSpec(agent, environment, seed, rules[-1].name, preset, settings, out, config)


def _duplicates(specs: Sequence[RunSpec]) -> list[str]:
    """Errors for runs that have the same configuration."""
    found: list[str] = []
    by_config: dict[str, RunSpec] = {}
    for spec in specs:
        other = by_config.setdefault(spec.config.model_dump_json(), spec)
        if other is not spec:
            found.append(
                f"{spec.name} is the same run as {other.name}: expected a variant to change a "
                "setting; remove one of them"
            )
    return found


def _wrong_space(search: Search, specs: Sequence[RunSpec]) -> list[str]:
    """Errors for values at the ends of ranges and for choices, each with the others' first."""
    first = {key: values.ends[0] for key, values in search.space.items()}
    found: dict[str, None] = {}
    for spec in specs:
        for key, values in search.space.items():
            for value in values.ends:
                try:
                    spec.with_settings("", first | {key: value})
                except ConfigError as error:
                    found |= dict.fromkeys(str(error).splitlines())
    return list(found)
