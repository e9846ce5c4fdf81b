"""Atomic checkpoints in at least two generations, without pickle.

`checkpoints/<step>/` has tensors.safetensors, state.json and manifest.json. It is written under a
temporary name, synced and renamed, so a directory with its final name was complete once. The
SHA-256 sums in the manifest detect later damage.
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

_TENSORS, _STATE, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_GENERATION = re.compile(r"\d{12,}")
# Errors of reading a damaged directory. Any other means that the disk cannot be read.
_DAMAGE = (errno.ENOENT, errno.EIO, errno.EISDIR, errno.ENOTDIR)


class NoUsableCheckpoint(RunError):  # noqa: N818 - says what happened
    """There are checkpoints but none verifies; the user decides whether to start again."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that resuming from `step` needs.

    Attributes:
        step: Step of the run.
        tensors: Tensors by name, on any device. They are loaded to the CPU with the same dtype,
            shape and bits, each with its own memory. The order of names is not kept.
        state: Everything else, JSON-able. Integers of any size, non-finite floats and nested lists
            are loaded unchanged, tuples as lists.
    """

    step: int
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that was not used.

    Attributes:
        step: Its step.
        path: Its current path.
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
    """Write and sync a checkpoint, then remove all but the newest `keep` that verify.

    The caller holds the run's lock. A checkpoint of the same step is replaced.

    Args:
        folder: The run's `checkpoints/`; made if missing.
        checkpoint: What to write.
        schema: Version of the tensors and the state.
        identity: What a run and its checkpoints have in common.
        keep: Generations to keep, at least 2.

    Returns:
        The checkpoint's directory.

    Raises:
        StorageError: The write failed; earlier checkpoints are not changed.
        ValueError: A newer checkpoint exists, or an argument is out of range.
    """
    if keep < 2:
        raise ValueError(f"expected keep ≥ 2, in case one checkpoint is damaged, got {keep}")
    folder, target = Path(folder), _path(Path(folder), checkpoint.step)
    files = {_TENSORS: _pack(checkpoint.tensors), _STATE: encode_state(checkpoint.state)}
    records = {name: FileRecord.of(data) for name, data in files.items()}
    files[_MANIFEST] = Manifest(checkpoint.step, schema, dict(identity), records).encode()
    with storage_errors("write the checkpoint", target):
        folder.mkdir(parents=True, exist_ok=True)
        _clear_up(folder)
        _check_newest(folder, checkpoint.step)
        _write_directory(target, files)
    with suppress(OSError, StorageError):  # the checkpoint is written; the next call prunes again
        _prune(folder, keep)
    return target


def load_newest(
    folder: Path | str, *, schema: str, identity: Mapping[str, Any], repair: bool = True
) -> tuple[Checkpoint | None, list[Skipped]]:
    """Load the newest checkpoint that verifies.

    Args:
        folder: The run's `checkpoints/`.
        schema: As given to `save_checkpoint`.
        identity: As given to `save_checkpoint`.
        repair: Rename each corrupt checkpoint to `<step>.corrupt` and remove temporary files. The
            caller then holds the run's lock; a reader passes False.

    Returns:
        The checkpoint, or None if none was ever written; and the skipped ones, newest first.

    Raises:
        NoUsableCheckpoint: There are checkpoints, but none verifies.
        CheckpointMismatch: The checkpoint belongs to another run or version.
        StorageError: The disk cannot be read.
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
            if not repair and not path.exists():  # pruned by the lock's owner: there is a newer one
                return load_newest(folder, schema=schema, identity=identity, repair=False)
            moved = _mark_corrupt(path) if repair else path
            skipped.append(Skipped(int(path.name), moved, f"{error}."))
    if skipped or any(".corrupt" in path.name for path in _entries(folder)):
        reasons = [f"  {entry.path}: {entry.reason}" for entry in skipped]
        raise NoUsableCheckpoint(
            "\n".join([f"{folder} has checkpoints, but none is usable:", *reasons])
            + "\nrestore one from a backup, or move the run folder away to start again"
        )
    return None, []


def _path(folder: Path, step: int) -> Path:
    if step < 0:
        raise ValueError(f"step must not be negative, got {step}")
    return folder / f"{step:012d}"


def _generations(folder: Path) -> list[Path]:
    """Return the checkpoints with their final names, newest first."""
    named = [path for path in _entries(folder) if _GENERATION.fullmatch(path.name)]
    return sorted(named, key=lambda path: int(path.name), reverse=True)


def _entries(folder: Path) -> list[Path]:
    """Return the entries of `folder`; none if it does not exist."""
    with storage_errors("list", folder):
        try:
            return list(folder.iterdir())
        except FileNotFoundError:
            return []


def _check_newest(folder: Path, step: int) -> None:
    newest = _generations(folder)[:1]
    if newest and int(newest[0].name) > step:
        raise ValueError(
            f"{folder} already has step {int(newest[0].name)}, which is after {step}; resume from "
            "the newest checkpoint, or choose another --out or --name"
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
        # A copy of each: safetensors rejects views and tensors that share memory.
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
        if target.exists():  # rename cannot replace a directory; _clear_up undoes half of this
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
    """Finish or undo what a killed process was doing in `folder`."""
    for replaced in folder.glob(".*.old-*"):
        target = folder / replaced.name[1:].partition(".old-")[0]
        if target.exists():
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            with suppress(OSError):
                replaced.rename(target)
    remove_temporaries(folder)


def _prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` that verify; corrupt ones do not count."""
    verified = 0
    for path in _generations(folder):
        if verified >= keep:
            # Renamed first, so that a kill leaves no incomplete directory with a final name.
            doomed = temporary_name(path)
            path.rename(doomed)
            shutil.rmtree(doomed)
        else:
            with suppress(CorruptCheckpoint, CheckpointMismatch):
                _read_files(path, _read_manifest(path))
                verified += 1


# ---- reading


def _read(path: Path, schema: str, identity: Mapping[str, Any]) -> Checkpoint:
    from safetensors import SafetensorError
    from safetensors.torch import load

    manifest = _read_manifest(path)
    manifest.check_belongs(schema, identity)
    files = _read_files(path, manifest)
    try:
        # Copies, because safetensors does not align tensors as torch does, and kernels may round
        # differently on unaligned memory.
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
    """Read and check the two files of a checkpoint."""
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


def _mark_corrupt(path: Path) -> Path:
    """Rename a corrupt checkpoint, without replacing another; return its path."""
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
