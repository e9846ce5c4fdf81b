"""One run as others see it: reports, lists of runs and the dashboard read a folder through this."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from noisynet.runs.files import RunError
from noisynet.runs.reading import (
    EvaluationRow,
    Owner,
    StoredConfig,
    StoredStatus,
    TimingRow,
    TrainRow,
    read_object,
    read_rows,
    read_timing,
    validate,
)
from noisynet.runs.store import RunFolder


@dataclass(frozen=True)
class Unreadable:
    """A run folder that cannot be read, and why: one sentence with the file."""

    path: Path
    reason: str


@dataclass(frozen=True)
class RunRecord:
    """What a run folder holds.

    Attributes:
        path: The run folder.
        config: What every run has, checked.
        settings: All of config.json but `made_by`.
        status: status.json; None before the first.
        state: "new" without a status, "killed" if it is "running" and no process has the lock,
            otherwise that of the status.
        owner: The process that has the lock.
        evaluations: Rows of metrics.jsonl, all of them.
        training: Rows of metrics.jsonl at points of the budget; the last of each.
        timing: Rows of timing.jsonl.
    """

    path: Path
    config: StoredConfig
    settings: Mapping[str, Any]
    status: StoredStatus | None
    state: str
    owner: Owner | None
    evaluations: list[EvaluationRow] = field(default_factory=list, repr=False)
    training: list[TrainRow] = field(default_factory=list, repr=False)
    timing: list[TimingRow] = field(default_factory=list, repr=False)


def read_run(path: Path, *, points: int | None = None) -> RunRecord | Unreadable:
    """Read a run folder, which may be running, damaged or hostile.

    Args:
        path: The run folder.
        points: Read the rows of the logs, too, and training rows at so many points of the budget;
            None for configuration and status alone.
    """
    try:
        return _read(path, points)
    except RunError as error:
        return Unreadable(path, str(error))


def _read(path: Path, points: int | None) -> RunRecord:
    folder = RunFolder(path)
    stored = read_object(folder.config_path)
    config = validate(StoredConfig, stored, folder.config_path)
    stored.pop("made_by", None)
    status = None
    if os.path.lexists(folder.status_path):
        status = validate(StoredStatus, read_object(folder.status_path), folder.status_path)
    owner = folder.holder()
    state: str = "new" if status is None else status.state
    if state == "running" and owner is None:
        state = "killed"
    record = RunRecord(path, config, stored, status, state, owner)
    if points is None:
        return record
    digests = status.files if status else {}
    metrics, timing = folder.metrics_path, folder.timing_path
    evaluations, training = read_rows(metrics, config.frames, points, digests.get(metrics.name))
    timed = read_timing(timing, digests.get(timing.name))
    return replace(record, evaluations=evaluations, training=training, timing=timed)
