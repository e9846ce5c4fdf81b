"""Evaluation episodes as seed and actions, one byte per action; each can be replayed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import RunDamaged, storage_errors, write_atomically

__all__ = ["Noise", "Trace", "TraceFile", "list_traces", "read_traces", "write_traces"]

Noise = Literal["on", "off"]

_FORMAT = 2
# Format 1 does not mark unfinished episodes. It holds one only if no episode was completed, which
# metrics.jsonl records.
_READABLE = (1, 2)
_ACTION_TYPES = (np.dtype(np.uint8), np.dtype(np.uint16))
_NAME = re.compile(r"(\d{12,})-(on|off)\.safetensors")
# One key only: the order in which safetensors writes several differs between processes.
_INDEX_KEY = "noisynet"


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
    """The file with the traces of one evaluation.

    Attributes:
        evaluation: Training frames at the time of the evaluation.
        noise: Whether the agent acted with noisy or with mean weights.
        path: The file, for `read_traces`.
    """

    evaluation: int
    noise: Noise
    path: Path


def write_traces(
    folder: Path | str, evaluation: int, traces: Iterable[Trace], *, noise: Noise
) -> Path:
    """Write the episodes of one evaluation to one file, atomically.

    Equal traces are equal bytes. An existing file is replaced.

    Args:
        folder: The run's `traces/`; made if missing.
        evaluation: Training frames at the time of the evaluation.
        traces: The episodes, each with this `evaluation` and `noise`; may be empty.
        noise: Whether the agent acted with noisy or with mean weights.

    Returns:
        Path of the file.
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
    index = _index(evaluation, noise, traces)
    header = {"sha256": _digest(index, actions), "index": index}
    data = save({"actions": actions}, metadata={_INDEX_KEY: encode(header).decode()})
    with storage_errors("make", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    return path


def read_traces(path: Path | str) -> list[Trace]:
    """Read the episodes of one file, in the order written.

    Raises:
        RunDamaged: The file is not what `write_traces` wrote.
        StorageError: The file cannot be read.
    """
    path = Path(path)
    try:
        index, actions = _read_checked(path)
        rows = index["traces"]
        stops = np.cumsum([row["length"] for row in rows], dtype=np.int64).tolist()
        if (stops[-1] if stops else 0) != len(actions):
            raise ValueError(f"it has {len(actions)} actions, its episodes {stops[-1:]}")
        return [
            Trace(
                environment=row["environment"],
                seed=row["seed"],
                actions=actions[stop - row["length"] : stop],
                score=row["score"],
                evaluation=index["evaluation"],
                episode=row["episode"],
                noise=index["noise"],
                options=row["options"],
                finished=row["finished"] if index["format"] > 1 else True,
            )
            for row, stop in zip(rows, stops, strict=True)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise RunDamaged(f"{path} is not an intact file of traces ({error}); remove it") from error


def list_traces(folder: Path | str) -> list[TraceFile]:
    """List the files of traces in `folder`, oldest evaluation first; a missing folder has none."""
    folder = Path(folder)
    found = []
    with storage_errors("list", folder):
        for path in folder.iterdir() if folder.is_dir() else ():
            if match := _NAME.fullmatch(path.name):
                noise: Noise = "on" if match[2] == "on" else "off"
                found.append(TraceFile(int(match[1]), noise, path))
    return sorted(found)


def _index(evaluation: int, noise: Noise, traces: list[Trace]) -> dict[str, Any]:
    rows = [
        {
            "environment": trace.environment,
            "seed": int(trace.seed),
            "score": float(trace.score),
            "episode": int(trace.episode),
            "options": dict(trace.options),
            "length": len(trace.actions),
            "finished": bool(trace.finished),
        }
        for trace in traces
    ]
    return {"format": _FORMAT, "evaluation": int(evaluation), "noise": noise, "traces": rows}


def _read_checked(path: Path) -> tuple[dict[str, Any], NDArray[Any]]:
    """Return the index and the actions; ValueError or KeyError if they do not verify."""
    from safetensors import SafetensorError, safe_open

    try:
        with storage_errors("read", path), safe_open(path, framework="numpy") as file:
            header = decode((file.metadata() or {})[_INDEX_KEY])
            actions: NDArray[Any] = file.get_tensor("actions")
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    index = header["index"]
    if actions.dtype not in _ACTION_TYPES or header["sha256"] != _digest(index, actions):
        raise ValueError("its SHA-256 does not match")
    if index["format"] not in _READABLE:
        raise ValueError(f"format {index['format']}; this version reads formats {_READABLE}")
    return index, actions


def _digest(index: dict[str, Any], actions: NDArray[Any]) -> str:
    return hashlib.sha256(encode(index) + actions.tobytes()).hexdigest()


def _check_noise(noise: str) -> None:
    if noise not in get_args(Noise):
        raise ValueError(f"noise must be 'on' or 'off', got {noise!r}")
