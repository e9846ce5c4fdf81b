"""The progress of a run, read from its folder. A sweep keeps no other record."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from noisynet.experiments.plan import RunSpec
from noisynet.runs import (
    CHANGEABLE_SETTINGS,
    Owner,
    RunError,
    RunFolder,
    RunLocked,
    compare_configs,
)
from noisynet.runs.encoding import decode, encode

_TAIL_BYTES: Final = 1 << 16
# Locks are stamped in whole seconds, processes in hundredths of another clock.
_CLOCK_TOLERANCE_SECONDS: Final = 5.0


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


def read_progress(spec: RunSpec, *, check_lock: bool = True) -> Progress:
    """The progress of a run, from its folder alone.

    A run is done if its folder has the planned configuration and its status is finished.

    Args:
        spec: the run.
        check_lock: whether to try the lock where its owner may be gone; see `lock_owner`.
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
    owner = lock_owner(folder) if check_lock else folder.holder()
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


def lock_owner(folder: RunFolder) -> Owner | None:
    """The process that holds the lock of a run folder now.

    The owner file outlives a killed process. After a reboot its pid may belong to another process,
    and pids of other hosts cannot be checked. Only then is the lock itself tried, for a moment in
    which any other process that wants it is refused.
    """
    owner = folder.holder()
    if owner is None or (owner.host == socket.gethostname() and not _pid_was_reused(owner)):
        return owner
    try:
        with folder.lock():
            return None
    except RunLocked:
        return owner
    except RunError:
        return owner  # the file system has no locks: trust the owner file


def _pid_was_reused(owner: Owner) -> bool:
    """Whether the process of this pid has started after the lock was taken (Linux only)."""
    with suppress(OSError, ValueError, IndexError):  # no /proc, or the process has ended
        fields = Path(f"/proc/{owner.pid}/stat").read_text().rpartition(") ")[2].split()
        up_seconds = float(Path("/proc/uptime").read_text().split()[0])
        age_seconds = up_seconds - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        locked_at = datetime.fromisoformat(owner.since).timestamp()
        return time.time() - age_seconds > locked_at + _CLOCK_TOLERANCE_SECONDS
    return False


def read_last_rows(path: Path) -> list[dict[str, Any]]:
    """The last complete rows of a metrics file, a few hundred; empty if there is no file."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - _TAIL_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")
    except OSError:
        return []
    rows = []
    for line in lines[1 if start else 0 : -1]:
        with suppress(ValueError):  # reports complain about damaged rows
            row = decode(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows
