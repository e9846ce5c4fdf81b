"""The studies, and their committed data: `results/<study>/data.jsonl`, a run on each line."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from noisynet.envs import parse_environment
from noisynet.reports.agents import STYLES, Contender
from noisynet.reports.load_runs import NoiseMode
from noisynet.reports.scores import Floats, run_scores

RESULTS: Final = Path(__file__).parent
DATA: Final = "data.jsonl"
PROVENANCE: Final = "provenance.json"
MAX_BYTES: Final = 5_000_000
"""Of the data of all studies together."""
_SIGNIFICANT: Final = 6
_SOLVED: Final = 0.5  # Deep Sea's return is 0.99 with the treasure, at most 0 without
_LASTING: Final = 2  # evaluations at the end that reach it, at least

STUDIES: Final[dict[str, str]] = {
    "deep-sea-fixed": "Deep Sea, fixed action map",
    "deep-sea-random": "Deep Sea, random action map",
    "minatar": "MinAtar, value agents",
    "minatar-a3c": "MinAtar, actor-critic agents",
    "rainbow": "MinAtar Breakout, C51 and Rainbow",
    "controls": "MinAtar, exploration or optimisation",
    "controls-freeway": "MinAtar Freeway, controls for DQN",
    "controls-a3c": "MinAtar Freeway, controls for A3C",
    "sigma0": "Initial size of the noise",
    "presets": "CartPole and Acrobot, presets that searches found",
    "batched-workers": "MinAtar Breakout, batched workers of A3C",
    "pong": "Atari Pong",
    "pong-2m": "Atari Pong, DQN for 2M frames",
}
"""Every study, in the order of the page, with its title."""

OF_VARIANTS: Final = ("presets", "batched-workers")
"""Studies that compare the settings of one agent: each variant with its runs without a variant."""

WITH_TRAINING: Final = ("pong", "pong-2m")
"""Studies that keep the returns of training games, too: some of their evaluations complete none."""

# What a variant of a plan is called in tables and figures.
_VARIANTS: Final[dict[str, str]] = {
    "acrobot": "preset acrobot",
    "acting-only": "noise in acting only",
    "by-episode": "noise redrawn by episode",
    "cartpole": "preset cartpole",
    "constant-epsilon": "constant ε = 0.1",
    "entropy-0": "no entropy bonus",
    "epsilon-0": "ε = 0",
    "frozen-sigma": "σ frozen",
    "learning-only": "noise in learning only",
    "mean": "mean over environments",
    "sigma0-0.1": "σ0 = 0.1",
    "sigma0-0.3": "σ0 = 0.3",
    "sigma0-1": "σ0 = 1",
    "sum": "sum over environments",
}
# The runs without a variant, in studies whose variants make that ambiguous.
_DEFAULTS: Final[dict[tuple[str, str], str]] = {
    ("batched-workers", "a3c"): "√N rule",
    ("deep-sea-fixed", "dqn"): "annealed ε",
    ("deep-sea-fixed", "noisynet-dqn"): "noise redrawn by action",
    ("deep-sea-random", "dqn"): "annealed ε",
    ("deep-sea-random", "noisynet-dqn"): "noise redrawn by action",
    ("presets", "dqn"): "preset classic",
    ("presets", "noisynet-dqn"): "preset classic",
    ("sigma0", "noisynet-dqn"): "σ0 = 0.5",
}


@dataclass(frozen=True)
class RunData:
    """What is committed of one run.

    Attributes:
        agent: its name.
        variant: of the plan; empty for none.
        environment: as in "minatar/breakout".
        seed: of the run.
        frames: the budget.
        period_frames: from one evaluation to the next.
        finished: whether the budget was reached.
        score_noise: the noise mode whose curve is the run's score.
        scores: by noise mode, the score of each evaluation [K], NaN where there is none; agents
            without noise have only "off".
        incomplete: by noise mode, the numbers of evaluations without a completed episode, from 1;
            their scores are partial returns.
        training: before each evaluation, the mean return of the last 100 training episodes [K];
            only in the studies `WITH_TRAINING`.
        sigma_frames: where Σ̄ was sampled [P].
        sigma: Σ̄ by layer [P].
    """

    agent: str
    variant: str
    environment: str
    seed: int
    frames: int
    period_frames: int
    finished: bool
    score_noise: NoiseMode
    scores: Mapping[NoiseMode, Floats] = field(repr=False)
    incomplete: Mapping[NoiseMode, Sequence[int]] = field(repr=False, default_factory=dict)
    training: Floats = field(repr=False, default_factory=lambda: np.empty(0))
    sigma_frames: Sequence[int] = field(repr=False, default=())
    sigma: Mapping[str, Floats] = field(repr=False, default_factory=dict)

    @property
    def contender(self) -> Contender:
        """The agent with its variant."""
        return Contender(self.agent, self.variant)

    @property
    def curve(self) -> Floats:
        """The curve of the run's score."""
        return self.scores.get(self.score_noise, np.empty(0))

    @property
    def points(self) -> int:
        """How many evaluations the whole run has."""
        return self.frames // self.period_frames

    @property
    def size(self) -> int:
        """The size of its Deep Sea, which is the length of its episodes."""
        return int(parse_environment(self.environment)[1])

    @property
    def budget_episodes(self) -> int:
        """The episodes of its Deep Sea."""
        return self.frames // self.size

    @property
    def solved_episodes(self) -> float:
        """Episodes of Deep Sea until the mean weights reach the treasure for good; ∞ if never.

        From there on every evaluation reaches it, two at least. The first one to reach it would not
        do: with a fixed action map an untrained network that prefers "right" everywhere does.
        """
        failed = np.flatnonzero(~(self.scores["off"] > _SOLVED))  # NaN has not reached it either
        first = int(failed[-1]) + 1 if failed.size else 0
        lasting = len(self.scores["off"]) - first >= _LASTING
        return (first + 1) * self.period_frames / self.size if lasting else math.inf

    def line(self) -> str:
        """The run as a line of `data.jsonl`."""
        row = dict(vars(self))
        for key in ("scores", "sigma"):
            row[key] = {name: _rounded(values) for name, values in row[key].items()}
        row["training"] = _rounded(self.training)
        for key in ("incomplete", "training", "sigma_frames", "sigma"):
            if not row[key]:
                del row[key]
        return json.dumps(row, separators=(",", ":"))


