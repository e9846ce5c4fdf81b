"""Finds and loads run folders: configuration, learning curves, Σ̄, timings and state."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import numpy as np

from noisynet.envs import parse_environment
from noisynet.reports.agents import AGENTS, NOT_SETTINGS, STYLES
from noisynet.reports.scores import Floats
from noisynet.runs import RunRecord, Unreadable, find_run_folders
from noisynet.runs import read_run as read_folder
from noisynet.runs.encoding import flatten
from noisynet.runs.reading import EvaluationRow

NoiseMode = Literal["on", "off"]

FAMILY_TITLES: Final = {
    "atari": "Atari",
    "minatar": "MinAtar",
    "deep_sea": "Deep Sea",
    "gym": "Gymnasium",
    "object": "Environments given as objects",
    "function": "Environments given as functions",
}
"""Families of environments, and their titles."""

SIGMA_POINTS: Final = 200
"""Σ̄ is sampled at this many points of the budget: a plot cannot show every training row."""

_MOST_POINTS: Final = 100_000  # of a curve


class ReportError(Exception):
    """A report cannot be written; the message is for the user."""


@dataclass(frozen=True, order=True)
class Protocol:
    """What must be equal for the scores of two runs to be compared.

    `max_episode_frames` is 0 for the environment's own limit.
    """

    budget_frames: int
    period_frames: int
    evaluation_frames: int
    max_episode_frames: int

    def point(self, frames: int) -> int:
        """The number of the evaluation at `frames`, from 1; 0 before the first period.

        The last one is at the end of the budget. With several environments an evaluation comes a
        few frames after its period.
        """
        if frames >= self.budget_frames:
            return -(-self.budget_frames // self.period_frames)
        return frames // self.period_frames

    def frames(self, point: int) -> int:
        """The frames at which an evaluation is due: after every period, or at the end."""
        return min(point * self.period_frames, self.budget_frames)

    def __str__(self) -> str:
        limit = f"{self.max_episode_frames:,} frames" if self.max_episode_frames else "no limit"
        return (
            f"{self.budget_frames:,} frames of training, evaluated every {self.period_frames:,} "
            f"for {self.evaluation_frames:,}, episode limit: {limit}"
        )

    def difference(self, others: Sequence[Protocol]) -> str:
        """What tells it from `others`, which include it, as in "10,000,000 frames".

        No more than is needed: a longer budget usually has longer periods, too.
        """
        limit = self.max_episode_frames
        texts = {
            "budget_frames": f"{self.budget_frames:,} frames",
            "period_frames": f"evaluated every {self.period_frames:,}",
            "evaluation_frames": f"evaluated for {self.evaluation_frames:,}",
            "max_episode_frames": f"episode limit {limit:,}" if limit else "no episode limit",
        }
        told: list[str] = []
        rest = [one for one in others if one != self]
        for name, text in texts.items():
            alike = [one for one in rest if getattr(one, name) == getattr(self, name)]
            if len(alike) < len(rest):
                told, rest = [*told, text], alike
        return ", ".join(told)


@dataclass(frozen=True)
class Run:
    """One run folder.

    `settings` are all of its configuration but its identity and protocol, by dotted key, as JSON,
    and `options` those of the environment. `curves` has the score of each evaluation [K] by noise
    mode, after every period and at the end, NaN where there is none; agents without noise have only
    "off", and `score_noise` is the mode that counts. `sigma` is Σ̄ by layer, [SIGMA_POINTS], NaN at
    points without a row. Seconds include work repeated after interruptions. `made_by` has a text
    for each change of versions, commit, machine or device.
    """

    path: Path
    agent: str
    environment: str
    options: str
    seed: int
    protocol: Protocol
    settings: Mapping[str, str]
    score_noise: NoiseMode
    curves: Mapping[NoiseMode, Floats] = field(repr=False)
    sigma: Mapping[str, Floats] = field(repr=False)
    training_seconds: float
    evaluation_seconds: float
    steps_per_second: float
    state: str
    remarks: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder's path as valid UTF-8."""
        return _printable(self.path)

    @property
    def curve(self) -> Floats:
        """The curve of the run's score."""
        return self.curves.get(self.score_noise, np.empty(0))

    @property
    def family(self) -> str:
        """The family of its environment: atari, minatar, deep_sea or gym."""
        return parse_environment(self.environment)[0]


