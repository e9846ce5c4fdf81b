"""Atomic checkpoints in at least two generations, without pickle.

`checkpoints/<step>.safetensors` has the tensors and, in its header, the rest of the state. It is
written under a temporary name, synced and renamed, so a file with its final name was complete once.
The SHA-256 in its header detects later damage.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import (
    RunDamaged,
    RunError,
    StorageError,
    list_folder,
    open_folder,
    remove_file,
    remove_temporaries,
    storage_errors,
    write_atomically,
)
from noisynet.runs.reading import Count, Name, Stored, validate
from noisynet.runs.sealed import read_sealed, seal

if TYPE_CHECKING:
    import torch

_FORMAT: Final = 2
_GENERATION: Final = re.compile(r"(\d{12,})\.safetensors")
# Errors of reading a damaged file. Any other means that the disk cannot be read.
_DAMAGE: Final = (errno.ENOENT, errno.EIO)
_OTHER_VERSION: Final = (
    "resume the run with the version that started it, or start a new run with another --out or "
    "--name"
)


class NoUsableCheckpoint(RunError):  # noqa: N818 - says what happened
    """There are checkpoints but none verifies; the user decides whether to start again."""


class CheckpointMismatch(RunError):  # noqa: N818 - says what happened
    """An intact checkpoint, but of another run or of another version of noisynet."""


class _Corrupt(Exception):  # noqa: N818 - says what happened
    """A file is not what was written; the message is one sentence."""


class _Header(Stored):
    format: Count
    step: Count
    schema_: Name = Field(alias="schema")
    identity: dict[Name, Any]
    state: dict[str, Any]


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
    """A checkpoint that was not used."""

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

    Returns:
        The checkpoint's file.

    Raises:
        StorageError: The write failed; earlier checkpoints are not changed.
        ValueError: A newer checkpoint exists, or an argument is out of range.
    """
    if keep < 2:
        raise ValueError(f"expected keep ≥ 2, in case one checkpoint is damaged, got {keep}")
    if checkpoint.step < 0:
        raise ValueError(f"step must not be negative, got {checkpoint.step}")
    folder, data = Path(folder), _encode(checkpoint, schema, identity)
    path = folder / f"{checkpoint.step:012d}.safetensors"
    with storage_errors("write the checkpoint", path):
        folder.mkdir(parents=True, exist_ok=True)
    remove_temporaries(folder)
    newest = max(map(_step, _generations(folder)), default=0)
    if newest > checkpoint.step:
        raise ValueError(
            f"{folder} already has step {newest}, which is after {checkpoint.step}; resume from "
            "the newest checkpoint, or choose another --out or --name"
        )
    write_atomically(path, data, doing="write the checkpoint")
    with suppress(OSError, StorageError):  # the checkpoint is written; the next call prunes again
        _prune(folder, keep)
    return path


def load_newest(
    folder: Path | str,
    *,
    schema: str,
    identity: Mapping[str, Any],
    repair: bool = True,
    before: int | None = None,
) -> tuple[Checkpoint | None, list[Skipped]]:
    """Load the newest checkpoint that verifies.

    Args:
        folder: The run's `checkpoints/`.
        schema: As given to `save_checkpoint`.
        identity: As given to `save_checkpoint`.
        repair: Rename each corrupt checkpoint to `….corrupt` and remove temporary files. The caller
            then holds the run's lock; a reader passes False.
        before: Load one of an earlier step than this.

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
        remove_temporaries(folder)
    for path in _generations(folder):
        if before is not None and _step(path) >= before:
            continue
        try:
            data, header = _read(path)
            _check_belongs(header, schema, identity)
            return _decode(data, header), skipped
        except _Corrupt as error:
            # Pruned by the lock's owner: there is a newer one.
            if not repair and not os.path.lexists(path):
                return load_newest(folder, schema=schema, identity=identity, repair=False)
            moved = mark_corrupt(path) if repair else path
            skipped.append(Skipped(_step(path), moved, f"{error}."))
    if before is None and (skipped or any(folder.glob("*.corrupt*"))):
        reasons = [f"  {entry.path}: {entry.reason}" for entry in skipped]
        raise NoUsableCheckpoint(
            "\n".join([f"{folder} has checkpoints, but none is usable:", *reasons])
            + "\nrestore one from a backup, or move the run folder away to start again"
        )
    return None, skipped


def read_states(folder: Path) -> Iterator[tuple[Path, dict[str, Any] | str]]:
    """Yield every checkpoint, newest first, with its state, or with what is wrong with it."""
    for path in _generations(folder):
        try:
            yield path, _read(path)[1].state
        except _Corrupt as error:
            yield path, str(error)


def _step(path: Path) -> int:
    return int(path.name.partition(".")[0])


def _generations(folder: Path) -> list[Path]:
    """Return the checkpoints with their final names, newest first; none in a missing folder."""
    with storage_errors("list", folder):
        named = [folder / name for name in list_folder(folder) if _GENERATION.fullmatch(name)]
    return sorted(named, key=_step, reverse=True)


def _prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` that verify; corrupt ones do not count."""
    verified = 0
    for path in _generations(folder):
        if verified >= keep:
            remove_file(path)
        else:
            with suppress(_Corrupt):
                _read(path)
                verified += 1


