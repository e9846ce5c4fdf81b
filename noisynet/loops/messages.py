"""Messages between a run and its workers: setups, reports of roll-outs, errors and snapshots."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noisynet.loops.shared_state import anonymous_file
from noisynet.runs.encoding import decode_state, encode_state

if TYPE_CHECKING:
    import torch

READY, REPORT, SNAPSHOT, ERROR = "R", "r", "s", "e"
"""Kinds of message from a worker: started, roll-outs made, stopped, failed."""
GO, LEAVE = "g", "l"
"""Kinds of message to a worker: play on, exit."""


@dataclass(frozen=True)
class WorkerSetup:
    """What a process needs to be a worker.

    Attributes:
        worker: number of the worker.
        incarnation: how many processes of this worker have died while running.
        config: configuration of the run, as stored.
        size: number of parameters.
        device: device of the network.
        snapshot: snapshot of an earlier process to resume from; None to start.
        function: encoded function that makes the environment; None for the configured name.
    """

    worker: int
    incarnation: int
    config: dict[str, Any]
    size: int
    device: str = "cpu"
    snapshot: bytes | None = None
    function: dict[str, Any] | None = None


def write_setup(setup: WorkerSetup) -> int:
    """Write a setup to an anonymous file and return its descriptor, open at the start.

    Not to a channel: its buffer may be smaller than a snapshot, and the writer would block.
    """
    fields = {**vars(setup), "snapshot": None if setup.snapshot is None else True}
    descriptor = anonymous_file()
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(encode_state(fields) + b"\n" + (setup.snapshot or b""))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def read_setup(descriptor: int) -> WorkerSetup:
    """Inverse of `write_setup`; closes the descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        fields, snapshot = decode_state(file.readline()), file.read()
    return WorkerSetup(**{**fields, "snapshot": snapshot if fields["snapshot"] else None})


@dataclass(frozen=True)
class RolloutReport:
    """One roll-out of one worker.

    Attributes:
        steps: agent steps of the worker so far, including this roll-out.
        updates: updates of the worker so far.
        dropped: updates dropped so far because their gradient was not finite.
        not_finite: the tensor because of which this update was dropped, if it was.
        measures: of the update: its losses, the entropy and the norm of the gradient.
        finished: episodes that ended: environment, number, score, steps.
        sigma: Σ̄ of each noisy layer, if a row of metrics is due.
    """

    steps: int
    updates: int
    dropped: int
    not_finite: str | None
    measures: dict[str, float]
    finished: list[tuple[int, int, float, int]] = field(default_factory=list)
    sigma: dict[str, float] | None = None


def encode_reports(reports: Sequence[RolloutReport]) -> bytes:
    """Encode reports as the body of one message."""
    return encode_state([list(vars(report).values()) for report in reports])


def decode_reports(body: bytes) -> list[RolloutReport]:
    """Inverse of `encode_reports`."""
    return [RolloutReport(*values) for values in decode_state(body)]


def encode_error(error: BaseException) -> bytes:
    """Encode an error as one line, followed by its traceback."""
    line = "".join(traceback.format_exception_only(error)).strip().replace("\n", "; ")
    return f"{line}\n{''.join(traceback.format_exception(error))}".encode()


def encode_snapshot(tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> bytes:
    """Encode JSON-able state as one line, followed by the tensors."""
    from safetensors.torch import save

    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return encode_state(state) + b"\n" + save(whole)


def decode_snapshot(data: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Inverse of `encode_snapshot`; each tensor has its own memory."""
    from safetensors.torch import load

    state, _, saved = data.partition(b"\n")
    # Copied, because safetensors does not align tensors as torch does.
    return {name: tensor.clone() for name, tensor in load(saved).items()}, decode_state(state)
