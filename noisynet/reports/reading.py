"""Run folders as the report sees them: configuration, curves, Σ̄, speed and state."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from noisynet.reports.agents import AGENTS, STYLES
from noisynet.reports.rows import (
    Curve,
    Noise,
    Timing,
    curves_of,
    read_evaluations_and_sigma,
    read_timing,
)
from noisynet.reports.scores import Floats
from noisynet.runs import RunError, RunFolder

SUITES: Final = {
    "atari": "Atari",
    "minatar": "MinAtar",
    "deep_sea": "Deep Sea",
    "gym": "Gymnasium",
}
"""Families of environments, and what people call them."""

# What does not make two runs different agents: identity, protocol, and when files are written.
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
    """What stops a report from being made; the message is meant for the user."""


@dataclass(frozen=True, order=True)
class Protocol:
    """What must be equal for the scores of two runs to be compared.

    Attributes:
        budget_frames: how long the agent is trained.
        period_frames: from one evaluation to the next.
        evaluation_frames: how long each evaluation plays.
        max_episode_frames: where episodes are cut; 0: the environment's own limit.
    """

    budget_frames: int
    period_frames: int
    evaluation_frames: int
    max_episode_frames: int

    def __str__(self) -> str:
        cap = f"{self.max_episode_frames:,} frames" if self.max_episode_frames else "no limit"
        return (
            f"{self.budget_frames:,} frames of training, evaluated every {self.period_frames:,} "
            f"for {self.evaluation_frames:,}, episode limit: {cap}"
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
        protocol: what it may be compared under.
        settings: everything else in its configuration, dotted key to JSON.
        score_noise: which of the two curves is *the* score.
        curves: by noise; a plain agent has only "off".
        sigma: Σ̄ by layer, [SIGMA_POINTS]; NaN where no row was written.
        timing: how long it took.
        state: what status.json says.
        remarks: what must be said about it.
    """

    path: Path
    agent: str
    environment: str
    options: str
    seed: int
    protocol: Protocol
    settings: Mapping[str, str]
    score_noise: Noise
    curves: Mapping[Noise, Curve] = field(repr=False)
    sigma: Mapping[str, Floats] = field(repr=False)
    timing: Timing
    state: str
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder's path, readable even where it is not valid UTF-8."""
        return os.fsencode(self.path).decode("utf-8", "replace")

    @property
    def curve(self) -> Curve:
        """The curve of *the* score."""
        empty = Curve(np.empty(0, np.int64), np.empty(0))
        return self.curves.get(self.score_noise, empty)

    @property
    def suite(self) -> str:
        """The family of its environment: atari, minatar, deep_sea or gym."""
        return self.environment.split("/", 1)[0]


@dataclass(frozen=True)
class Unreadable:
    """A folder that cannot be part of the report, and why."""

    path: Path
    reason: str


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Run folders at and below `paths`, sorted, each once.

    Raises:
        ReportError: A path that is not there, or no run folder at all.
    """
    if not paths:
        raise ReportError("expected at least one run folder or a folder of run folders, got none")
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            what = "a file" if path.exists() else "nothing"
            raise ReportError(
                f"expected a folder of runs at {path}, found {what}; give the --out of your runs"
            )
        for folder in _folders_with_config(path):
            found.setdefault(folder.resolve(), folder)
    if not found:
        places = ", ".join(str(path) for path in paths)
        raise ReportError(
            f"no runs found in {places}: expected folders that hold a config.json, as `noisynet "
            "train` and `noisynet sweep` make them; give the --out of your runs"
        )
    return sorted(found.values())


def _folders_with_config(path: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(path):
        if "config.json" in files:
            below.clear()  # a run has thousands of files, and none of them is another run
            yield Path(folder)
        below.sort()


def read_runs(folders: Sequence[Path]) -> tuple[list[Run], list[Unreadable]]:
    """Read each folder; one that cannot be read does not stop the others."""
    runs, unreadable = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except (RunError, ReportError) as error:
            unreadable.append(Unreadable(folder, str(error)))
    return runs, unreadable


def read_run(path: Path) -> Run:
    """Read one run folder.

    Raises:
        RunError: A file that cannot be read or is not what was written.
        ReportError: A configuration that is not a run's.
    """
    folder = RunFolder(path)
    config = _checked_config(folder)
    cap = config["max_episode_frames"]
    protocol = Protocol(
        config["frames"],
        config["evaluation"]["period_frames"],
        config["evaluation"]["frames"],
        0 if cap is None else cap,
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
            "another kind than expected; leave this folder out"
        )
    if config["agent"] not in STYLES:
        raise ReportError(
            f"{folder.config_path} has agent {config['agent']!r}, expected one of "
            f"{', '.join(AGENTS)}; leave this folder out"
        )
    suite = config["environment"].split("/", 1)[0]
    if suite not in SUITES:
        raise ReportError(
            f"{folder.config_path} has environment {config['environment']!r}, expected one of the "
            f"families {', '.join(SUITES)}; leave this folder out"
        )
    defaults: dict[str, Any] = {
        "max_episode_frames": None,
        "environment_options": {},
        "exploration": {},
    }
    return {**defaults, **config}


def _settings(config: Mapping[str, Any]) -> dict[str, str]:
    """What makes this agent what it is, by dotted key."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if name in _NOT_SETTINGS:
            continue
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": json.dumps(item) for inner, item in value.items()}
        else:
            flat[name] = json.dumps(value)
    return flat
