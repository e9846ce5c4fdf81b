"""The manifest of a checkpoint: the run that it belongs to, and the SHA-256 of its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from noisynet.runs.encoding import decode, encode
from noisynet.runs.files import RunError

_FORMAT = 1
_OTHER_VERSION = (
    "resume the run with the version that started it, or start a new run with another --out or "
    "--name"
)


class CheckpointMismatch(RunError):  # noqa: N818 - says what happened
    """An intact checkpoint, but of another run or of another version of noisynet."""


class CorruptCheckpoint(RunError):  # noqa: N818 - says what happened
    """The files of a checkpoint are not what was written; the message is one sentence."""


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and SHA-256, in hexadecimal, of one file."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> FileRecord:
        """Return the record of a file with content `data`."""
        return cls(len(data), hashlib.sha256(data).hexdigest())

    def check(self, name: str, data: bytes) -> None:
        """Raise `CorruptCheckpoint` unless `data`, read from file `name`, is what was recorded."""
        if len(data) != self.size:
            raise CorruptCheckpoint(f"{name} has {len(data)} bytes instead of {self.size}")
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise CorruptCheckpoint(f"{name} does not match its SHA-256")


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json.

    Attributes:
        step: Step of the run.
        schema: Version of the tensors and the state, chosen by the caller.
        identity: What a run and its checkpoints have in common.
        files: Records of the other files.
    """

    step: int
    schema: str
    identity: dict[str, Any]
    files: dict[str, FileRecord]

    def encode(self) -> bytes:
        """Encode as manifest.json; the last field is the SHA-256 of all others."""
        return _seal({"format": _FORMAT, **asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Inverse of `encode`.

        Raises:
            CorruptCheckpoint: `data` was not made by `encode`.
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
                f"layout {_FORMAT}; {_OTHER_VERSION}"
            )
        files = {name: FileRecord(**record) for name, record in body["files"].items()}
        return cls(body["step"], body["schema"], body["identity"], files)

    def check_belongs(self, schema: str, identity: Mapping[str, Any]) -> None:
        """Raise `CheckpointMismatch` unless the checkpoint belongs to such a run.

        The order of keys does not matter.
        """
        ours, theirs = decode(encode(identity)), decode(encode(self.identity))
        if ours != theirs:
            raise CheckpointMismatch(
                f"the checkpoint of step {self.step} is for {_describe(theirs)}; this run is "
                f"{_describe(ours)}; choose another --out or --name, or give the command that the "
                "run was started with"
            )
        if schema != self.schema:
            raise CheckpointMismatch(
                f"the checkpoint of step {self.step} has schema {self.schema}, this version of "
                f"noisynet reads schema {schema}; {_OTHER_VERSION}"
            )


def _seal(body: dict[str, Any]) -> bytes:
    digest = hashlib.sha256(encode(body)).hexdigest()
    return encode({**body, "sha256": digest}) + b"\n"


def _describe(identity: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value!r}" for key, value in identity.items())
