"""Follows run folders: reads what has changed since the last look, in bounded time and memory.

Files are opened and checked as everywhere (`noisynet.runs`): nothing is written, locked or followed
through symbolic links. The logs of a run are read once, from where the last look ended; of long
ones every n-th row is kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from noisynet.reports.agents import NOT_SETTINGS
from noisynet.runs import Owner, RunDamaged, RunError, RunFolder, Unreadable, find_run_folders
from noisynet.runs import read_run as read_folder
from noisynet.runs.encoding import flatten
from noisynet.runs.files import open_file, storage_errors
from noisynet.runs.reading import (
    EvaluationRow,
    Line,
    StoredConfig,
    StoredStatus,
    TimingRow,
    TrainRow,
    decode_rows,
    kind_of_row,
)

POINTS: Final = 250
"""A series has at most twice as many points: a plot cannot show more."""

_CHUNK_BYTES: Final = 1 << 20
_LOG_BYTES: Final = 8192
_MOST_LAYERS: Final = 50
_SEARCH_SECONDS: Final = 5.0
_DISK_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 120.0
_HIDDEN: Final = frozenset(NOT_SETTINGS) - {"environment_options", "max_episode_frames"}
_Row = TypeVar("_Row")


class Samples:
    """Values over frames: every n-th row, with n doubled whenever there are too many.

    Attributes:
        x: frames.
        columns: values by name, NaN where a row has none.
    """

    def __init__(self) -> None:
        self.x = array("d")
        self.columns: dict[str, array[float]] = {}
        self._rows, self._every = 0, 1

    def pick(self, rows: Sequence[_Row]) -> Sequence[_Row]:
        """Count rows; return those to add, so that only these have to be decoded."""
        while (self._rows + len(rows)) // self._every >= 2 * POINTS:
            self.x, self._every = self.x[::2], 2 * self._every
            self.columns = {name: column[::2] for name, column in self.columns.items()}
        first = -self._rows % self._every
        self._rows += len(rows)
        return rows[first :: self._every]

    def add(self, x: float, values: Mapping[str, float | None]) -> None:
        """Add a picked row."""
        for name in values:
            if name not in self.columns:
                self.columns[name] = array("d", [math.nan] * len(self.x))
        self.x.append(x)
        for name, column in self.columns.items():
            value = values.get(name)
            column.append(math.nan if value is None else value)

    def drop_from(self, x: float) -> None:
        """Drop the points at `x` and later."""
        while self.x and self.x[-1] >= x:
            for column in (self.x, *self.columns.values()):
                column.pop()


class LogReader:
    """Reads the rows that were appended to a JSON-lines file.

    Attributes:
        behind: whether there is more to read.
        error: what is wrong with the rows so far, empty if nothing is.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.behind, self.error = path, False, ""
        self._offset, self._number, self._last = 0, 0, b""

    def read(self) -> tuple[bool, list[Line]]:
        """Return whether the file is read from its start again, and the next whole lines.

        It is after an error, and where it was cut back or rewritten: a resumed run cuts its log
        back to the checkpoint.
        """
        if not os.path.lexists(self.path):
            return False, []
        with storage_errors("read", self.path):
            descriptor = open_file(self.path)
        try:
            before = os.pread(descriptor, len(self._last), self._offset - len(self._last))
            restarted = bool(self.error) or before != self._last
            if restarted:
                self._offset, self._number, self._last = 0, 0, b""
            data = os.pread(descriptor, _CHUNK_BYTES, self._offset)
        finally:
            os.close(descriptor)
        end = data.rfind(b"\n") + 1
        self.behind = len(data) == _CHUNK_BYTES
        if self.behind and not end:
            raise RunDamaged(f"{self.path} has a line of more than {_CHUNK_BYTES:,} bytes")
        lines = list(enumerate(data[:end].split(b"\n")[:-1], self._number + 1))
        self._offset, self._number = self._offset + end, self._number + len(lines)
        self._last = (self._last + data[:end])[-256:]
        return restarted, lines


