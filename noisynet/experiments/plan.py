"""From a plan to the runs that it asks for, each checked before any of them starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisynet.config import (
    ActorCriticConfig,
    Config,
    ConfigError,
    build_config,
    load_config,
    parse_count,
)
from noisynet.experiments.plan_file import PlanError, PlanFile, PlanReader, Rule, read_plan


@dataclass(frozen=True)
class RunSpec:
    """One run that a plan asks for.

    Attributes:
        agent: its name.
        environment: its name.
        seed: decides every random stream.
        variant: the name of what is different, "" for nothing.
        preset: of the settings, None for the one of the environment's family.
        settings: `key=value`, as after `--set`.
        out: parent of the run folders.
        config: what all of this comes to.
    """

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
        """The budget."""
        return self.config.frames

    @property
    def label(self) -> str:
        """The agent with its variant, as in the name of the folder."""
        return f"{self.agent}+{self.variant}" if self.variant else self.agent

    @property
    def name(self) -> str:
        """The run folder below `out`; without a variant it is the one of `noisynet train`."""
        return f"{self.environment}/{self.label}/seed-{self.seed}"

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.out / self.name

    @property
    def log(self) -> Path:
        """Where what the run's processes say is kept, beside the folder."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def family(self) -> str:
        """The first part of the environment's name."""
        return self.environment.partition("/")[0]

    @property
    def processes(self) -> int:
        """How many cores the run can make use of: one for each worker."""
        return self.config.workers if isinstance(self.config, ActorCriticConfig) else 1

    def arguments(self) -> list[str]:
        """What follows `noisynet` on the command line of this run."""
        preset = [] if self.preset is None else ["--preset", self.preset]
        settings = [part for setting in self.settings for part in ("--set", setting)]
        return [
            *("train", self.agent, self.environment, "--frames", str(self.frames)),
            *("--seed", str(self.seed), *preset, *settings),
            *("--out", str(self.out), "--name", self.name),
        ]

    def to_json(self) -> dict[str, Any]:
        """What another machine needs to know of it, JSON-able."""
        fields = {key: getattr(self, key) for key in ("agent", "environment", "seed", "variant")}
        return fields | {
            "preset": self.preset,
            "settings": list(self.settings),
            "out": str(self.out),
            "config": self.config.model_dump(mode="json"),
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> RunSpec:
        """What `to_json` gave."""
        more = {
            "settings": tuple(stored["settings"]),
            "out": Path(stored["out"]),
            "config": load_config(stored["config"]),
        }
        return cls(**(stored | more))


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep.

    Attributes:
        name: as the command gave it.
        out: parent of the run folders.
        specs: the runs, all agents and environments of a seed before the next seed, so that an
            unfinished sweep has something to compare.
    """

    name: str
    out: Path
    specs: tuple[RunSpec, ...]


def build_plan(
    plan: str,
    *,
    out: Path,
    agents: str | Sequence[str] | None = None,
    environments: str | Sequence[str] | None = None,
    seeds: int | str | Sequence[int] | None = None,
    frames: int | str | None = None,
) -> Plan:
    """The runs that a plan asks for, all of them valid; nothing on disk is touched.

    Args:
        plan: one of `PLANS`, or the path of a TOML file.
        out: parent of the run folders.
        agents: in place of the plan's: names or patterns, as a list or with commas; "all".
        environments: likewise.
        seeds: likewise: how many, or which, as in "0,7" or "3-5".
        frames: in place of every budget in the plan.

    Raises:
        PlanError: listing everything that is wrong, with the nearest valid names.
    """
    document, source = read_plan(plan)
    reader = PlanReader(document)
    file = reader.read(agents=agents, environments=environments, seeds=seeds)
    errors = [f"{source}: {error}" for error in reader.errors]
    budget = None
    if frames is not None:
        try:
            budget = parse_count(str(frames))
        except ValueError as error:
            errors.append(f"--frames {error}")
    builder = _Builder(file, out, budget)
    specs = builder.specs()
    errors += builder.complaints() + ([] if builder.faults else _doubles(specs))
    if not (errors or specs):
        errors.append(f"{source}: expected at least one run, got none; see variants_only")
    if errors:
        raise PlanError("\n".join(errors))
    return Plan(plan, out, tuple(specs))


class _Builder:
    """Makes the runs of a plan, and remembers which of them cannot be and why."""

    def __init__(self, file: PlanFile, out: Path, budget: int | None) -> None:
        self.file, self.out, self.budget = file, out, budget
        self.faults: dict[str, list[str]] = {}

    def specs(self) -> list[RunSpec]:
        plain = () if self.file.variants_only else (Rule(),)
        made = [
            self._spec(agent, environment, seed, variant)
            for seed in self.file.seeds
            for environment in self.file.environments
            for agent in self.file.agents
            for variant in (*plain, *self.file.variants)
            if variant.fits(agent, environment)
        ]
        return [spec for spec in made if spec is not None]

    def _spec(self, agent: str, environment: str, seed: int, variant: Rule) -> RunSpec | None:
        rules = [rule for rule in self.file.rules if rule.fits(agent, environment)] + [variant]
        frames = [rule.frames for rule in rules if rule.frames is not None]
        presets = [rule.preset for rule in rules if rule.preset is not None]
        preset = presets[-1] if presets else None
        settings = tuple(setting for rule in rules for setting in rule.settings)
        try:
            config = build_config(
                agent,
                environment,
                frames=self.budget or (frames[-1] if frames else None),
                seed=seed,
                preset=preset,
                settings=settings,
            )
        except ConfigError as error:
            label = f"{agent}+{variant.name}" if variant.name else agent
            for line in str(error).splitlines():
                self.faults.setdefault(line, []).append(f"{label} on {environment}, seed {seed}")
            return None
        return RunSpec(agent, environment, seed, variant.name, preset, settings, self.out, config)

    def complaints(self) -> list[str]:
        """Each fault once, with the runs that it is of."""
        return [
            f"{line} (in {runs[0]}{f' and {len(runs) - 1:,} more' if runs[1:] else ''})"
            for line, runs in self.faults.items()
        ]


def _doubles(specs: Sequence[RunSpec]) -> list[str]:
    """Runs that would be the same twice, under one name or two."""
    found: list[str] = []
    by_config: dict[str, RunSpec] = {}
    for spec in specs:
        other = by_config.setdefault(spec.config.model_dump_json(), spec)
        if other is not spec:
            found.append(
                f"{spec.name} is the same run as {other.name}: expected a variant to change a "
                "setting; leave one of them out"
            )
    return found
