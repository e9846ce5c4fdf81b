"""Runs on pages of Weights & Biases."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from noisynet.extras import import_extra
from noisynet.integrations.tracker import Tracker

# The offline store is a log in LevelDB's format: blocks with records of checksum, length and type.
_BLOCK: Final = 32_768
_FILE_HEADER, _RECORD_HEADER = 7, struct.Struct("<IHB")
_ENDS: Final = (1, 4)  # types of a whole record and of the last piece of one


class WandbTracker(Tracker):
    """Sends the metrics of training to Weights & Biases.

    W&B's own environment variables apply. With `WANDB_MODE=offline` the page is in the run's
    `wandb/`, one folder for each start of the run; `wandb sync` uploads them.
    """

    library = "wandb"

    def _open(self, page: str, settings: dict[str, Any], folder: Path | None) -> int:
        quiet = self._library.Settings(
            silent=True, console="off", disable_code=True, x_disable_stats=True
        )
        self._run = self._library.init(
            project=self.project,
            id=page,
            name=page,
            dir=folder,
            config=settings,
            resume="allow",
            settings=quiet,
        )
        last: int = self._run.starting_step - 1  # of the server
        if folder is not None and self._run.offline:
            last = max([last, *stored_steps(folder, page)])
        return last

    def _send(self, numbers: dict[str, float], frames: int) -> None:
        self._run.log(numbers, step=frames)

    def _close(self) -> None:
        if self._run is not None:
            self._run.finish()


def stored_steps(folder: Path, page: str) -> list[int]:
    """The steps of a page in the offline store below a run folder, in the order of writing.

    W&B writes in a process of its own, which loses its last rows when the run is killed.
    """
    messages: Any = import_extra("wandb.proto.wandb_internal_pb2", "wandb")
    steps = []
    for file in sorted(folder.glob(f"wandb/offline-run-*/run-{page}.wandb")):
        for data in read_log(file.read_bytes()):
            record = messages.Record.FromString(data)
            if record.HasField("history"):
                steps.append(record.history.step.num)
    return steps


def read_log(data: bytes) -> Iterator[bytes]:
    """The whole records of a log; an unfinished one at the end is dropped."""
    at, record = _FILE_HEADER, b""
    while at + _RECORD_HEADER.size <= len(data):
        if _BLOCK - at % _BLOCK < _RECORD_HEADER.size:  # the rest of the block is padding
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = _RECORD_HEADER.unpack_from(data, at)
        at += _RECORD_HEADER.size
        if kind == 0 or at + length > len(data):
            return
        record += data[at : at + length]
        at += length
        if kind in _ENDS:
            yield record
            record = b""