class WatchedRun:
    """One run folder, and what is known of it so far.

    With `is_root`, it is itself one of the folders that were given.

    Attributes:
        key: names the run in addresses.
        version: grows whenever something has changed.
        error: why the folder cannot be read, empty if it can.
        state: as in status.json; killed if it says running and no process holds the lock; stalled
            if a running process has been silent for too long; unreadable.
        config: what every run has; of no agent before it was read.
        status: of the newest checkpoint; None before the first.
        flat_config: all of config.json but `made_by`, by dotted key.
        settings: those of them that runs of one agent must share to be averaged.
        evaluations: scores by noise mode; `training` has return, loss and Σ̄ by layer; `clock` has
            hours and steps per second.
    """

    def __init__(self, path: Path, name: str, *, is_root: bool = False) -> None:
        self._is_root = is_root
        self.key = hashlib.blake2s(os.fsencode(path), digest_size=8).hexdigest()
        self.path, self.name, self.folder = path, name, RunFolder(path)
        self.version, self.error, self.state = 0, "", "new"
        self.config = StoredConfig.model_construct(agent="", environment="", seed=0, frames=0)
        self.status: StoredStatus | None = None
        self.flat_config: dict[str, Any] = {}
        self.settings: tuple[tuple[str, str], ...] = ()
        self.owner: Owner | None = None
        self.disk_bytes, self.changed_at = 0, 0.0
        self._signatures: dict[Path, tuple[int, int, int]] = {}
        self._disk_at, self._disk_version = -math.inf, -1
        self.metrics = LogReader(self.folder.metrics_path)
        self.timing = LogReader(self.folder.timing_path)
        self._start_metrics()
        self._start_timing()

    def _start_metrics(self) -> None:
        self.evaluations: dict[str, Samples] = {}
        self.training, self._newest_frames = Samples(), 0

    def _start_timing(self) -> None:
        self.clock, self.seconds, self.longest_seconds = Samples(), 0.0, 0.0

    @property
    def behind(self) -> bool:
        """Whether its logs have more to read."""
        return self.metrics.behind or self.timing.behind

    @property
    def frames(self) -> int:
        """Frames so far: those of the newest row, or of the newest checkpoint."""
        return max(self.status.frames if self.status else 0, self._newest_frames)

    def log_tail(self) -> str:
        """The end of the log that a sweep writes beside the folder; empty if there is none."""
        path = self.path.with_name(f"{self.path.name}.log")
        if self._is_root or not os.path.lexists(path):  # only what is below RUNS is shown
            return ""
        with storage_errors("read", path), open(open_file(path), "rb") as file:  # noqa: PTH123
            file.seek(max(0, file.seek(0, 2) - _LOG_BYTES))
            return file.read(_LOG_BYTES).decode("utf-8", "replace")

    def poll(self, now: float, *, follow: bool) -> None:
        """Look at the folder again; with `follow`, read on in its logs."""
        before = (self.state, self.error, self.owner)
        try:
            self._read_small_files()
            if follow:
                self._follow(self.metrics, self._start_metrics, self._add_metrics)
                self._follow(self.timing, self._start_timing, self._add_timing)
            self.error = self.metrics.error or self.timing.error
        except (RunError, OSError) as error:
            self.error = str(error)  # one damaged run must not hide the others
        ended = self.status is not None and self.status.state != "running"
        self.owner = None if self.error or ended else self.folder.holder()
        self.state = self._current_state(now)
        if follow and now - self._disk_at > _DISK_SECONDS and self.version != self._disk_version:
            self._measure_disk()
            self._disk_at, self._disk_version = now, self.version
        if before != (self.state, self.error, self.owner):
            self.version += 1

    def _has_changed(self, path: Path) -> bool:
        try:
            found = path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return self._signatures.pop(path, None) is not None
        signature = (found.st_ino, found.st_size, found.st_mtime_ns)
        self.changed_at = max(self.changed_at, found.st_mtime)
        changed = self._signatures.get(path) != signature
        self._signatures[path] = signature
        self.version += changed
        return changed

    def _read_small_files(self) -> None:
        changed = [self._has_changed(p) for p in (self.folder.config_path, self.folder.status_path)]
        if not any(changed) and not self.error:
            return
        record = read_folder(self.path)
        if isinstance(record, Unreadable):
            raise RunDamaged(record.reason)
        self.config, self.status = record.config, record.status
        self.flat_config = flatten(record.settings)
        self.settings = tuple(
            (key, json.dumps(value))
            for key, value in sorted(self.flat_config.items())
            if key.partition(".")[0] not in _HIDDEN
        )

    def _follow(
        self, log: LogReader, start: Callable[[], None], add: Callable[[Sequence[Line]], None]
    ) -> None:
        """Read on in a log; an error stays until the file changes, which is then read again."""
        if not (self._has_changed(log.path) or log.behind):
            return
        try:
            restarted, lines = log.read()
            if restarted:
                start()
            log.error = ""
            add(lines)
        except RunError as error:
            log.error, log.behind = str(error), False

    def _add_metrics(self, lines: Sequence[Line]) -> None:
        """Decode the rows that are kept, and the last one; a long run has 100,000 rows."""
        kinds = [kind_of_row(self.metrics.path, *line) for line in lines]
        train = [line for line, kind in zip(lines, kinds, strict=True) if kind == "train"]
        evaluations = [
            line for line, kind in zip(lines, kinds, strict=True) if kind == "evaluation"
        ]
        kept = self.training.pick(train)
        rows = decode_rows(TrainRow, self.metrics.path, [*kept, *train[-1:]])
        for row in rows[: len(kept)]:
            means = row.model_extra or {}
            values = {"return": means.get("score_mean_100"), "loss": means.get("loss")}
            layers = islice((row.sigma or {}).items(), _MOST_LAYERS)
            self.training.add(row.frames, values | {f"Σ̄ {name}": value for name, value in layers})
        if rows:
            self._newest_frames = rows[-1].frames
        evaluated = decode_rows(EvaluationRow, self.metrics.path, evaluations)
        for mode in ("on", "off"):
            of_mode = [row for row in evaluated if row.noise == mode]
            samples = self.evaluations.setdefault(mode, Samples()) if of_mode else Samples()
            for one in samples.pick(of_mode):
                samples.add(one.frames, {"score": one.score})

    def _add_timing(self, lines: Sequence[Line]) -> None:
        train = []
        for row in decode_rows(TimingRow, self.timing.path, lines):
            self.seconds += row.seconds
            self.longest_seconds = max(self.longest_seconds, row.seconds)
            if row.kind == "train":  # the time of evaluations counts from the next row
                train.append((row.frames, self.seconds / 3600, row.steps_per_second))
        for frames, hours, speed in self.clock.pick(train):
            self.clock.drop_from(frames)  # a resumed run repeats frames, and its time goes on
            self.clock.add(frames, {"hours": hours, "steps per second": speed})

    def _current_state(self, now: float) -> str:
        if self.error:
            return "unreadable"
        if self.status is None or self.status.state != "running":
            return self.status.state if self.status else "new"
        if self.owner is None:
            return "killed"
        # An evaluation writes no rows; before the first one, nothing is known about its length.
        allowed = max(_SILENT_SECONDS, 3 * self.longest_seconds)
        first_evaluation = not self.evaluations and bool(self.training.x)
        allowed *= 5 if first_evaluation else 1
        return "stalled" if now - self.changed_at > allowed else "running"

    def _measure_disk(self) -> None:
        total = 0
        for parent, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):  # removed meanwhile
                    total += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118
        self.version += total != self.disk_bytes
        self.disk_bytes = total


class Runs:
    """All run folders at and below some folders.

    Attributes:
        by_key: the runs found so far, in the order of their names.
        behind: whether there is more to read at once.
        version: grows whenever something has changed.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._roots = [path.resolve(strict=True) for path in paths]
        self.by_key: dict[str, WatchedRun] = {}
        self.behind = True
        self._found = 0  # searches that have found other runs
        self._search_at = -math.inf
        self._next = 0

    @property
    def version(self) -> int:
        """Grows whenever something has changed."""
        return self._found + sum(run.version for run in self.by_key.values())

    def refresh(self, first: str = "", seconds: float = 0.04) -> None:
        """Look at every run, and read on in their logs for about so many seconds.

        Args:
            first: the key of a run whose logs are read before the others'.
            seconds: after which the rest of the logs is left for the next time.
        """
        now, began = time.time(), time.perf_counter()
        if time.monotonic() > self._search_at:
            self._search()
        runs = list(self.by_key.values())
        order = [*runs[self._next :], *runs[: self._next]]
        order.sort(key=lambda run: run.key != first)
        unread = 0
        for number_, run in enumerate(order):
            in_time = time.perf_counter() - began < seconds
            run.poll(now, follow=in_time or run.key == first)
            if not in_time and not unread:
                self._next, unread = (self._next + number_) % len(runs), 1
        self.behind = bool(unread) or any(run.behind for run in runs)

    def _search(self) -> None:
        began, found, alone = time.monotonic(), dict[Path, str](), len(self._roots) == 1
        for root in self._roots:
            for path in find_run_folders(root):
                inside = path.relative_to(root)
                shown = inside if alone and inside.name else root.name / inside
                found.setdefault(path, os.fsencode(shown).decode("utf-8", "replace"))
        known = {run.path: run for run in self.by_key.values()}
        if known.keys() != found.keys():
            runs = [
                known.get(path) or WatchedRun(path, name, is_root=path in self._roots)
                for path, name in found.items()
            ]
            gone = sum(run.version for path, run in known.items() if path not in found)
            self.by_key = {run.key: run for run in sorted(runs, key=lambda run: run.name)}
            self._found += 1 + gone  # `version` must not shrink
        took = time.monotonic() - began
        self._search_at = began + max(_SEARCH_SECONDS, 20 * took)  # a large tree is searched rarely