def parse_line(line: str) -> RunData:
    """A line of `data.jsonl`."""
    row = json.loads(line)
    for key in {"scores", "sigma"} & row.keys():
        row[key] = {name: np.array(values, float) for name, values in row[key].items()}
    if "training" in row:
        row["training"] = np.array(row["training"], float)
    return RunData(**row)


def _rounded(values: Iterable[float]) -> list[float | None]:
    """To six significant digits; NaN, which JSON lacks, is null."""
    return [None if math.isnan(v) else float(f"{v:.{_SIGNIFICANT}g}") for v in values]


@dataclass(frozen=True)
class StudyData:
    """The committed data of a study.

    Attributes:
        name: of its folder.
        runs: in the order of the plan.
        provenance: where the runs come from.
    """

    name: str
    runs: tuple[RunData, ...] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)

    @cached_property
    def contenders(self) -> list[Contender]:
        """In the order of the plan."""
        return list(dict.fromkeys(run.contender for run in self.runs))

    @cached_property
    def environments(self) -> list[str]:
        """In the order of the plan."""
        return list(dict.fromkeys(run.environment for run in self.runs))

    def of(self, contender: Contender, environment: str) -> list[RunData]:
        """The finished runs of a contender on an environment."""
        return [
            run
            for run in self.runs
            if run.finished and (run.contender, run.environment) == (contender, environment)
        ]

    def cells(self, environments: Sequence[str] | None = None) -> list[tuple[str, Contender]]:
        """The environments and contenders that have finished runs."""
        shown = self.environments if environments is None else environments
        return [(e, c) for e in shown for c in self.contenders if self.of(c, e)]

    def on(self, environments: Sequence[str]) -> StudyData:
        """The same study with the runs of some environments only."""
        runs = tuple(run for run in self.runs if run.environment in environments)
        return replace(self, runs=runs)

    def variant_title(self, contender: Contender) -> str:
        """The name of a contender's variant; empty for none, unless this study has one for it."""
        default = _DEFAULTS.get((self.name, contender.agent), "")
        return _VARIANTS.get(contender.variant, contender.variant) or default

    def title(self, contender: Contender) -> str:
        """The name of a contender in the tables and figures of this study."""
        variant = self.variant_title(contender)
        if self.name == "sigma0":
            return variant
        title = STYLES[contender.agent].title
        return f"{title}, {variant}" if variant else title


def baseline(contender: Contender) -> Contender:
    """The agent without noise that a noisy one is compared with."""
    return Contender(contender.style.baseline)


