"""What is read back from a run folder: bounded, and checked against a schema.

A folder may be damaged, or come from somebody else. Everything that is not what a run writes is a
`RunDamaged` that names the file and what is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from noisynet.runs.encoding import NON_FINITE, encode, flatten, restore_non_finite
from noisynet.runs.files import RunDamaged, open_file, read_file, storage_errors

_MOST_BYTES: Final = 1 << 18  # of config.json or status.json
_LONGEST_LINE: Final = 1 << 20
_CHUNK: Final = 1 << 23
_DEEPEST: Final = 16
_MOST_SETTINGS: Final = 500
_LARGEST: Final = 1e100  # squares and sums of such numbers are finite; rewards are float32
_LARGEST_INTEGER: Final = 10**30
_SHA256: Final = "sha256"


def _check_magnitude(value: float) -> float:
    if math.isfinite(value) and abs(value) > _LARGEST:
        raise ValueError(f"expected at most {_LARGEST:g}")
    return value


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected printable characters")
    return text


def _number_of(value: Any) -> Any:
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


Count = Annotated[int, Field(ge=0, le=10**15)]
Number = Annotated[float, BeforeValidator(_number_of), AfterValidator(_check_magnitude)]
Text = Annotated[str, Field(max_length=10_000)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_printable)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# No digits: a damaged "sha256" is no name of a setting.
Key = Annotated[str, Field(pattern=r"^[a-z_]{1,200}$")]
Noise = Literal["on", "off"]
RunStatus = Literal["running", "interrupted", "finished", "failed"]


class Stored(BaseModel):
    """A schema: no conversions, unknown entries are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class FileDigest(Stored):
    """The SHA-256 of the first bytes of a file, which only grows."""

    bytes: Count
    sha256: Sha256


class Owner(Stored):
    """The process that holds, or held, the lock of a run folder.

    `started` identifies the process where pids are used again; None if the system does not tell.
    """

    pid: Annotated[int, Field(ge=1, lt=2**31)]
    host: Name
    since: Name
    started: Name | None = None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since})"


class StoredStatus(Stored):
    """status.json. `files` has digests of the logs at the time of the last checkpoint."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")
    __pydantic_extra__: dict[Key, Any]

    state: RunStatus
    updated: Name | None = None
    frames: Count = 0
    score: Number | None = None
    reason: Text | None = None
    files: dict[Name, FileDigest] = {}


class Maker(Stored):
    """The versions, the machine and the device that a run was trained with."""

    versions: dict[Name, Name]
    commit: Name | None
    machine: Name
    system: Name
    processor: Name
    cores: Count | None
    device: Name

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return (
            f"{versions}; commit {self.commit or 'unknown'}; {self.device} of {self.machine}, "
            f"{self.processor}, {self.cores} cores, {self.system}"
        )


class _Protocol(Stored):
    period_frames: Annotated[Count, Field(ge=1)]
    frames: Annotated[Count, Field(ge=1)]


class _Exploration(Stored):
    evaluation: Noise | Annotated[float, Field(ge=0, le=1)] | None = None  # a mode, or ε


class StoredConfig(Stored):
    """config.json: what every run has. Other settings are in `settings` only."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")
    __pydantic_extra__: dict[Key, Any]

    agent: Name
    environment: Name
    environment_options: dict[Name, Any] = {}
    seed: Count
    frames: Annotated[Count, Field(ge=1)]
    evaluation: _Protocol
    max_episode_frames: Count | None = None
    exploration: _Exploration = _Exploration()
    made_by: list[Maker] = []

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if len(flatten(self.__pydantic_extra__)) > _MOST_SETTINGS:
            raise ValueError(f"expected at most {_MOST_SETTINGS} settings")
        if len(json.dumps(self.environment_options)) > 2_000:
            raise ValueError("expected environment_options of at most 2,000 characters")
        return self


class EvaluationRow(Stored):
    """A row of metrics.jsonl about an evaluation. `traces` is the SHA-256 of its file."""

    frames: Count
    noise: Noise
    score: Number
    completed: bool = True
    episodes: Count = 0
    traces: Sha256 | None = None


