"""Checkpoints that are whole or absent, in at least two generations, without pickle.

`checkpoints/<step>/` holds tensors.safetensors, state.json and manifest.json. It is written under
a temporary name, synced and renamed, so a directory under its final name was once complete; what
has happened to it since, the manifest's SHA-256 sums tell.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisynet.runs.encoding import decode_state, encode_state
from noisynet.runs.files import (
    RunError,
    StorageError,
    remove_temporaries,
    storage_errors,
    sync_directory,
    temporary_name,
    write_synced,
)
from noisynet.runs.manifest import CheckpointMismatch, CorruptCheckpoint, FileRecord, Manifest

if TYPE_CHECKING:
    import torch

__all__ = [
    "Checkpoint",
    "CheckpointMismatch",
    "NoUsableCheckpoint",
    "Skipped",
    "load_newest",
    "save_checkpoint",
]

_TENSORS, _STATE, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_GENERATION = re.compile(r"\d{12,}")
# What reading a file of a damaged directory meets; anything else is the disk's refusal to be read.
_DAMAGE = (errno.ENOENT, errno.EIO, errno.EISDIR, errno.ENOTDIR)


class NoUsableCheckpoint(RunError):  # noqa: N818 - says what happened
    """There are checkpoints but none verifies; starting afresh is left to the user."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on from `step`.

    Attributes:
        step: Step of the run.
        tensors: Tensors by name, on any device; they come back on the CPU, with the same dtype,
            shape and bits, each with memory of its own. The order of names is not kept.
        state: All else, JSON-able: integers of any size, non-finite floats and nested lists come
            back equal, tuples come back as lists.
    """

    step: int
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that was not used.

    Attributes:
        step: Its step.
        path: Where it lies now.
        reason: What is wrong with it, in one sentence.
    """

    step: int
    path: Path
    reason: str


def save_checkpoint(
    folder: Path | str,
    checkpoint: Checkpoint,
    *,
    schema: str,
    identity: Mapping[str, Any],
    keep: int = 2,
) -> Path:
    """Writes a checkpoint; when this returns, the disk has it. The caller holds the run's lock.

    Then generations before the newest `keep` that verify are removed. A step saved again replaces
    the one before.

    Args:
        folder: The run's `checkpoints/`; made if missing.
        checkpoint: What to write.
        schema: Version of what the tensors and the state mean.
        identity: What a run must have in common with this checkpoint to use it.
        keep: Generations to keep, at least 2.

    Returns:
        The checkpoint's directory.

    Raises:
        StorageError: The disk refused; earlier checkpoints are untouched.
        ValueError: A newer checkpoint than this one exists, or an argument is out of range.
    """
    if keep < 2:
        raise ValueError(f"keep must be at least 2, or a bad disk block ends the run; got {keep}")
    folder, target = Path(folder), _path(Path(folder), checkpoint.step)
    files = {_TENSORS: _pack(checkpoint.tensors), _STATE: encode_state(checkpoint.state)}
    records = {name: FileRecord.of(data) for name, data in files.items()}
    files[_MANIFEST] = Manifest(checkpoint.step, schema, identity, records).encode()
    with storage_errors("write the checkpoint", target):
        folder.mkdir(parents=True, exist_ok=True)
        _clear_up(folder)
        _refuse_to_go_back(folder, checkpoint.step)
        _write_directory(target, files)
    with suppress(OSError, StorageError):  # the checkpoint is safe; the next save prunes again
        _prune(folder, keep)
    return target


def load_newest(
    folder: Path | str, *, schema: str, identity: Mapping[str, Any], repair: bool = True
) -> tuple[Checkpoint | None, list[Skipped]]:
    """The newest checkpoint that verifies, and what was skipped on the way to it.

    Args:
        folder: The run's `checkpoints/`.
        schema: As given to `save_checkpoint`.
        identity: As given to `save_checkpoint`.
        repair: Renames each corrupt checkpoint to `<step>.corrupt` and clears left-overs away.
            The caller must then hold the run's lock; a mere reader passes False.

    Returns:
        The checkpoint, or None where none was ever written; and the skipped ones, newest first.

    Raises:
        NoUsableCheckpoint: There are or were checkpoints, but none verifies.
        CheckpointMismatch: The checkpoint is sound but of another run; both sides are named.
        StorageError: The disk refused to be read.
    """
    folder = Path(folder)
    skipped: list[Skipped] = []
    if repair:
        with storage_errors("clear up", folder):
            _clear_up(folder)
    for path in _generations(folder):
        try:
            return _read(path, schema, identity), skipped
        except CorruptCheckpoint as error:
            if not repair and not path.exists():  # pruned by the run's owner: there is a newer one
                return load_newest(folder, schema=schema, identity=identity, repair=False)
            moved = _set_aside(path) if repair else path
            skipped.append(Skipped(int(path.name), moved, f"{error}."))
    if skipped or any(".corrupt" in path.name for path in _entries(folder)):
        told = [f"  {entry.path}: {entry.reason}" for entry in skipped]
        raise NoUsableCheckpoint(
            "\n".join([f"{folder} holds checkpoints, but none is usable:", *told])
            + "\nrestore one from a copy, or move the run folder away to start afresh"
        )
    return None, []