def mark_corrupt(path: Path) -> Path:
    """Rename a checkpoint that cannot be used, without replacing another; return its path."""
    aside, count = path.with_name(f"{path.name}.corrupt"), 1
    while os.path.lexists(aside):
        count += 1
        aside = path.with_name(f"{path.name}.corrupt-{count}")
    try:
        with open_folder(path.parent) as folder:
            os.rename(path.name, aside.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
    except OSError:
        return path if os.path.lexists(path) else aside
    return aside


# ---- content


def _encode(checkpoint: Checkpoint, schema: str, identity: Mapping[str, Any]) -> bytes:
    import torch
    from safetensors.torch import save

    whole = {}
    for name, tensor in checkpoint.tensors.items():
        if name == "__metadata__":
            raise ValueError("safetensors reserves the name '__metadata__'; rename that tensor")
        if tensor.layout is not torch.strided:
            raise ValueError(f"tensor {name!r} is {tensor.layout}; use .to_dense() first")
        # A copy of each: safetensors rejects views and tensors that share memory.
        resolved = tensor.detach().resolve_conj().resolve_neg().to("cpu")
        whole[name] = resolved.clone(memory_format=torch.contiguous_format)
    header = {
        "format": _FORMAT,
        "step": checkpoint.step,
        "schema": schema,
        "identity": dict(identity),
        "state": checkpoint.state,
    }
    return seal(save, whole, header)


def _read(path: Path) -> tuple[bytes, _Header]:
    """Read a file and check that it is what was written; return it with its header."""
    with storage_errors("read", path):
        try:
            data, header = read_sealed(path)
            checked = validate(_Header, header, "its header")
        except OSError as error:
            if error.errno not in _DAMAGE:
                raise
            raise _Corrupt(f"it cannot be read ({os.strerror(error.errno)})") from error
        except (ValueError, RunDamaged) as error:
            raise _Corrupt(str(error)) from error
    if checked.step != _step(path):
        raise _Corrupt(f"it is named {path.name} but was written as step {checked.step}")
    return data, checked


def _decode(data: bytes, header: _Header) -> Checkpoint:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        # Copies, because safetensors does not align tensors as torch does, and kernels may round
        # differently on unaligned memory.
        tensors = {name: tensor.clone() for name, tensor in load(data).items()}
    except (SafetensorError, ValueError, KeyError) as error:
        raise _Corrupt(f"it verifies but cannot be read ({error})") from error
    return Checkpoint(header.step, tensors, header.state)


def _check_belongs(header: _Header, schema: str, identity: Mapping[str, Any]) -> None:
    """Raise `CheckpointMismatch` unless the run has this schema and identity, in any order."""
    step = header.step
    for what, theirs, ours in (
        ("layout", header.format, _FORMAT),
        ("schema", header.schema_, schema),
    ):
        if theirs != ours:
            raise CheckpointMismatch(
                f"the checkpoint of step {step} has {what} {theirs}, this version of noisynet "
                f"reads {what} {ours}; {_OTHER_VERSION}"
            )
    expected = decode(encode(identity))
    if header.identity != expected:
        raise CheckpointMismatch(
            f"the checkpoint of step {step} is for {_describe(header.identity)}; this run is "
            f"{_describe(expected)}; choose another --out or --name, or give the command that the "
            "run was started with"
        )


def _describe(identity: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value!r}" for key, value in identity.items())
