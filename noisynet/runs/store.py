"""The folder of a run: its files, its configuration and its status."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_args

from noisynet.runs.encoding import decode, encode, flatten
from noisynet.runs.files import (
    RunDamaged,
    RunError,
    remove_temporaries,
    storage_errors,
    write_atomically,
)
from noisynet.runs.lock import Owner, RunLock, read_owner, signature_path

RunStatus = Literal["running", "interrupted", "finished", "failed"]

CHANGEABLE_SETTINGS: Final = ("frames", "threads")
"""Settings that a resumed run may change. All others are part of its identity."""

_LOCK_NAME = "run.lock"
_MADE_BY = "made_by"  # in config.json, beside the settings
_MISSING = object()


@dataclass(frozen=True)
class Difference:
    """A setting that differs between a folder's config.json and a command.

    Attributes:
        key: Dotted path of the setting, as in "optimiser.learning_rate".
        stored: Value in config.json as text; "nothing" if the key is missing.
        given: Value in the command, likewise.
    """

    key: str
    stored: str
    given: str

    def __str__(self) -> str:
        return f"{self.key}: the folder has {self.stored}, this command has {self.given}"


class RunMismatch(RunError):  # noqa: N818 - says what happened
    """The folder belongs to another run, or to another version of noisynet."""


class RunFolder:
    """The files of one run. The constructor does not access the disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config_path = self.path / "config.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.timing_path = self.path / "timing.jsonl"
        self.status_path = self.path / "status.json"
        self.traces_path = self.path / "traces"
        self.replay_path = self.path / "replay"
        self.checkpoints_path = self.path / "checkpoints"
        self._is_new = False
        self._made: list[Path] = []

    @classmethod
    def create_or_open(
        cls, path: Path | str, config: Mapping[str, Any], *, must_match: Sequence[str]
    ) -> RunFolder:
        """Open the folder of a run, or make it and write its config.json.

        Call this before `lock`. An existing config.json is not changed; see `write_config`.

        Args:
            path: The run folder.
            config: Settings of the run, JSON-able.
            must_match: Dotted keys ("agent", "environment.rom") of the run's identity; a key
                includes everything below it.

        Raises:
            RunMismatch: The folder belongs to another run, or has files but is no run folder.
            RunLocked: Another process is making this folder.
            RunDamaged: Its config.json is not JSON.
            StorageError: The disk cannot be read or written.
        """
        folder = cls(path)
        with storage_errors("make the run folder", folder.path):
            folder._made = [p for p in (folder.path, *folder.path.parents) if not p.exists()]
            folder.path.mkdir(parents=True, exist_ok=True)
            if not folder.config_path.exists():
                folder._check_no_foreign_files()
                with folder.lock():  # two processes may start the same run
                    if not folder.config_path.exists():
                        folder.write_config(config)
                        folder._is_new = True
            for inner in (folder.traces_path, folder.checkpoints_path):
                inner.mkdir(exist_ok=True)
        _check_identity(folder, config, must_match)
        return folder

    def remove_if_unused(self) -> None:
        """Remove what `create_or_open` has made, if the run is new and has no results yet.

        Call this with the lock, if the run cannot start. A folder left behind would not match the
        same command with a corrected setting.
        """
        has_rows = self.metrics_path.exists() and self.metrics_path.stat().st_size > 0
        if not self._is_new or has_rows or any(self.checkpoints_path.glob("*")):
            return
        # config.json first, the lock last: another process finds a locked folder or no run.
        lock = self.path / _LOCK_NAME
        others = [entry for entry in self.path.iterdir() if entry not in (self.config_path, lock)]
        for entry in (self.config_path, *others, lock):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                with suppress(OSError):
                    entry.unlink()
        for folder in self._made:  # innermost first
            with suppress(OSError):  # not empty: it holds another run by now
                folder.rmdir()

    def read_config(self) -> dict[str, Any]:
        """Return the settings in config.json."""
        config = _read_object(self.config_path)
        config.pop(_MADE_BY, None)
        return config

    def read_made_by(self) -> list[dict[str, Any]]:
        """Return what the run was made by: versions, machine and device; one entry per change."""
        found: list[dict[str, Any]] = _read_object(self.config_path).get(_MADE_BY, [])
        return found

    def write_config(
        self, config: Mapping[str, Any], *, made_by: Mapping[str, Any] | None = None
    ) -> None:
        """Replace config.json atomically, unless nothing has changed.

        Args:
            config: settings of the run.
            made_by: versions, machine and device of this process; added to those of earlier ones.
        """
        stored = _read_object(self.config_path) if self.config_path.exists() else None
        makers = list((stored or {}).get(_MADE_BY, []))
        if made_by is not None and dict(made_by) not in makers[-1:]:
            makers.append(dict(made_by))
        given = {**config, _MADE_BY: makers} if makers else dict(config)
        if given != stored:
            write_atomically(self.config_path, encode(given, indent=2) + b"\n")

    def lock(self) -> RunLock:
        """Take the folder's lock, or raise `RunLocked` at once."""
        lock = RunLock(self.path / _LOCK_NAME)
        remove_temporaries(self.path)
        remove_temporaries(self.traces_path)
        return lock

    def holder(self) -> Owner | None:
        """Return the owner of the lock, as far as is known without taking the lock.

        An owner on this host that has died is not returned; one on another host always is.
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
        """Return what `write_status` wrote last; None if it never did.

        The status of a killed run stays "running"; `holder` tells whether it is.
        """
        return _read_object(self.status_path) if self.status_path.exists() else None

    def write_status(self, state: RunStatus, **fields: Any) -> None:
        """Replace status.json by `state`, the time as `updated`, and `fields`."""
        if state not in get_args(RunStatus):
            raise ValueError(f"state must be one of {get_args(RunStatus)}, got {state!r}")
        updated = datetime.now(UTC).isoformat(timespec="seconds")
        status = {"state": state, "updated": updated, **fields}
        write_atomically(self.status_path, encode(status, indent=2) + b"\n")

    def _check_no_foreign_files(self) -> None:
        """Raise `RunMismatch` if the folder has files: it has no config.json, so it is no run."""
        ours = (_LOCK_NAME, signature_path(Path(_LOCK_NAME)).name, f".{self.config_path.name}.tmp-")
        foreign = sorted(p.name for p in self.path.iterdir() if not p.name.startswith(ours))
        if foreign:
            raise RunMismatch(
                f"{self.path} has {len(foreign)} entries ({', '.join(foreign[:3])} …) but no "
                "config.json, so it is not a run folder; choose another --out or --name"
            )


def _read_object(path: Path) -> dict[str, Any]:
    with storage_errors("read", path):
        data = path.read_bytes()
    try:
        value = decode(data)
    except ValueError as error:
        raise RunDamaged(f"{path} is not JSON ({error}); restore it from a backup") from error
    if not isinstance(value, dict):
        raise RunDamaged(f"{path} is a JSON {type(value).__name__}, not an object; move it away")
    return value


def find_run_folders(path: Path) -> Iterator[Path]:
    """Every run folder at or below `path`, in sorted order. Run folders do not nest."""
    for folder, below, files in os.walk(path):
        if "config.json" in files:
            below.clear()  # a run has thousands of files
            yield Path(folder)
        below.sort()


def compare_configs(stored: Any, given: Any) -> list[Difference]:
    """The settings on which two configurations, as JSON, disagree."""
    before, now = flatten(stored), flatten(given)
    found = []
    for key in dict.fromkeys([*now, *before]):
        old, new = before.get(key, _MISSING), now.get(key, _MISSING)
        if old is _MISSING or new is _MISSING or encode(old) != encode(new):
            texts = ["nothing" if side is _MISSING else repr(side) for side in (old, new)]
            found.append(Difference(key, *texts))
    return found


def _check_identity(
    folder: RunFolder, config: Mapping[str, Any], must_match: Sequence[str]
) -> None:
    """Raise `RunMismatch` if a setting in `must_match`, or below one, differs from config.json."""
    identity: list[str] = []
    others: list[str] = []
    for difference in compare_configs(folder.read_config(), decode(encode(config))):
        mine = any(f"{difference.key}.".startswith(f"{key}.") for key in must_match)
        (identity if mine else others).append(f"  {difference}")
    if identity:
        if others:
            identity += ["these differ as well, but may be changed:", *others]
        raise RunMismatch(
            "\n".join([f"{folder.path} belongs to another run:", *identity])
            + "\nchoose another --out or --name, or give the command that the run was started with"
        )
