"""What a checkpoint says about itself: whose it is, and the SHA-256 of each of its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import RunError

__all__ = ["CheckpointMismatch", "CorruptCheckpoint", "FileRecord", "Manifest"]

_FORMAT = 1


class CheckpointMismatch(RunError):  # noqa: N818 - says what happened
    """A sound checkpoint, but of another agent, environment or schema than this run's."""


class CorruptCheckpoint(RunError):  # noqa: N818 - says what happened
    """A checkpoint's files are not what was written; the message is one sentence."""


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and SHA-256, in hexadecimal, of one file."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> FileRecord:
        """The record of a file that holds `data`."""
        return cls(len(data), hashlib.sha256(data).hexdigest())

    def check(self, name: str, data: bytes) -> None:
        """Raises `CorruptCheckpoint` unless file `name` still holds what was recorded."""
        if len(data) != self.size:
            raise CorruptCheckpoint(f"{name} has {len(data)} bytes instead of {self.size}")
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise CorruptCheckpoint(f"{name} does not match its SHA-256")


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json.

    Attributes:
        step: Step of the run at which the checkpoint was taken.
        schema: Version of what the tensors and the state mean, chosen by the caller.
        identity: What a run must have in common with the checkpoint to use it.
        files: The checkpoint's other files.
    """

    step: int
    schema: str
    identity: Mapping[str, Any]
    files: Mapping[str, FileRecord]

    def encode(self) -> bytes:
        """The bytes of manifest.json; the last field is the SHA-256 of all before it."""
        body = {
            "format": _FORMAT,
            "step": self.step,
            "schema": self.schema,
            "identity": dict(self.identity),
            "files": {
                name: {"size": record.size, "sha256": record.sha256}
                for name, record in self.files.items()
            },
        }
        return _seal(body)

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Inverse of `encode`.

        Raises:
            CorruptCheckpoint: `data` is not, to the last byte, what `encode` made.
            CheckpointMismatch: It was made by a version with another layout of checkpoints.
        """
        try:
            body = decode(data)
            del body["sha256"]
            sound = _seal(body) == data
        except (ValueError, TypeError, KeyError):
            sound = False
        if not sound:
            raise CorruptCheckpoint("manifest.json does not match its own SHA-256")
        if body["format"] != _FORMAT:
            raise CheckpointMismatch(
                f"the checkpoint has layout {body['format']}, this version of noisynet reads "
                f"layout {_FORMAT}; continue the run with the version that began it"
            )
        files = {name: FileRecord(**record) for name, record in body["files"].items()}
        return cls(body["step"], body["schema"], body["identity"], files)

    def check_belongs(self, schema: str, identity: Mapping[str, Any]) -> None:
        """Raises `CheckpointMismatch`, naming both sides, unless this is such a run's checkpoint.

        Key order does not matter; every key of either side does.
        """
        ours = (schema, decode(encode(identity)))
        theirs = (self.schema, decode(encode(self.identity)))
        if ours != theirs:
            raise CheckpointMismatch(
                f"the checkpoint of step {self.step} is for {_describe(*theirs)}, "
                f"this run is {_describe(*ours)}; choose another --out or --name, or give the "
                "command this run was begun with"
            )


def _seal(body: dict[str, Any]) -> bytes:
    digest = hashlib.sha256(encode(body)).hexdigest()
    return encode({**body, "sha256": digest}) + b"\n"


def _describe(schema: str, identity: Mapping[str, Any]) -> str:
    return ", ".join([f"{key} {value!r}" for key, value in identity.items()] + [f"schema {schema}"])
