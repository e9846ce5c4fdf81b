"""A run is a folder: where its parts lie, what it is (config) and how it fares (status)."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import (
    RunDamaged,
    RunError,
    StorageError,
    remove_temporaries,
    storage_errors,
    write_atomically,
)
from noisynet.runs.lock import Owner, RunLock, RunLocked, read_owner, signature_path

__all__ = [
    "Difference",
    "Owner",
    "RunDamaged",
    "RunError",
    "RunFolder",
    "RunLock",
    "RunLocked",
    "RunMismatch",
    "RunState",
    "StorageError",
    "compare_configs",
    "find_run_folders",
    "flatten_config",
    "write_atomically",
]

RunState = Literal["running", "interrupted", "finished", "failed"]

_LOCK_NAME = "run.lock"
_MISSING = object()


@dataclass(frozen=True)
class Difference:
    """One setting on which a folder's config.json and a command disagree.

    Attributes:
        key: Dotted path of the setting, as in "optimiser.learning_rate".
        stored: What config.json has, as text; "nothing" where it lacks the key.
        given: What the command has, likewise.
        identity: Whether the two must agree for the folder to be continued.
    """

    key: str
    stored: str
    given: str
    identity: bool

    def __str__(self) -> str:
        return f"{self.key}: the folder has {self.stored}, this command has {self.given}"


class RunMismatch(RunError):  # noqa: N818 - says what happened
    """The folder belongs to another run; `differences` says where they part."""

    differences: tuple[Difference, ...] = ()


class RunFolder:
    """Where the parts of one run lie. Making the object touches nothing on disk.

    Attributes:
        path: The folder.
        differences: After `create_or_open`, the settings outside the run's identity on which
            config.json and the command disagree (a longer `--frames`, say).
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config_path = self.path / "config.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.timing_path = self.path / "timing.jsonl"
        self.status_path = self.path / "status.json"
        self.traces_path = self.path / "traces"
        self.replay_path = self.path / "replay"
        self.checkpoints_path = self.path / "checkpoints"
        self.differences: tuple[Difference, ...] = ()
        self._is_new = False
        self._made: list[Path] = []

    @classmethod
    def create_or_open(
        cls, path: Path | str, config: Mapping[str, Any], *, must_match: Sequence[str]
    ) -> RunFolder:
        """Opens the folder of this run, or makes it and writes its config.json.

        An existing config.json is kept as it is; `write_config` replaces it. Comes before `lock`.

        Args:
            path: The run folder.
            config: The run's settings, JSON-able.
            must_match: Dotted key paths ("agent", "environment.rom") that make up the run's
                identity; a path covers everything below it.

        Raises:
            RunMismatch: The folder is another run's, or no run's at all but not empty.
            RunLocked: Another process is making this very folder.
            RunDamaged: Its config.json is not JSON.
            StorageError: The disk refused.
        """
        folder = cls(path)
        with storage_errors("make the run folder", folder.path):
            folder._made = [p for p in (folder.path, *folder.path.parents) if not p.exists()]
            folder.path.mkdir(parents=True, exist_ok=True)
            if not folder.config_path.exists():
                folder._refuse_foreign_files()
                with folder.lock():  # or two first starts could each write their own config
                    if not folder.config_path.exists():
                        folder.write_config(config)
                        folder._is_new = True
            for part in (folder.traces_path, folder.replay_path, folder.checkpoints_path):
                part.mkdir(exist_ok=True)
        folder.differences = compare_configs(
            folder.read_config(), decode(encode(config)), must_match
        )
        if any(difference.identity for difference in folder.differences):
            raise _mismatch(folder)
        return folder

    def remove_if_unused(self) -> None:
        """Removes what `create_or_open` has made, if it made a new run that has kept nothing yet.

        For whoever holds the lock and finds that the run cannot start: a folder left behind would
        refuse the same command with a mended setting as another run's.
        """
        has_rows = self.metrics_path.exists() and self.metrics_path.stat().st_size > 0
        if not self._is_new or has_rows or any(self.checkpoints_path.glob("*")):
            return
        # The configuration first, the lock last: whoever comes meanwhile finds a lock or no run.
        lock = self.path / _LOCK_NAME
        others = [entry for entry in self.path.iterdir() if entry not in (self.config_path, lock)]
        for entry in (self.config_path, *others, lock):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                with suppress(OSError):
                    entry.unlink()
        for folder in self._made:  # the innermost first
            with suppress(OSError):  # not empty: another run has moved in meanwhile
                folder.rmdir()

    def read_config(self) -> dict[str, Any]:
        """The settings in config.json."""
        return _read_object(self.config_path)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replaces config.json atomically."""
        write_atomically(self.config_path, encode(config, indent=2) + b"\n")

    def lock(self) -> RunLock:
        """Takes the folder's lock at once or raises `RunLocked`, naming the owner."""
        lock = RunLock(self.path / _LOCK_NAME)
        remove_temporaries(self.path)
        remove_temporaries(self.traces_path)
        return lock

    def holder(self) -> Owner | None:
        """Who writes to this folder now, as far as can be told without taking the lock.

        An owner on this host that has been killed counts as none; one on another host is believed.
        """
        owner = read_owner(self.path / _LOCK_NAME)
        if owner is not None and owner.host == socket.gethostname():
            try:
                os.kill(owner.pid, 0)
            except ProcessLookupError:
                return None
            except PermissionError:  # another user's process: alive
                return owner
        return owner

    def read_status(self) -> dict[str, Any] | None:
        """What `write_status` last wrote, or None before the first time.

        A killed run still says "running"; `holder` tells whether it is.
        """
        return _read_object(self.status_path) if self.status_path.exists() else None

    def write_status(self, state: RunState, **fields: Any) -> None:
        """Replaces status.json by `state`, the time in `updated`, and `fields`."""
        if state not in get_args(RunState):
            raise ValueError(f"state must be one of {get_args(RunState)}, got {state!r}")
        updated = datetime.now(UTC).isoformat(timespec="seconds")
        status = {"state": state, "updated": updated, **fields}
        write_atomically(self.status_path, encode(status, indent=2) + b"\n")

    def _refuse_foreign_files(self) -> None:
        """A folder with files but no config.json is somebody's, not a run's."""
        ours = (_LOCK_NAME, signature_path(Path(_LOCK_NAME)).name, f".{self.config_path.name}.tmp-")
        foreign = sorted(p.name for p in self.path.iterdir() if not p.name.startswith(ours))
        if foreign:
            raise RunMismatch(
                f"{self.path} holds {len(foreign)} entries ({', '.join(foreign[:3])} …) but no "
                "config.json, so it is not a run folder; choose another --out or --name"
            )


