"""How far a run is, as its own folder says: a sweep keeps no other record."""

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
from noisynet.runs import CHANGEABLE_SETTINGS, Owner, RunError, RunFolder, RunLocked
from noisynet.runs.encoding import decode, encode, flatten

_TAIL_BYTES: Final = 1 << 16
# Stamps of locks and of processes are whole seconds and hundredths of different clocks.
_CLOCK_SECONDS: Final = 5.0


class State(Enum):
    """Where a run is."""

    NEW = "new"
    HALF_DONE = "half done"
    TAKEN = "taken"
    DONE = "done"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        state: where it is; `TAKEN` if a process is at it now.
        frames: that its newest checkpoint holds.
        score: of its last evaluation.
        owner: the process that is at it.
        reason: why its folder cannot be read.
    """

    state: State
    frames: int = 0
    score: float | None = None
    owner: Owner | None = None
    reason: str = ""


def look(spec: RunSpec, *, ask_lock: bool = True) -> Progress:
    """How far a run is, from its folder alone.

    A run is done if its folder holds its configuration and says that the budget is spent.

    Args:
        spec: the run.
        ask_lock: whether a doubtful signature of the lock is put to the test; see `writer`.
    """
    folder = RunFolder(spec.folder)
    if not folder.config_path.exists():
        owner = folder.holder()  # of whoever is making the folder
        return Progress(State.NEW if owner is None else State.TAKEN, owner=owner)
    try:
        status = folder.read_status() or {}
        stored = folder.read_config()
    except RunError as error:
        return Progress(State.UNREADABLE, reason=str(error))
    frames, score = status.get("frames", 0), status.get("score")
    if status.get("state") == "finished" and frames >= spec.frames and stored == planned(spec):
        return Progress(State.DONE, frames, score)
    owner = writer(folder) if ask_lock else folder.holder()
    return Progress(State.HALF_DONE if owner is None else State.TAKEN, frames, score, owner)


def planned(spec: RunSpec) -> Any:
    """The run's configuration as its config.json would have it."""
    return decode(encode(spec.config.model_dump(mode="json")))


def conflict(spec: RunSpec) -> str | None:
    """Why the folder of a run cannot take it: it holds another one. None if it can.

    A longer budget is no conflict: the run goes on. A shorter one is: what depends on the budget,
    such as a learning rate that falls to 0 at its end, was not made for it.
    """
    folder = RunFolder(spec.folder)
    if not folder.config_path.exists():
        return None
    try:
        stored, wanted = flatten(folder.read_config()), flatten(planned(spec))
    except RunError:
        return None  # the run itself will say so, and the others go on
    parts = [
        f"{key}: the folder has {_said(stored, key)}, the plan {_said(wanted, key)}"
        for key in dict.fromkeys([*wanted, *stored])
        if key not in CHANGEABLE_SETTINGS and _said(stored, key) != _said(wanted, key)
    ]
    if stored.get("frames", 0) > spec.frames:
        parts.append(
            f"frames: the folder has {stored['frames']:,}, which is more than the plan's "
            f"{spec.frames:,}"
        )
    return "; ".join(parts) or None


def writer(folder: RunFolder) -> Owner | None:
    """Who writes to a folder now, asking the lock itself where the signature may be out of date.

    A signature outlives a killed process: its number may be another's after the machine was
    started again, and of another machine nothing is known from here. Only then is the lock tried,
    for a moment: whoever wants it in that moment is refused.
    """
    owner = folder.holder()
    if owner is None or (owner.host == socket.gethostname() and not _is_another(owner)):
        return owner
    try:
        with folder.lock():
            return None
    except RunLocked:
        return owner
    except RunError:
        return owner  # the file system cannot tell: the signature is believed


def _is_another(owner: Owner) -> bool:
    """Whether the process of this number has started after the lock was signed."""
    with suppress(OSError, ValueError, IndexError):  # elsewhere than on Linux, or it has ended
        fields = Path(f"/proc/{owner.pid}/stat").read_text().rpartition(") ")[2].split()
        up_seconds = float(Path("/proc/uptime").read_text().split()[0])
        age_seconds = up_seconds - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        signed = datetime.fromisoformat(owner.since).timestamp()
        return time.time() - age_seconds > signed + _CLOCK_SECONDS
    return False


def tail_rows(path: Path) -> list[dict[str, Any]]:
    """The last whole rows of a metrics file, some hundreds; none where there is no file."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - _TAIL_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")
    except OSError:
        return []
    rows = []
    for line in lines[1 if start else 0 : -1]:
        with suppress(ValueError):  # a damaged row is the reports' to complain of
            row = decode(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


def _said(leaves: dict[str, Any], key: str) -> str:
    return repr(leaves[key]) if key in leaves else "nothing"
