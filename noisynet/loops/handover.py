"""What passes between a run and its workers: jobs, reports of roll-outs, and whole states."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from noisynet.loops.shared_state import nameless_file
from noisynet.runs.encoding import decode_state, encode_state

if TYPE_CHECKING:
    import torch

READY, REPORT, STATE, ERROR = "R", "r", "s", "e"
"""Kinds of message from a worker: it could start, tells of roll-outs, stops, fails."""
GO, LEAVE = "g", "l"
"""Kinds of message to a worker: play on, end."""

_LENGTH_BYTES: Final = 8


@dataclass(frozen=True)
class Job:
    """What a process needs to be a worker.

    Attributes:
        worker: which one.
        incarnation: how many processes of this worker have died in the midst of their work.
        config: the run's configuration, as it is stored.
        size: how many parameters the weights have.
        device: where the network lives.
        state: what an earlier process has handed over, to go on from; None to begin.
    """

    worker: int
    incarnation: int
    config: dict[str, Any]
    size: int
    device: str = "cpu"
    state: bytes | None = None


def write_job(job: Job) -> int:
    """The descriptor of a file without a name that holds the job, open at its beginning.

    A channel would make its writer wait where a state is larger than what the system buffers.
    """
    told = {name: value for name, value in vars(job).items() if name != "state"}
    text = encode_state([told, job.state is not None])
    descriptor = nameless_file()
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text + (job.state or b""))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def read_job(descriptor: int) -> Job:
    """Inverse of `write_job`; closes the descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        told, goes_on = decode_state(file.read(length))
        return Job(**told, state=file.read() if goes_on else None)


@dataclass(frozen=True)
class Report:
    """One roll-out of one worker.

    Attributes:
        steps: the worker's agent steps so far, this roll-out's included.
        updates: its updates so far.
        dropped: its updates so far that were dropped, because the gradient was not finite.
        not_finite: the tensor that made this update be dropped, if it was.
        measures: of the update: loss, policy_loss, value_loss, entropy.
        finished: episodes that ended: environment, number, score, steps.
        sigma: Σ̄ of each noisy layer, where a row of metrics falls due.
    """

    steps: int
    updates: int
    dropped: int
    not_finite: str | None
    measures: dict[str, float]
    finished: list[tuple[int, int, float, int]] = field(default_factory=list)
    sigma: dict[str, float] | None = None


def encode_reports(reports: Sequence[Report]) -> bytes:
    """The reports as the body of one message."""
    return encode_state([list(vars(report).values()) for report in reports])


def decode_reports(body: bytes) -> list[Report]:
    """Inverse of `encode_reports`."""
    return [Report(*values) for values in decode_state(body)]


def encode_error(error: BaseException) -> bytes:
    """The error in one line, then its traceback."""
    told = "".join(traceback.format_exception_only(error)).strip().replace("\n", "; ")
    return f"{told}\n{''.join(traceback.format_exception(error))}".encode()


def pack(tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> bytes:
    """Tensors and JSON in one piece."""
    from safetensors.torch import save

    text = encode_state(state)
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + save(whole)


def unpack(data: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Inverse of `pack`; each tensor has memory of its own."""
    from safetensors.torch import load

    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    # Copies, because the reader's own are not aligned as torch aligns its memory.
    tensors = {name: tensor.clone() for name, tensor in load(data[end:]).items()}
    return tensors, decode_state(data[_LENGTH_BYTES:end])