class TrainRow(Stored):
    """A row of metrics.jsonl about training; the means of an agent are in `model_extra`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")
    __pydantic_extra__: dict[Name, Number | None]

    kind: Literal["train"]
    frames: Count
    sigma: Annotated[dict[Name, Number], Field(max_length=_MOST_SETTINGS)] | None = None


class TimingRow(Stored):
    """A row of timing.jsonl."""

    kind: Literal["train", "evaluation"]
    frames: Count = 0
    seconds: Annotated[float, Field(ge=0, le=1e10)] = 0.0
    steps_per_second: Annotated[float, Field(ge=0, le=1e12)] = 0.0


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], value: Any, where: Path | str) -> Model:
    """Check a value against a schema.

    Raises:
        RunDamaged: It does not fit; the message has `where` and at most three errors.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise RunDamaged(f"{where}: {_explained(error)}") from None


def _explained(error: ValidationError, skip: int = 0) -> str:
    """The errors, without the first parts of where they are."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    texts = [f"{'.'.join(map(str, one['loc'][skip:]))[:100]}: {one['msg']}" for one in found[:3]]
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    return "; ".join(text.removeprefix(": ") for text in texts) + more


# --- objects ------------------------------------------------------------------------------------


def encode_object(value: Mapping[str, Any]) -> bytes:
    """Encode an object for a file that `read_object` reads, with its SHA-256 as the last entry.

    Raises:
        RunDamaged: It could not be read again.
    """
    plain = _parsed("what is to be stored", encode(value))
    return encode({**value, _SHA256: _digest(plain)}, indent=2) + b"\n"


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; its SHA-256 is checked if it has one.

    Raises:
        RunDamaged: It is not a regular file, not a JSON object, too large, or was changed.
        StorageError: It cannot be read.
    """
    with storage_errors("read", path):
        value = _parsed(path, read_file(path, _MOST_BYTES))
    digest = value.pop(_SHA256, None)
    if digest is not None and digest != _digest(value):
        raise RunDamaged(
            f"{path} does not match its SHA-256: it was changed; restore it from a backup, or, if "
            f"you changed it yourself, remove its entry {_SHA256!r}"
        )
    restored: dict[str, Any] = restore_non_finite(value)
    return restored


def _parsed(where: Path | str, data: bytes) -> dict[str, Any]:
    try:
        value = from_json(data)
    except ValueError as error:
        raise RunDamaged(f"{where} is not JSON ({error}); restore it from a backup") from error
    if not isinstance(value, dict):
        raise RunDamaged(f"{where} is a JSON {type(value).__name__}, not an object; move it away")
    _check_bounds(where, value)
    return value


