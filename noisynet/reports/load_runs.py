"""Finds and loads run folders: configuration, learning curves, Σ̄, timings and state."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from noisynet.envs import parse_environment
from noisynet.reports.agents import AGENTS, NOT_SETTINGS, STYLES
from noisynet.reports.scores import Floats
from noisynet.runs import RunDamaged, RunError, RunFolder, find_run_folders, read_metrics
from noisynet.runs.encoding import flatten

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

# The integers that a configuration must have, and their least values.
_LEAST: Final = {"seed": 0, "frames": 1, "evaluation.period_frames": 1, "evaluation.frames": 1}


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
        except (RunError, ReportError) as error:
            skipped[_printable(folder)] = str(error)
    return runs, skipped


def read_run(path: Path) -> Run:
    """Load one run folder.

    Raises:
        RunError: A file cannot be read or is damaged.
        ReportError: The configuration is not one of a run.
    """
    folder = RunFolder(path)
    config = _checked_config(folder)
    evaluation = config["evaluation"]
    limit = config.get("max_episode_frames") or 0
    protocol = Protocol(config["frames"], evaluation["period_frames"], evaluation["frames"], limit)
    noisy = STYLES[config["agent"]].noisy
    rows, sigma = read_evaluations_and_sigma(folder.metrics_path, config["frames"], noisy)
    curves, remarks = _curves(folder.metrics_path, rows, protocol)
    training, evaluating, steps = read_timing(folder.timing_path)
    status = folder.read_status() or {}
    state = str(status.get("state", "no status"))
    if state == "failed":
        remarks.append(f"failed: {status.get('reason', 'no reason given')}")
    settings = {key: value for key, value in config.items() if key not in NOT_SETTINGS}
    return Run(
        path=path,
        agent=config["agent"],
        environment=config["environment"],
        options=json.dumps(config.get("environment_options", {}), sort_keys=True),
        seed=config["seed"],
        protocol=protocol,
        settings={key: json.dumps(value) for key, value in flatten(settings).items()},
        score_noise=config.get("exploration", {}).get("evaluation", "on") if noisy else "off",
        curves=curves,
        sigma=sigma,
        training_seconds=training,
        evaluation_seconds=evaluating,
        steps_per_second=steps / training if training > 0 else math.nan,
        state=state,
        remarks=tuple(remarks),
        made_by=_made_by(folder),
    )


def _made_by(folder: RunFolder) -> tuple[str, ...]:
    """What config.json says about versions, commit, machine and device; nothing in old runs."""
    try:
        makers = json.loads(folder.config_path.read_bytes()).get("made_by", [])
        return tuple(
            f"{', '.join(f'{name} {version}' for name, version in made['versions'].items())}; "
            f"commit {made['commit'] or 'unknown'}; {made['device']} of {made['machine']}, "
            f"{made['processor']}, {made['cores']} cores, {made['system']}"
            for made in makers
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RunDamaged(f"{folder.config_path} has a damaged made_by: {error!r}") from error


def _checked_config(folder: RunFolder) -> dict[str, Any]:
    config = folder.read_config()
    flat = flatten(config)
    wrong = [key for key in ("agent", "environment") if not isinstance(flat.get(key), str)]
    wrong += [
        key
        for key, least in _LEAST.items()
        if not isinstance(flat.get(key), int) or flat[key] < least
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
    return config


# --- metrics.jsonl and timing.jsonl --------------------------------------------------------------

_TRAIN: Final = b'{"kind":"train","frames":'


def read_evaluations_and_sigma(
    path: Path, budget_frames: int, noisy: bool
) -> tuple[list[dict[str, Any]], dict[str, Floats]]:
    """The evaluation rows of a run, and Σ̄ of each layer [SIGMA_POINTS].

    A run of the paper's length has a hundred thousand rows. Their kind is read from the first bytes
    of each line, and only the needed ones are decoded.
    """
    others: list[bytes] = []
    sampled: dict[int, bytes] = {}
    for line in _lines(path):
        if not line.startswith((b'{"kind":"episode"', b'{"kind":"train"')):
            others.append(line)
        elif noisy and line.startswith(_TRAIN):
            frames = int(line[len(_TRAIN) : line.index(b",", len(_TRAIN))])
            sampled[min(frames * SIGMA_POINTS // budget_frames, SIGMA_POINTS - 1)] = line
    sigma: dict[str, Floats] = {}
    for point, row in zip(sampled, _decoded(path, list(sampled.values())), strict=True):
        for layer, value in (row.get("sigma") or {}).items():
            sigma.setdefault(layer, np.full(SIGMA_POINTS, np.nan))[point] = float(value)
    rows = [row for row in _decoded(path, others) if row.get("kind") == "evaluation"]
    return rows, sigma


def read_timing(path: Path) -> tuple[float, float, float]:
    """Seconds of training, seconds of evaluation and steps of a run, from its timing.jsonl."""
    training = evaluation = steps = 0.0
    for row in _decoded(path, _lines(path)):
        seconds = float(row.get("seconds", 0.0))
        if row.get("kind") == "train":
            training += seconds
            steps += seconds * float(row.get("steps_per_second", 0.0))
        else:
            evaluation += seconds
    return training, evaluation, steps


def _lines(path: Path) -> list[bytes]:
    """Complete lines; a last line without a line end is dropped."""
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunDamaged(f"cannot read {path}: {error.strerror}") from error


def _decoded(path: Path, lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Lines as rows, decoded together: faster than one by one. Non-finite numbers stay strings."""
    try:
        rows: list[Any] = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        rows = [None]
    if not all(isinstance(row, dict) for row in rows):
        return read_metrics(path)  # raises an error with the number of the damaged line
    return rows


def _curves(
    path: Path, rows: Sequence[Mapping[str, Any]], protocol: Protocol
) -> tuple[dict[NoiseMode, Floats], list[str]]:
    """The curve of each noise mode, and remarks for the table of runs."""
    found: dict[NoiseMode, dict[int, float]] = {}
    partial = broken = 0
    for row in rows:
        try:
            noise, frames, score = row["noise"], int(row["frames"]), float(row["score"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunDamaged(
                f"{path} has an evaluation row without noise, frames or score: {dict(row)}"
            ) from error
        if not math.isfinite(score):
            broken += 1
            continue
        # The end of an earlier, shorter budget was off the schedule, and has no point of its own.
        if point := protocol.point(frames):
            found.setdefault(noise, {}).setdefault(point, score)
        partial += not row.get("completed", True)
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
