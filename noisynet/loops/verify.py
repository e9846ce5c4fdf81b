"""Checks every file of a run against the digests that the run has stored."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from noisynet.replay import FrameStore
from noisynet.runs import RunError, RunFolder, Unreadable, list_traces, read_run, read_traces
from noisynet.runs.checkpoint import read_states
from noisynet.runs.reading import EvaluationRow, FileDigest, read_lines, validate


def verify_run(path: Path) -> tuple[int, list[str]]:
    """Check a run that is not being trained.

    Configuration, status and logs have digests in config.json and status.json, traces in the rows
    of their evaluations, and checkpoints in themselves. A checkpoint also has those of the metrics
    and of the replay's rows. TensorBoard's events, and rows since the last checkpoint, have none.

    Returns:
        The number of files, and a sentence for each one that is damaged.
    """
    folder = RunFolder(path)
    files = [Path(at, name) for at, _, names in os.walk(folder.path) for name in names]
    problems = [
        f"{file} is not a regular file" for file in files if not stat.S_ISREG(file.lstat().st_mode)
    ]
    record = read_run(path, points=0)
    evaluations: Sequence[EvaluationRow] = ()
    if isinstance(record, Unreadable):
        problems.append(record.reason)
    else:
        evaluations = record.evaluations
    for check in (_traces(folder, evaluations), _checkpoints(folder)):
        try:
            problems += check
        except RunError as error:  # the folder itself
            problems.append(str(error))
    return len(files), list(dict.fromkeys(problems))


def _traces(folder: RunFolder, evaluations: Sequence[EvaluationRow]) -> Iterator[str]:
    files = {(file.evaluation, file.noise): file.path for file in list_traces(folder.traces_path)}
    digests = {(row.frames, row.noise): row.traces for row in evaluations}
    for key, path in files.items():
        try:
            read_traces(path, digests.get(key))
        except RunError as error:
            yield str(error)
    for frames, noise in digests.keys() - files.keys():
        if digests[frames, noise] is not None:
            yield f"{folder.traces_path} has no file of the evaluation at {frames:,}, noise {noise}"


def _checkpoints(folder: RunFolder) -> Iterator[str]:
    newest = True
    for path, state in read_states(folder.checkpoints_path):
        if isinstance(state, str):
            yield f"{path}: {state}"
            continue
        try:
            _check_metrics(folder.metrics_path, state, path)
            if newest:  # the run goes on from this one
                _check_replay(folder.replay_path, state)
        except (RunError, ValueError, LookupError, TypeError, OSError, MemoryError) as error:
            yield f"{error} (step {int(path.stem):,})"
        newest = False


def _check_metrics(metrics: Path, state: dict[str, Any], checkpoint: Path) -> None:
    if "metrics_sha256" in state:
        found = {"bytes": state["metrics_offset"], "sha256": state["metrics_sha256"]}
        for _ in read_lines(metrics, validate(FileDigest, found, checkpoint)):
            pass


def _check_replay(folder: Path, state: dict[str, Any]) -> None:
    replay = state.get("loop", {}).get("replay")
    if replay is not None:
        FrameStore.read(replay["store"], folder)
