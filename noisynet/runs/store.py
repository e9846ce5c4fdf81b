"""The folder of a run: its files, its configuration and its status."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_args

from noisynet.runs.encoding import decode, encode, flatten
from noisynet.runs.files import (
    TEMPORARY,
    RunError,
    open_folder,
    remove_file,
    remove_temporaries,
    storage_errors,
    write_atomically,
)
from noisynet.runs.lock import RunLock, is_held, read_owner, signature_path
from noisynet.runs.reading import (
    Owner,
    RunStatus,
    StoredStatus,
    encode_object,
    read_object,
    validate,
)

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
    """The files of one run.

    The folder itself may be given by a link. Below it, nothing is read or written through links.

    Attributes:
        given: as it was given, for messages.
        path: absolute, so that an environment may change the current folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.given = Path(path)
        self.path = self.given.resolve() if self.given.is_symlink() else self.given.absolute()
        self.config_path = self.path / "config.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.timing_path = self.path / "timing.jsonl"
        self.status_path = self.path / "status.json"
        self.traces_path = self.path / "traces"
        self.replay_path = self.path / "replay"
        self.checkpoints_path = self.path / "checkpoints"
        self._is_new = False
        self._made: list[Path] = []
        self._lock: RunLock | None = None

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
            for made in reversed(folder._made):
                with open_folder(made.parent.resolve()) as parent:
                    os.fsync(parent)  # a new folder is durable only after this
            if not os.path.lexists(folder.config_path):
                folder._check_no_foreign_files()
                with folder.lock():  # two processes may start the same run
                    if not os.path.lexists(folder.config_path):
                        folder.write_config(config)
                        folder._is_new = True
            for inner in (folder.traces_path, folder.checkpoints_path):
                with suppress(FileExistsError):
                    inner.mkdir()
                with open_folder(inner):
                    pass  # a folder, and not a link to one
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
        files = (self.status_path, self.metrics_path, self.timing_path, signature_path(lock), lock)
        with suppress(OSError):
            remove_file(self.config_path)
        for made in (self.traces_path, self.checkpoints_path, self.replay_path):
            shutil.rmtree(made, ignore_errors=True)  # does not follow links
        for path in files:
            with suppress(OSError):
                remove_file(path)
        for folder in self._made:  # innermost first
            with suppress(OSError):  # not empty: it holds another run by now
                folder.rmdir()

    def read_config(self) -> dict[str, Any]:
        """Return the settings in config.json."""
        config = read_object(self.config_path)
        config.pop(_MADE_BY, None)
        return config

    def read_made_by(self) -> list[dict[str, Any]]:
        """Return versions, machine and device of every process that has trained the run."""
        makers: list[dict[str, Any]] = read_object(self.config_path).get(_MADE_BY, [])
        return makers

    def write_config(
        self, config: Mapping[str, Any], *, made_by: Mapping[str, Any] | None = None
    ) -> None:
        """Replace config.json atomically, unless nothing has changed.

        Args:
            config: settings of the run.
            made_by: versions, machine and device of this process; added to those of earlier ones.
        """
        stored = read_object(self.config_path) if self.config_path.exists() else None
        makers = list((stored or {}).get(_MADE_BY, []))
        if made_by is not None and dict(made_by) not in makers[-1:]:
            makers.append(dict(made_by))
        given = {**config, _MADE_BY: makers} if makers else dict(config)
        if given != stored:
            self.check_lock()
            write_atomically(self.config_path, encode_object(given))

    def lock(self) -> RunLock:
        """Take the folder's lock, or raise `RunLocked` in a tenth of a second."""
        self._lock = RunLock(self.path / _LOCK_NAME)
        remove_temporaries(self.path)
        remove_temporaries(self.traces_path)
        return self._lock

    def check_lock(self) -> None:
        """Raise `RunLocked` if this process has lost the lock that it took with `lock`."""
        if self._lock is not None:
            self._lock.check()

    def holder(self) -> Owner | None:
        """Return the process that holds the lock now; None if none does, or it is not known."""
        path = self.path / _LOCK_NAME
        owner = read_owner(path)
        return owner if owner is not None and is_held(path, owner) else None

    def read_status(self) -> dict[str, Any] | None:
        """Return what `write_status` wrote last; None if it never did.

        The status of a killed run stays "running"; `holder` tells whether it is.
        """
        if not os.path.lexists(self.status_path):
            return None
        status = read_object(self.status_path)
        validate(StoredStatus, status, self.status_path)
        return status

    def write_status(self, state: RunStatus, **fields: Any) -> None:
        """Replace status.json by `state`, the time as `updated`, and `fields`."""
        if state not in get_args(RunStatus):
            raise ValueError(f"state must be one of {get_args(RunStatus)}, got {state!r}")
        updated = datetime.now(UTC).isoformat(timespec="seconds")
        status = {"state": state, "updated": updated, **fields}
        self.check_lock()
        write_atomically(self.status_path, encode_object(status))

    def _check_no_foreign_files(self) -> None:
        """Raise `RunMismatch` if the folder has files: it has no config.json, so it is no run."""
        ours = {_LOCK_NAME, signature_path(Path(_LOCK_NAME)).name}
        names = {path.name for path in self.path.iterdir()} - ours
        foreign = sorted(name for name in names if not TEMPORARY.fullmatch(name))
        if foreign:
            raise RunMismatch(
                f"{self.path} has {len(foreign)} entries ({', '.join(foreign[:3])} …) but no "
                "config.json, so it is not a run folder; choose another --out or --name"
            )


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
        if any(f"{difference.key}.".startswith(f"{key}.") for key in must_match):
            identity.append(f"  {difference}")
        elif difference.given != "None":  # the command leaves the choice to the run
            others.append(f"  {difference}")
    if identity:
        if others:
            identity += ["these differ as well, but may be changed:", *others]
        raise RunMismatch(
            "\n".join([f"{folder.path} belongs to another run:", *identity])
            + "\nchoose another --out or --name, or give the command that the run was started with"
        )