def _path(folder: Path, step: int) -> Path:
    if step < 0:
        raise ValueError(f"step must not be negative, got {step}")
    return folder / f"{step:012d}"


def _generations(folder: Path) -> list[Path]:
    """Checkpoints under their final names, newest first."""
    named = [path for path in _entries(folder) if _GENERATION.fullmatch(path.name)]
    return sorted(named, key=lambda path: int(path.name), reverse=True)


def _entries(folder: Path) -> list[Path]:
    """All that `folder` holds; nothing where it was never made."""
    with storage_errors("list", folder):
        try:
            return list(folder.iterdir())
        except FileNotFoundError:
            return []


def _refuse_to_go_back(folder: Path, step: int) -> None:
    newest = _generations(folder)[:1]
    if newest and int(newest[0].name) > step:
        raise ValueError(
            f"{folder} already holds step {int(newest[0].name)}, and {step} is before it; "
            "load the newest checkpoint and go on from there, or choose another --out or --name"
        )


# ---- writing


def _pack(tensors: Mapping[str, torch.Tensor]) -> bytes:
    import torch
    from safetensors.torch import save

    packed = {}
    for name, tensor in tensors.items():
        if name == "__metadata__":
            raise ValueError("safetensors reserves the name '__metadata__'; rename that tensor")
        if tensor.layout is not torch.strided:
            raise ValueError(f"tensor {name!r} is {tensor.layout}; use .to_dense() first")
        # A copy each: safetensors refuses views and tensors that share memory.
        whole = tensor.detach().resolve_conj().resolve_neg().to("cpu")
        packed[name] = whole.clone(memory_format=torch.contiguous_format)
    return save(packed)


def _write_directory(target: Path, files: Mapping[str, bytes]) -> None:
    temporary = temporary_name(target)
    replaced = target.with_name(f".{target.name}.old-{os.getpid()}")
    try:
        temporary.mkdir()
        for name, data in files.items():
            write_synced(temporary / name, data)
        sync_directory(temporary)
        if target.exists():  # a directory cannot be renamed onto one; _clear_up undoes half of this
            target.rename(replaced)
        temporary.rename(target)
        sync_directory(target.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if replaced.exists() and not target.exists():
            with suppress(OSError):
                replaced.rename(target)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def _clear_up(folder: Path) -> None:
    """Finishes or undoes what a killed process was doing in `folder`."""
    for replaced in folder.glob(".*.old-*"):
        target = folder / replaced.name[1:].partition(".old-")[0]
        if target.exists():
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            with suppress(OSError):
                replaced.rename(target)
    remove_temporaries(folder)


def _prune(folder: Path, keep: int) -> None:
    """Removes all before the newest `keep` that verify; a corrupt one among them is no loss."""
    verified = 0
    for path in _generations(folder):
        if verified >= keep:
            # Renamed first: a kill half-way must not leave a half directory under a final name.
            doomed = temporary_name(path)
            path.rename(doomed)
            shutil.rmtree(doomed)
        else:
            with suppress(CorruptCheckpoint, CheckpointMismatch):
                manifest = _read_manifest(path)
                _read_files(path, manifest)
                verified += 1


# ---- reading


def _read(path: Path, schema: str, identity: Mapping[str, Any]) -> Checkpoint:
    from safetensors import SafetensorError
    from safetensors.torch import load

    manifest = _read_manifest(path)
    manifest.check_belongs(schema, identity)
    files = _read_files(path, manifest)
    try:
        # Copies, because the reader's own are not aligned as torch aligns its memory, and kernels
        # may round differently on memory that is not.
        tensors = {name: tensor.clone() for name, tensor in load(files[_TENSORS]).items()}
        state = decode_state(files[_STATE])
    except (SafetensorError, ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"its files verify but cannot be read ({error})") from error
    return Checkpoint(manifest.step, tensors, state)


def _read_manifest(path: Path) -> Manifest:
    manifest = Manifest.decode(_read_file(path / _MANIFEST))
    if manifest.step != int(path.name):
        raise CorruptCheckpoint(f"it is named {path.name} but was written as step {manifest.step}")
    return manifest


def _read_files(path: Path, manifest: Manifest) -> dict[str, bytes]:
    """The recorded files, each checked; they must be the two that a checkpoint has."""
    files = {name: _read_file(path / name) for name in (_TENSORS, _STATE)}
    for name, data in files.items():
        if name not in manifest.files:
            raise CorruptCheckpoint(f"manifest.json does not record {name}")
        manifest.files[name].check(name, data)
    return files


def _read_file(path: Path) -> bytes:
    with storage_errors("read", path):
        try:
            return path.read_bytes()
        except OSError as error:
            if error.errno not in _DAMAGE:
                raise
            reason = os.strerror(error.errno)
            raise CorruptCheckpoint(f"{path.name} cannot be read ({reason})") from error


def _set_aside(path: Path) -> Path:
    """Renames a corrupt checkpoint, never over an earlier one; where refused, leaves it."""
    aside, count = path.with_name(f"{path.name}.corrupt"), 1
    while aside.exists():
        count += 1
        aside = path.with_name(f"{path.name}.corrupt-{count}")
    try:
        path.rename(aside)
        sync_directory(path.parent)
    except OSError:
        return path if path.exists() else aside
    return aside