def _read_object(path: Path) -> dict[str, Any]:
    with storage_errors("read", path):
        data = path.read_bytes()
    try:
        value = decode(data)
    except ValueError as error:
        raise RunDamaged(f"{path} is not JSON ({error}); restore it or move it away") from error
    if not isinstance(value, dict):
        raise RunDamaged(f"{path} holds a {type(value).__name__}, not an object; move it away")
    return value


def find_run_folders(path: Path) -> Iterator[Path]:
    """Every run folder at or below `path`, in sorted order. Run folders do not nest."""
    for folder, below, files in os.walk(path):
        if "config.json" in files:
            below.clear()  # a run has thousands of files
            yield Path(folder)
        below.sort()


def flatten_config(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by dotted key, as in ("learning.discount", 0.99)."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flatten_config(item, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, value


def compare_configs(
    stored: Any, given: Any, must_match: Sequence[str] = ()
) -> tuple[Difference, ...]:
    """The settings on which two configurations, as JSON, disagree.

    Args:
        stored: The one of a run folder.
        given: The one of a command.
        must_match: Dotted paths of the run's identity; see `RunFolder.create_or_open`.
    """
    before, now = dict(flatten_config(stored)), dict(flatten_config(given))
    keys = list(dict.fromkeys([*now, *before]))

    def covers(path: str, key: str) -> bool:
        return key == path or key.startswith(f"{path}.")

    for path in must_match:
        if not any(covers(path, key) for key in keys):
            raise ValueError(f"must_match names {path!r}, which is in neither config")
    found = []
    for key in keys:
        old, new = before.get(key, _MISSING), now.get(key, _MISSING)
        if old is _MISSING or new is _MISSING or encode(old) != encode(new):
            texts = ["nothing" if side is _MISSING else repr(side) for side in (old, new)]
            identity = any(covers(path, key) for path in must_match)
            found.append(Difference(key, texts[0], texts[1], identity))
    return tuple(found)


def _mismatch(folder: RunFolder) -> RunMismatch:
    lines = [f"{folder.path} is another run's folder:"]
    lines += [f"  {difference}" for difference in folder.differences if difference.identity]
    others = [f"  {difference}" for difference in folder.differences if not difference.identity]
    if others:
        lines += ["also different, though these alone would not matter:", *others]
    lines.append("choose another --out or --name, or give the command this folder was made with")
    error = RunMismatch("\n".join(lines))
    error.differences = folder.differences
    return error