def _printable(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


# --- folders -------------------------------------------------------------------------------------


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


def read_runs(folders: Sequence[Path]) -> tuple[list[Run], dict[str, str]]:
    """Load every folder; those that cannot be loaded are returned by name, with the reason."""
    runs, skipped = [], {}
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except ReportError as error:
            skipped[_printable(folder)] = str(error)
    return runs, skipped


def read_run(path: Path) -> Run:
    """Load one run folder.

    Raises:
        ReportError: It cannot be read, or its configuration is not one of a run.
    """
    record = read_folder(path, points=SIGMA_POINTS)
    if isinstance(record, Unreadable):
        raise ReportError(record.reason)
    config = record.config
    _check_config(record)
    protocol = Protocol(
        config.frames,
        config.evaluation.period_frames,
        config.evaluation.frames,
        config.max_episode_frames or 0,
    )
    noisy = STYLES[config.agent].noisy
    curves, remarks = _curves(record.evaluations, protocol)
    training = sum(row.seconds for row in record.timing if row.kind == "train")
    steps = sum(row.seconds * row.steps_per_second for row in record.timing if row.kind == "train")
    status = record.status
    if status is not None and status.state == "failed":
        remarks.append(f"failed: {status.reason or 'no reason given'}")
    settings = {key: value for key, value in record.settings.items() if key not in NOT_SETTINGS}
    score_noise: NoiseMode = "on" if noisy else "off"
    if noisy and config.exploration.evaluation == "off":
        score_noise = "off"
    return Run(
        path=path,
        agent=config.agent,
        environment=config.environment,
        options=json.dumps(config.environment_options, sort_keys=True),
        seed=config.seed,
        protocol=protocol,
        settings={key: json.dumps(value) for key, value in flatten(settings).items()},
        score_noise=score_noise,
        curves=curves,
        sigma=_sigma(record) if noisy else {},
        training_seconds=training,
        evaluation_seconds=sum(row.seconds for row in record.timing if row.kind == "evaluation"),
        steps_per_second=steps / training if training > 0 else math.nan,
        state=status.state if status else "no status",
        remarks=tuple(remarks),
        made_by=tuple(map(str, config.made_by)),
    )


def _check_config(record: RunRecord) -> None:
    """Raise `ReportError` for what reports do not know."""
    config, wrong = record.config, ""
    if config.agent not in STYLES:
        wrong = f"has agent {config.agent!r}, expected one of {', '.join(AGENTS)}"
    elif config.frames // config.evaluation.period_frames > _MOST_POINTS:
        wrong = f"has more than {_MOST_POINTS:,} evaluations"
    else:
        try:
            parse_environment(config.environment)
        except ValueError as error:
            wrong = f"has another environment: {error}"
    if wrong:
        raise ReportError(f"{record.path / 'config.json'} {wrong}; leave this folder out")


def _sigma(record: RunRecord) -> dict[str, Floats]:
    """Σ̄ of each layer [SIGMA_POINTS]."""
    sigma: dict[str, Floats] = {}
    for row in record.training:
        point = min(row.frames * SIGMA_POINTS // record.config.frames, SIGMA_POINTS - 1)
        for layer, value in (row.sigma or {}).items():
            values = sigma.setdefault(layer, np.full(SIGMA_POINTS, np.nan))
            values[point] = value if math.isfinite(value) else math.nan
    return sigma


def _curves(
    rows: Sequence[EvaluationRow], protocol: Protocol
) -> tuple[dict[NoiseMode, Floats], list[str]]:
    """The curve of each noise mode, and remarks for the table of runs."""
    found: dict[NoiseMode, dict[int, float]] = {}
    partial = broken = 0
    for row in rows:
        if not math.isfinite(row.score):
            broken += 1
            continue
        # The end of an earlier, shorter budget was off the schedule, and has no point of its own.
        if point := protocol.point(row.frames):
            found.setdefault(row.noise, {}).setdefault(point, row.score)
        partial += not row.completed
    remarks = []
    if partial:
        remarks.append(
            f"{partial} of {len(rows)} evaluations completed no episode: their scores are partial "
            "returns"
        )
    if broken:
        remarks.append(f"{broken} evaluations without a finite score are ignored")
    curves = {}
    for mode, scores in found.items():
        curves[mode] = np.full(max(scores), np.nan)
        for point, score in scores.items():
            curves[mode][point - 1] = score
    return curves, remarks
