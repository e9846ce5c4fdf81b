"""Finds and loads run folders: configuration, learning curves, Σ̄, timings and state."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from noisynet.envs import parse_environment
from noisynet.reports.agents import AGENTS, STYLES
from noisynet.reports.load_metrics import (
    Curve,
    NoiseMode,
    Timing,
    curves_of,
    read_evaluations_and_sigma,
    read_timing,
)
from noisynet.reports.scores import Floats
from noisynet.runs import RunError, RunFolder, find_run_folders
from noisynet.runs.encoding import flatten

FAMILY_TITLES: Final = {
    "atari": "Atari",
    "minatar": "MinAtar",
    "deep_sea": "Deep Sea",
    "gym": "Gymnasium",
    "object": "Environments given as objects",
    "function": "Environments given as functions",
}
"""Families of environments, and their titles."""

# Settings on which runs of one contender may differ: identity, protocol and logging.
_NOT_SETTINGS: Final = (
    "agent",
    "environment",
    "environment_options",
    "seed",
    "frames",
    "evaluation",
    "max_episode_frames",
    "checkpoint_period_frames",
    "log_period_steps",
    "threads",
)


class ReportError(Exception):
    """A report cannot be written; the message is for the user."""


@dataclass(frozen=True, order=True)
class Protocol:
    """What must be equal for the scores of two runs to be compared.

    Attributes:
        budget_frames: how long the agent is trained.
        period_frames: from one evaluation to the next.
        evaluation_frames: how long each evaluation plays.
        max_episode_frames: where episodes are truncated; 0 for the environment's own limit.
    """

    budget_frames: int
    period_frames: int
    evaluation_frames: int
    max_episode_frames: int

    def __str__(self) -> str:
        limit = f"{self.max_episode_frames:,} frames" if self.max_episode_frames else "no limit"
        return (
            f"{self.budget_frames:,} frames of training, evaluated every {self.period_frames:,} "
            f"for {self.evaluation_frames:,}, episode limit: {limit}"
        )


@dataclass(frozen=True)
class Run:
    """One run folder.

    Attributes:
        path: the folder.
        agent: its name, one of `AGENTS`.
        environment: as in "atari/pong".
        options: of the environment, as JSON with sorted keys.
        seed: of the run.
        protocol: its budget and evaluations.
        settings: everything else in its configuration, by dotted key, as JSON.
        score_noise: the noise mode whose curve is the run's score.
        curves: by noise mode; agents without noise have only "off".
        sigma: Σ̄ by layer, [SIGMA_POINTS]; NaN at points without a row.
        timing: its duration.
        state: of status.json.
        remarks: for the table of runs.
    """

    path: Path
    agent: str
    environment: str
    options: str
    seed: int
    protocol: Protocol
    settings: Mapping[str, str]
    score_noise: NoiseMode
    curves: Mapping[NoiseMode, Curve] = field(repr=False)
    sigma: Mapping[str, Floats] = field(repr=False)
    timing: Timing
    state: str
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder's path as valid UTF-8."""
        return _printable(self.path)

    @property
    def curve(self) -> Curve:
        """The curve of the run's score."""
        empty = Curve(np.empty(0, np.int64), np.empty(0))
        return self.curves.get(self.score_noise, empty)

    @property
    def family(self) -> str:
        """The family of its environment: atari, minatar, deep_sea or gym."""
        return parse_environment(self.environment)[0]


@dataclass(frozen=True)
class SkippedFolder:
    """A folder that cannot be loaded, and why."""

    path: Path
    reason: str

    @property
    def name(self) -> str:
        """The folder's path as valid UTF-8."""
        return _printable(self.path)


def _printable(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Run folders at and below `paths`, sorted, each once.

    Raises:
        ReportError: A path does not exist, or there are no run folders.
    """
    if not paths:
        raise ReportError("expected at least one run folder or a folder of run folders, got none")
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            what = "a file" if path.exists() else "nothing"
            raise ReportError(
                f"expected a folder of runs at {path}, got {what}; give the --out of your runs"
            )
        for folder in find_run_folders(path):
            found.setdefault(folder.resolve(), folder)
    if not found:
        searched = ", ".join(str(path) for path in paths)
        raise ReportError(
            f"no runs found in {searched}: expected folders with a config.json, as written by "
            "`noisynet train` and `noisynet sweep`; give the --out of your runs"
        )
    return sorted(found.values())


def read_runs(folders: Sequence[Path]) -> tuple[list[Run], list[SkippedFolder]]:
    """Load every folder; those that cannot be loaded are returned with the reason."""
    runs, skipped = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except (RunError, ReportError) as error:
            skipped.append(SkippedFolder(folder, str(error)))
    return runs, skipped


def read_run(path: Path) -> Run:
    """Load one run folder.

    Raises:
        RunError: A file cannot be read or is damaged.
        ReportError: The configuration is not one of a run.
    """
    folder = RunFolder(path)
    config = _checked_config(folder)
    protocol = Protocol(
        config["frames"],
        config["evaluation"]["period_frames"],
        config["evaluation"]["frames"],
        config["max_episode_frames"] or 0,
    )
    noisy = STYLES[config["agent"]].noisy
    rows, sigma = read_evaluations_and_sigma(folder.metrics_path, config["frames"], noisy)
    curves, remarks = curves_of(folder.metrics_path, rows, protocol.period_frames)
    status = folder.read_status() or {}
    state = str(status.get("state", "no status"))
    if state == "failed":
        remarks.append(f"failed: {status.get('reason', 'no reason given')}")
    return Run(
        path=path,
        agent=config["agent"],
        environment=config["environment"],
        options=json.dumps(config["environment_options"], sort_keys=True),
        seed=config["seed"],
        protocol=protocol,
        settings=_settings(config),
        score_noise=config["exploration"].get("evaluation", "on") if noisy else "off",
        curves=curves,
        sigma=sigma,
        timing=read_timing(folder.timing_path),
        state=state,
        remarks=tuple(remarks),
    )


# --- configuration -------------------------------------------------------------------------------


def _checked_config(folder: RunFolder) -> dict[str, Any]:
    config = folder.read_config()
    given = config.get("evaluation")
    evaluation = given if isinstance(given, dict) else {}
    found = {
        "seed": config.get("seed"),
        "frames": config.get("frames"),
        "evaluation.period_frames": evaluation.get("period_frames"),
        "evaluation.frames": evaluation.get("frames"),
    }
    wrong = [key for key in ("agent", "environment") if not isinstance(config.get(key), str)]
    wrong += [
        key
        for key, value in found.items()
        if not isinstance(value, int) or value < (0 if key == "seed" else 1)
    ]
    if wrong:
        raise ReportError(
            f"{folder.config_path} is not a run's configuration: {', '.join(wrong)} missing or of "
            "the wrong type; leave this folder out"
        )
    if config["agent"] not in STYLES:
        raise ReportError(
            f"{folder.config_path} has agent {config['agent']!r}, expected one of "
            f"{', '.join(AGENTS)}; leave this folder out"
        )
    try:
        parse_environment(config["environment"])
    except ValueError as error:
        raise ReportError(f"{folder.config_path}: {error}; leave this folder out") from error
    defaults: dict[str, Any] = {
        "max_episode_frames": None,
        "environment_options": {},
        "exploration": {},
    }
    return {**defaults, **config}


def _settings(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings that define the agent, by dotted key."""
    settings = {key: value for key, value in config.items() if key not in _NOT_SETTINGS}
    return {key: json.dumps(value) for key, value in flatten(settings).items()}
