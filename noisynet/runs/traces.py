"""Evaluation episodes as seed and actions, one byte per action; each can be replayed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from noisynet.runs.files import RunDamaged, list_folder, storage_errors, write_atomically
from noisynet.runs.reading import Count, Name, Noise, Number, Stored, validate
from noisynet.runs.sealed import read_sealed, seal

_FORMAT = 3
_ACTION_TYPES = (np.dtype(np.uint8), np.dtype(np.uint16))
_NAME = re.compile(r"(\d{12,})-(on|off)\.safetensors")


@dataclass(frozen=True, eq=False)
class Trace:
    """One evaluation episode, with all that replaying it needs.

    Attributes:
        environment: Name of the environment, as in "atari/pong".
        seed: Seed of the episode.
        actions: Actions in order, uint8, or uint16 where there are more than 256. [T]
        score: Undiscounted, unclipped return.
        evaluation: Training frames at the time of the evaluation.
        episode: Number of the episode within the evaluation.
        noise: Whether the agent acted with noisy or with mean weights.
        options: Keyword arguments of the environment, JSON-able.
        finished: Whether the episode ended; the last one of an evaluation may not have.
    """

    environment: str
    seed: int
    actions: NDArray[np.uint8] | NDArray[np.uint16]
    score: float
    evaluation: int
    episode: int
    noise: Noise
    options: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = True

    def __post_init__(self) -> None:
        if self.actions.dtype not in _ACTION_TYPES or self.actions.ndim != 1:
            raise ValueError(
                f"actions must be one row of uint8 or uint16, got {self.actions.dtype} of shape "
                f"{self.actions.shape}; use np.asarray(actions, dtype=np.uint8)"
            )
        _check_noise(self.noise)


@dataclass(frozen=True, order=True)
class TraceFile:
    """The file with the traces of one evaluation."""

    evaluation: int
    noise: Noise
    path: Path


class _Row(Stored):
    length: Count
    environment: Name
    seed: int
    score: Number
    episode: Count
    options: dict[str, Any]
    finished: bool


_FIELDS = tuple(name for name in _Row.model_fields if name != "length")


class _Header(Stored):
    evaluation: Count
    noise: Noise
    traces: list[_Row]


def write_traces(
    folder: Path | str, evaluation: int, traces: Iterable[Trace], *, noise: Noise
) -> tuple[Path, str]:
    """Write the episodes of one evaluation to one file, atomically.

    Equal traces are equal bytes. An existing file is replaced.

    Returns:
        Path and SHA-256 of the file.
    """
    from safetensors.numpy import save

    _check_noise(noise)
    traces = list(traces)
    for trace in traces:
        if (trace.evaluation, trace.noise) != (evaluation, noise):
            raise ValueError(
                f"expected traces of evaluation {evaluation} with noise {noise}, got one of "
                f"evaluation {trace.evaluation} with noise {trace.noise}; a file holds one "
                "evaluation"
            )
    path = Path(folder) / f"{evaluation:012d}-{noise}.safetensors"
    actions = np.concatenate([np.empty(0, np.uint8), *(trace.actions for trace in traces)])
    rows = [
        {"length": len(trace.actions)} | {name: getattr(trace, name) for name in _FIELDS}
        for trace in traces
    ]
    header = {"format": _FORMAT, "evaluation": evaluation, "noise": noise, "traces": rows}
    data = seal(save, {"actions": actions}, header)
    with storage_errors("make", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    return path, hashlib.sha256(data).hexdigest()


def read_traces(path: Path | str, sha256: str | None = None) -> list[Trace]:
    """Read the episodes of one file, in the order written.

    Args:
        path: The file.
        sha256: As `write_traces` returned it; checked if given.

    Raises:
        RunDamaged: The file is not what `write_traces` wrote.
        StorageError: The file cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = Path(path)
    try:
        with storage_errors("read", path):
            data, found = read_sealed(path)
        if found.get("format") != _FORMAT:
            raise ValueError(f"format {found.get('format')}; this version reads format {_FORMAT}")
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError("it is not the one that its evaluation wrote")
        header, actions = validate(_Header, found, "its header"), load(data)["actions"]
        stops = np.cumsum([row.length for row in header.traces], dtype=np.int64).tolist()
        if (stops[-1] if stops else 0) != len(actions):
            raise ValueError(f"it has {len(actions)} actions, its episodes {stops[-1:]}")
        return [
            Trace(
                actions=actions[stop - row.length : stop],
                evaluation=header.evaluation,
                noise=header.noise,
                **{name: getattr(row, name) for name in _FIELDS},
            )
            for row, stop in zip(header.traces, stops, strict=True)
        ]
    except (ValueError, LookupError, TypeError, SafetensorError, RunDamaged) as error:
        raise RunDamaged(f"{path} is not an intact file of traces ({error}); remove it") from error


def list_traces(folder: Path | str) -> list[TraceFile]:
    """List the files of traces in `folder`, oldest evaluation first; a missing folder has none."""
    folder = Path(folder)
    found: list[TraceFile] = []
    with storage_errors("list", folder):
        for match in filter(None, map(_NAME.fullmatch, list_folder(folder))):
            noise: Noise = "on" if match[2] == "on" else "off"
            found.append(TraceFile(int(match[1]), noise, folder / match[0]))
    return sorted(found)


def _check_noise(noise: str) -> None:
    if noise not in get_args(Noise):
        raise ValueError(f"noise must be 'on' or 'off', got {noise!r}")
