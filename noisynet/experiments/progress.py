"""The progress of a run, read from its folder. A sweep keeps no other record."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from noisynet.experiments.plan import RunSpec
from noisynet.runs import (
    CHANGEABLE_SETTINGS,
    Owner,
    RunError,
    RunFolder,
    compare_configs,
)
from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import open_file

_TAIL_BYTES: Final = 1 << 16


class ProgressState(Enum):
    """How far a run is."""

    NEW = "new"
    UNFINISHED = "unfinished"
    LOCKED = "locked"
    DONE = "done"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Progress:
    """The progress of a run: the frames of its newest checkpoint, the score of its last evaluation.

    `LOCKED` by its `owner` if a process trains it now; `reason` says why its folder is unreadable.
    """

    state: ProgressState
    frames: int = 0
    score: float | None = None
    owner: Owner | None = None
    reason: str = ""


def read_progress(spec: RunSpec) -> Progress:
    """The progress of a run, from its folder alone.

    A run is done if its folder has the planned configuration and its status is finished.
    """
    folder = RunFolder(spec.folder)
    if not folder.config_path.exists():
        owner = folder.holder()  # a process that is creating the folder
        return Progress(ProgressState.NEW if owner is None else ProgressState.LOCKED, owner=owner)
    try:
        status = folder.read_status() or {}
        stored = folder.read_config()
    except RunError as error:
        return Progress(ProgressState.UNREADABLE, reason=str(error))
    frames, score = status.get("frames", 0), status.get("score")
    planned = _planned(spec) | {"threads": stored.get("threads")}  # the run chose its number
    if status.get("state") == "finished" and frames >= spec.frames and stored == planned:
        return Progress(ProgressState.DONE, frames, score)
    owner = folder.holder()
    state = ProgressState.UNFINISHED if owner is None else ProgressState.LOCKED
    return Progress(state, frames, score, owner)


def config_conflict(spec: RunSpec) -> str | None:
    """How the configuration in a run's folder differs from the planned one; None if it may resume.

    A longer budget is no conflict. A shorter one is: settings that depend on the budget, such as a
    learning rate annealed to 0, were not made for it.
    """
    folder = RunFolder(spec.folder)
    if not folder.config_path.exists():
        return None
    try:
        stored = folder.read_config()
    except RunError:
        return None  # the run itself fails with this error; the others are not affected
    conflicts = [
        f"{found.key}: the folder has {found.stored}, the plan {found.given}"
        for found in compare_configs(stored, _planned(spec))
        if found.key not in CHANGEABLE_SETTINGS
    ]
    if stored.get("frames", 0) > spec.frames:
        conflicts.append(
            f"frames: the folder has {stored['frames']:,}, more than the plan's {spec.frames:,}"
        )
    return "; ".join(conflicts) or None


def _planned(spec: RunSpec) -> Any:
    """The run's configuration as config.json would store it."""
    return decode(encode(spec.config.model_dump(mode="json")))


def read_last_rows(path: Path) -> list[dict[str, Any]]:
    """The last complete rows of a metrics file, a few hundred; empty if there is no file."""
    try:
        with open(open_file(path), "rb") as file:  # noqa: PTH123 - a descriptor
            start = max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
            file.seek(start)
            lines = file.read(_TAIL_BYTES).split(b"\n")
    except (OSError, RunError):
        return []
    rows = []
    for line in lines[1 if start else 0 : -1]:
        with suppress(ValueError, RecursionError):  # reports complain about damaged rows
            row = decode(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows
