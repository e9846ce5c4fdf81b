"""Follows run folders: reads what has changed since the last look, in bounded time and memory.

Nothing is written, locked or followed through symbolic links. The logs of a run are read once, from
where the last look ended; of long ones every n-th row is kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, Field, ValidationError

from noisynet.reports.agents import NOT_SETTINGS
from noisynet.runs import Owner, RunDamaged, RunError, RunFolder, find_run_folders
from noisynet.runs.encoding import flatten
from noisynet.runs.files import storage_errors
from noisynet.runs.lock import signature_path

POINTS: Final = 250
"""A series has at most twice as many points: a plot cannot show more."""

_CHUNK_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 4 << 20  # config.json has kilobytes
_LOG_BYTES: Final = 8192
_MOST_LAYERS: Final = 50
_MOST_FRAMES: Final = 10**15
_SEARCH_SECONDS: Final = 5.0
_DISK_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 120.0
_HIDDEN: Final = frozenset(NOT_SETTINGS) - {"environment_options", "max_episode_frames"}
_Row = TypeVar("_Row")
_TRAIN: Final = b'{"kind":"train"'
_EVALUATION: Final = b'{"kind":"evaluation"'


class _Header(BaseModel):
    """What every config.json has."""

    agent: str
    environment: str
    seed: int
    frames: int = Field(gt=0, le=_MOST_FRAMES)


class _Status(BaseModel):
    """What status.json has; nothing before the first checkpoint."""

    state: str = "new"
    frames: int = Field(default=0, ge=0, le=_MOST_FRAMES)
    score: float | None = None
    reason: str = ""


def check_regular(path: Path, most_bytes: int | None = None) -> None:
    """Raise `RunError` if a path goes through a symbolic link, or is no file of a sensible size.

    `path.parent` has to be absolute. A missing file is allowed.
    """
    if os.path.realpath(path.parent) != str(path.parent) or path.is_symlink():
        raise RunError(
            f"{path} is or is below a symbolic link, which the dashboard does not follow"
        )
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise RunError(f"expected a file at {path}, got something else; move it away")
    if most_bytes is not None and found.st_size > most_bytes:
        raise RunError(f"expected at most {most_bytes:,} bytes in {path}, got {found.st_size:,}")


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

    def add(self, x: float, values: Mapping[str, Any]) -> None:
        """Add a picked row; values that are no numbers count as missing."""
        for name in values:
            if name not in self.columns:
                self.columns[name] = array("d", [math.nan] * len(self.x))
        self.x.append(x)
        for name, column in self.columns.items():
            column.append(number(values.get(name)))

    def drop_from(self, x: float) -> None:
        """Drop the points at `x` and later."""
        while self.x and self.x[-1] >= x:
            for column in (self.x, *self.columns.values()):
                column.pop()


def number(value: Any) -> float:
    """A number of a log as float; NaN for anything else."""
    if type(value) is float:
        return value
    return float(value) if type(value) is int and abs(value) < 1e300 else math.nan


class LogReader:
    """Reads the rows that were appended to a JSON-lines file.

    Attributes:
        behind: whether there is more to read.
        error: what is wrong with the rows so far, empty if nothing is.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.behind, self.error = path, False, ""
        self._offset, self._last = 0, b""

    def read(self) -> tuple[bool, list[bytes]]:
        """Return whether the file is read from its start again, and the next whole lines.

        It is after an error, and where it was cut back or rewritten: a resumed run cuts its log
        back to the checkpoint.
        """
        check_regular(self.path)
        try:
            with storage_errors("read", self.path):
                descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except RunError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False, []
            raise
        try:
            before = os.pread(descriptor, len(self._last), self._offset - len(self._last))
            restarted = bool(self.error) or before != self._last
            if restarted:
                self._offset, self._last = 0, b""
            data = os.pread(descriptor, _CHUNK_BYTES, self._offset)
        finally:
            os.close(descriptor)
        end = data.rfind(b"\n") + 1
        self.behind = len(data) == _CHUNK_BYTES
        if self.behind and not end:
            raise RunDamaged(f"{self.path} has a line of more than {_CHUNK_BYTES:,} bytes")
        self._offset += end
        self._last = (self._last + data[:end])[-256:]
        return restarted, data[:end].split(b"\n")[:-1]


def _decode(lines: Sequence[bytes], path: Path) -> list[dict[str, Any]]:
    """Rows of a log, decoded together: faster than one by one."""
    try:
        rows = json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError) as error:
        raise RunDamaged(f"{path} has a row that is not JSON ({error})") from error
    if not all(isinstance(row, dict) for row in rows):
        raise RunDamaged(f"{path} has a row that is not a JSON object")
    return list(rows)


