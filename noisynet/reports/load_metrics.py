"""Loads learning curves, Σ̄ and timings from metrics.jsonl and timing.jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from noisynet.reports.scores import Floats
from noisynet.runs import RunDamaged

NoiseMode = Literal["on", "off"]

SIGMA_POINTS: Final = 200
"""Σ̄ is sampled at this many points of the budget: a plot cannot show every training row."""


@dataclass(frozen=True)
class Curve:
    """The scores of a run's evaluations.

    Attributes:
        points: [K] number of each evaluation, 1 for the first, after one period.
        scores: [K] mean return of each.
    """

    points: NDArray[np.int64]
    scores: Floats


@dataclass(frozen=True)
class Timing:
    """The duration of a run, including work repeated after interruptions."""

    training_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    steps: float = 0.0

    @property
    def steps_per_second(self) -> float:
        """Of training; NaN if nothing was timed."""
        return self.steps / self.training_seconds if self.training_seconds > 0 else math.nan


def read_evaluations_and_sigma(
    path: Path, budget_frames: int, noisy: bool
) -> tuple[list[dict[str, Any]], dict[str, Floats]]:
    """The evaluation rows of a run, and Σ̄ of each layer [SIGMA_POINTS].

    A run of the paper's length has a hundred thousand rows. Their kind is read from the first bytes
    of each line, and only the needed ones are decoded.
    """
    others: list[_Line] = []
    sampled: dict[int, _Line] = {}
    for number, line in _lines(path):
        if not line.startswith((b'{"kind":"episode"', b'{"kind":"train"')):
            others.append((number, line))
        elif noisy and (point := _sigma_point(line, budget_frames)) is not None:
            sampled[point] = (number, line)
    sigma: dict[str, Floats] = {}
    for point, row in zip(sampled, _decoded(path, list(sampled.values())), strict=True):
        for layer, value in (row.get("sigma") or {}).items():
            sigma.setdefault(layer, np.full(SIGMA_POINTS, np.nan))[point] = float(value)
    rows = [row for row in _decoded(path, others) if row.get("kind") == "evaluation"]
    return rows, sigma


_Line = tuple[int, bytes]
_TRAIN: Final = b'{"kind":"train","frames":'


def _sigma_point(line: bytes, budget_frames: int) -> int | None:
    """The Σ̄ point of a training row, without decoding the row."""
    if not line.startswith(_TRAIN):
        return None
    frames = int(line[len(_TRAIN) : line.index(b",", len(_TRAIN))])
    return min(frames * SIGMA_POINTS // budget_frames, SIGMA_POINTS - 1)


def _lines(path: Path) -> Iterator[_Line]:
    """Complete lines with their numbers; a last line without a line end is dropped."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDamaged(f"cannot read {path}: {error.strerror}") from error
    yield from enumerate(data.split(b"\n")[:-1], start=1)


def _decoded(path: Path, lines: Sequence[_Line]) -> list[dict[str, Any]]:
    """Lines as rows; numbers that are not finite stay strings."""
    try:
        rows: list[Any] = json.loads(
            b"[" + b",".join(line for _, line in lines) + b"]"
        )  # faster than one by one
    except ValueError:
        rows = [_decoded_alone(path, number, line) for number, line in lines]
    for (number, _), row in zip(lines, rows, strict=True):
        if not isinstance(row, dict):
            raise RunDamaged(f"line {number} of {path} is a {type(row).__name__}, not a row")
    return rows


def _decoded_alone(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise RunDamaged(f"line {number} of {path} is not JSON ({error})") from error


def curves_of(
    path: Path, rows: Sequence[Mapping[str, Any]], period_frames: int
) -> tuple[dict[NoiseMode, Curve], list[str]]:
    """The curve of each noise mode, and remarks for the table of runs.

    Args:
        path: the file of the rows, for error messages.
        rows: of evaluations.
        period_frames: from one evaluation to the next.

    Raises:
        RunDamaged: A row lacks noise, frames or score.
    """
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
        # With several environments an evaluation comes a few frames after its period.
        found.setdefault(noise, {})[frames // period_frames] = score
        partial += not row.get("completed", True)
    remarks = []
    if partial:
        remarks.append(
            f"{partial} of {len(rows)} evaluations completed no episode: their scores are partial "
            "returns"
        )
    if broken:
        remarks.append(f"{broken} evaluations without a finite score are ignored")
    curves = {
        mode: Curve(np.array(list(scores), np.int64), np.array(list(scores.values())))
        for mode, scores in found.items()
    }
    return curves, remarks


def read_timing(path: Path) -> Timing:
    """The duration of a run, from its timing.jsonl."""
    training = evaluation = steps = 0.0
    for row in _decoded(path, list(_lines(path))):
        if row.get("kind") == "train":
            seconds = float(row.get("seconds", 0.0))
            training += seconds
            steps += seconds * float(row.get("steps_per_second", 0.0))
        else:
            evaluation += float(row.get("seconds", 0.0))
    return Timing(training, evaluation, steps)