def environment_title(environment: str) -> str:
    """The name of an environment: "MinAtar Space Invaders", "Deep Sea 10", "CartPole-v1"."""
    family, game = parse_environment(environment)
    if family == "gym":
        return game
    families = {"minatar": "MinAtar", "deep_sea": "Deep Sea", "atari": "Atari"}
    return f"{families.get(family, family)} {game.replace('_', ' ').title()}"


def short_title(environment: str) -> str:
    """The name of an environment within a study of its family: "Space Invaders", "10"."""
    family, game = parse_environment(environment)
    return game if family == "gym" else game.replace("_", " ").title()


# --- numbers of runs -----------------------------------------------------------------------------


def curves(runs: Sequence[RunData], noise: NoiseMode | None = None) -> Floats:
    """The evaluations of runs with one budget: [S, K], NaN for missing ones.

    Args:
        runs: at least one, finished or not.
        noise: with noise on or off; None for the mode of the run's score.
    """
    found = np.full((len(runs), max(run.points for run in runs)), np.nan)
    for row, run in zip(found, runs, strict=True):
        curve = run.curve if noise is None else run.scores.get(noise, np.empty(0))
        row[: len(curve)] = curve[: len(row)]
    return found


def training_curves(runs: Sequence[RunData]) -> Floats:
    """The mean return of the last 100 training episodes, of runs with one budget: [S, K]."""
    found = np.full((len(runs), max(run.points for run in runs)), np.nan)
    for row, run in zip(found, runs, strict=True):
        row[: len(run.training)] = run.training
    return found


def maxima(runs: Sequence[RunData], noise: NoiseMode | None = None) -> Floats:
    """The score of each run, the maximum of its evaluations (section 4.1): [S]."""
    return run_scores(curves(runs, noise))


def means(runs: Sequence[RunData]) -> Floats:
    """The mean of each run's curve, which is higher the sooner it learns: [S]."""
    return np.asarray(np.nanmean(curves(runs), axis=1))


def noise_differences(runs: Sequence[RunData]) -> Floats:
    """Score with noise minus score of the same weights without, second half of each run: [S]."""
    both = curves(runs, "on") - curves(runs, "off")
    return np.asarray(np.nanmean(both[:, both.shape[1] // 2 :], axis=1))


GROUP_TITLES: Final = {
    "hidden": "hidden layers",
    "last": "last layers",
    "policy": "policy layer",
    "value": "value layer",
}
"""Groups of noisy layers; A3C's last layers are a group each."""


def layer_groups(layers: Iterable[str]) -> dict[str, list[str]]:
    """The noisy layers of a network: hidden and last ones, or A3C's hidden ones, policy and value.

    Layers of one stream are numbered, as in "head.value.0" and "head.value.2": the highest number
    is its last one. A3C's hidden layers are a stream of their own, "hidden.0"; its policy and its
    value have one layer each.
    """
    streams: dict[str, list[str]] = {}
    for layer in layers:
        stream, _, number = layer.rpartition(".")
        streams.setdefault(stream if number.isdigit() else layer, []).append(layer)
    groups: dict[str, list[str]] = {"hidden": []}
    for stream, names in streams.items():
        if stream.startswith("hidden"):
            groups["hidden"] += names
        elif stream in ("policy", "value"):
            groups[stream] = names
        else:
            *hidden, last = sorted(names, key=lambda name: int(name.rpartition(".")[2]))
            groups["hidden"] += hidden
            groups.setdefault("last", []).append(last)
    return {group: names for group, names in groups.items() if names}


def sigma_ends(runs: Sequence[RunData], layers: Sequence[str]) -> tuple[Floats, Floats]:
    """Σ̄ at the beginning and at the end of each run, mean over layers: [S] each."""
    first, last = ([[run.sigma[name][i] for name in layers] for run in runs] for i in (0, -1))
    return np.mean(first, axis=1), np.mean(last, axis=1)


# --- files ---------------------------------------------------------------------------------------


def load_study(name: str, results: Path = RESULTS) -> StudyData | None:
    """The data of a study; None if it has none yet."""
    folder = results / name
    if not (folder / DATA).exists():
        return None
    lines = (folder / DATA).read_text().splitlines()
    provenance = json.loads((folder / PROVENANCE).read_text())
    return StudyData(name, tuple(map(parse_line, lines)), provenance)


def digest(name: str, results: Path = RESULTS) -> str:
    """The SHA-256 of a study's data; empty if it has none yet."""
    path = results / name / DATA
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def plan_digest(plan: Path) -> str:
    """The SHA-256 of what a plan says, whatever its comments."""
    parsed = json.dumps(tomllib.loads(plan.read_text()), sort_keys=True)
    return hashlib.sha256(parsed.encode()).hexdigest()