class WatchedRun:
    """One run folder, and what is known of it so far.

    With `is_root`, it is itself one of the folders that were given.

    Attributes:
        key: names the run in addresses.
        version: grows whenever something has changed.
        error: why the folder cannot be read, empty if it can.
        state: as in status.json; killed if it says running and no process holds the lock; stalled
            if a running process has been silent for too long; unreadable.
        settings: of the configuration, those that runs of one agent must share to be averaged.
        evaluations: scores by noise mode; `training` has return, loss and Σ̄ by layer; `clock` has
            hours and steps per second.
    """

    def __init__(self, path: Path, name: str, *, is_root: bool = False) -> None:
        self._is_root = is_root
        self.key = hashlib.blake2s(os.fsencode(path), digest_size=8).hexdigest()
        self.path, self.name, self.folder = path, name, RunFolder(path)
        self.version, self.error, self.state = 0, "", "new"
        self.header = _Header.model_construct(agent="", environment="", seed=0, frames=0)
        self.status = _Status()
        self.flat_config: dict[str, Any] = {}
        self.settings: tuple[tuple[str, str], ...] = ()
        self.made_by: list[dict[str, Any]] = []
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
        self.training, self.latest = Samples(), dict[str, Any]()

    def _start_timing(self) -> None:
        self.clock, self.seconds, self.longest_seconds = Samples(), 0.0, 0.0

    @property
    def behind(self) -> bool:
        """Whether its logs have more to read."""
        return self.metrics.behind or self.timing.behind

    @property
    def frames(self) -> int:
        """Frames so far: those of the newest row, or of the newest checkpoint."""
        newest = number(self.latest.get("frames"))
        return max(self.status.frames, int(newest) if math.isfinite(newest) else 0)

    def log_tail(self) -> str:
        """The end of the log that a sweep writes beside the folder; empty if there is none."""
        path = self.path.with_name(f"{self.path.name}.log")
        if self._is_root or not os.path.lexists(path):  # only what is below RUNS is shown
            return ""
        check_regular(path)
        with storage_errors("read", path), path.open("rb") as file:
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
        except ValidationError as error:
            wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
            self.error = f"{self.path} has no configuration or status of a run: {'; '.join(wrong)}"
        except (RunError, OSError, ValueError, TypeError, RecursionError) as error:
            self.error = str(error)  # one damaged run must not hide the others
        self.owner = self._holder() if not self.error else None
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
        if self._has_changed(self.folder.config_path) or self.error:
            check_regular(self.folder.config_path, _SMALL_BYTES)
            config, makers = self.folder.read_config(), self.folder.read_made_by()
            self.header = _Header.model_validate(config)
            self.flat_config = flatten(config)
            self.settings = tuple(
                (key, json.dumps(value))
                for key, value in sorted(self.flat_config.items())
                if key.partition(".")[0] not in _HIDDEN
            )
            self.made_by = [flatten(one) for one in makers]
        if self._has_changed(self.folder.status_path) or self.error:
            check_regular(self.folder.status_path, _SMALL_BYTES)
            self.status = _Status.model_validate(self.folder.read_status() or {})

    def _follow(
        self, log: LogReader, start: Callable[[], None], add: Callable[[Sequence[bytes]], None]
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

    def _add_metrics(self, lines: Sequence[bytes]) -> None:
        """Decode the rows that are kept, and the last one; a long run has 100,000 rows."""
        train = [line for line in lines if line.startswith(_TRAIN)]
        kept = self.training.pick(train)
        rows = _decode([*kept, *train[-1:]], self.metrics.path)
        for row in rows[: len(kept)]:
            sigma = row.get("sigma")
            layers = list(sigma.items())[:_MOST_LAYERS] if isinstance(sigma, dict) else []
            values = {"return": row.get("score_mean_100"), "loss": row.get("loss")}
            values |= {f"Σ̄ {name}": value for name, value in layers}
            if math.isfinite(frames := number(row.get("frames"))):
                self.training.add(frames, values)
        if train:
            self.latest = rows[-1]
        evaluations = [line for line in lines if line.startswith(_EVALUATION)]
        rows = _decode(evaluations, self.metrics.path)
        for mode in ("on", "off"):
            of_mode = [row for row in rows if row.get("noise") == mode]
            samples = self.evaluations.setdefault(mode, Samples()) if of_mode else Samples()
            for row in samples.pick(of_mode):
                if math.isfinite(frames := number(row.get("frames"))):
                    samples.add(frames, {"score": row.get("score")})

    def _add_timing(self, lines: Sequence[bytes]) -> None:
        train = []
        for row in _decode(lines, self.timing.path):
            seconds, frames = number(row.get("seconds")), number(row.get("frames"))
            if math.isfinite(seconds) and math.isfinite(frames):
                self.seconds += seconds
                self.longest_seconds = max(self.longest_seconds, seconds)
                if row.get("kind") == "train":  # the time of evaluations counts from the next row
                    train.append((frames, self.seconds / 3600, row.get("steps_per_second")))
        for frames, hours, speed in self.clock.pick(train):
            self.clock.drop_from(frames)  # a resumed run repeats frames, and its time goes on
            self.clock.add(frames, {"hours": hours, "steps per second": speed})

    def _holder(self) -> Owner | None:
        owner_file = signature_path(self.path / "run.lock")
        if not os.path.lexists(owner_file):
            return None
        try:
            check_regular(owner_file, _SMALL_BYTES)
            return self.folder.holder()
        except (RunError, OSError, TypeError, OverflowError):
            return None

    def _current_state(self, now: float) -> str:
        if self.error:
            return "unreadable"
        if self.status.state != "running":
            return self.status.state
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
                try:
                    total += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118
                except OSError:
                    continue  # removed meanwhile
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