def _digest(plain: Any) -> str:
    text = json.dumps(plain, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_bounds(path: Path | str, value: Any, depth: int = 1) -> None:
    """Raise `RunDamaged` for what no setting is: large numbers, long names, deep nesting."""
    wrong = None
    if isinstance(value, dict | list):
        wrong = f"more than {_DEEPEST} levels" if depth > _DEEPEST else None
        items = value.values() if isinstance(value, dict) else value
        for item in () if wrong else items:
            _check_bounds(path, item, depth + 1)
        if isinstance(value, dict) and any(len(name) > 200 for name in value):
            wrong = "a name of more than 200 characters"
    elif isinstance(value, str):
        wrong = "a text of more than 10,000 characters" if len(value) > 10_000 else None
    elif isinstance(value, float) and not math.isfinite(value):  # in JSON these are texts
        wrong = f"the number {value}"
    elif isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
        wrong = f"an integer that is not within ±{_LARGEST_INTEGER:.0e}"
    if wrong:
        raise RunDamaged(f"{path} has {wrong}; it is not a file of this run")


# --- rows ---------------------------------------------------------------------------------------


def read_lines(path: Path, expected: FileDigest | None = None) -> Iterator[bytes]:
    """Yield the complete lines of a file, which a run may still be writing.

    A missing file has none. An unfinished last line is ignored.

    Raises:
        RunDamaged: It is not a regular file, has a line of more than a megabyte, or, after the last
            line, does not begin with the expected bytes.
        StorageError: It cannot be read.
    """
    digest, hashed, rest, number = hashlib.sha256(), 0, b"", 0
    for chunk in _chunks(path) if os.path.lexists(path) else ():
        if expected is not None and hashed < expected.bytes:
            part = chunk[: expected.bytes - hashed]
            digest.update(part)
            hashed += len(part)
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE or any(len(line) > _LONGEST_LINE for line in lines):
            raise RunDamaged(
                f"{path} has a line of more than {_LONGEST_LINE:,} bytes after line {number:,}"
            )
        number += len(lines)
        yield from lines
    if expected and (hashed, digest.hexdigest()) != (expected.bytes, expected.sha256):
        found = f"only {hashed:,}" if hashed < expected.bytes else "others"
        raise RunDamaged(
            f"{path}: expected the {expected.bytes:,} bytes that the run had written at its last "
            f"checkpoint, got {found}; restore it from a backup"
        )


def _chunks(path: Path) -> Iterator[bytes]:
    with storage_errors("read", path), open(open_file(path), "rb", buffering=0) as file:  # noqa: PTH123
        while chunk := file.read(_CHUNK):
            yield chunk


_TRAIN: Final = b'{"kind":"train","frames":'
_EVALUATION: Final = b'{"kind":"evaluation",'
_OTHERS: Final = tuple(b'{"kind":"%s"' % kind for kind in (b"episode", b"death"))


Line = tuple[int, bytes]
"""A line of a log: its number, from 1, and its text."""


def kind_of_row(path: Path, number: int, line: bytes) -> Literal["train", "evaluation"] | None:
    """Return which row a line of metrics.jsonl is, by its first bytes; None for the other kinds.

    A run of the paper's length has a hundred thousand rows, of which few have to be decoded.

    Raises:
        RunDamaged: It is not a row.
    """
    if line.startswith(_TRAIN):
        return "train"
    if line.startswith(_EVALUATION):
        return "evaluation"
    if line.startswith(_OTHERS):
        return None
    raise _not_a_row(path, number, line)


def read_rows(
    path: Path, budget_frames: int, points: int, expected: FileDigest | None = None
) -> tuple[list[EvaluationRow], list[TrainRow]]:
    """Read the evaluations of metrics.jsonl, and its training rows at `points` of the budget.

    The last row of each point counts.

    Raises:
        RunDamaged: A line is not a row; the message has its number.
    """
    evaluations: list[Line] = []
    sampled: dict[int, Line] = {}
    for number, line in enumerate(read_lines(path, expected), start=1):
        kind = kind_of_row(path, number, line)
        if kind == "evaluation":
            evaluations.append((number, line))
        elif kind == "train":
            try:
                frames = int(line[len(_TRAIN) : line.index(b",", len(_TRAIN))])
            except ValueError:
                raise _not_a_row(path, number, line) from None
            if points:
                sampled[min(frames * points // budget_frames, points - 1)] = (number, line)
    return (
        decode_rows(EvaluationRow, path, evaluations),
        decode_rows(TrainRow, path, list(sampled.values())),
    )


def read_timing(path: Path, expected: FileDigest | None = None) -> list[TimingRow]:
    """Read timing.jsonl; errors are those of `read_rows`."""
    return decode_rows(TimingRow, path, list(enumerate(read_lines(path, expected), start=1)))


def decode_rows(model: type[Model], path: Path, lines: Sequence[Line]) -> list[Model]:
    """Decode lines of a log, all at once: faster than one by one. Errors name the line."""
    adapter = _list_of(model)
    try:
        return adapter.validate_json(b"[" + b",".join(line for _, line in lines) + b"]")
    except ValidationError as error:
        for number, line in lines:
            try:
                adapter.validate_json(b"[" + line + b"]")
            except ValidationError as wrong:
                raise _not_a_row(path, number, line, _explained(wrong, skip=1)) from None
        raise RunDamaged(f"{path}: {_explained(error)}") from None


@cache
def _list_of(model: type[Model]) -> TypeAdapter[list[Model]]:
    return TypeAdapter(list[model])  # type: ignore[valid-type]


def _not_a_row(path: Path, number: int, line: bytes, why: str = "") -> RunDamaged:
    start = line[:60].decode("utf-8", "backslashreplace")
    return RunDamaged(f"line {number} of {path} is not a row: {why or repr(start)}")
