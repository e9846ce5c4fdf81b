"""The workers of a run as its checkpoints store them: shared memory, progress and snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from noisynet.loops.messages import RolloutReport, decode_snapshot, encode_snapshot
from noisynet.loops.shared_state import SharedState
from noisynet.loops.supervisor import WorkerHandle
from noisynet.state_dicts import add_prefix, strip_prefix


@dataclass
class Progress:
    """What a worker has reported so far; its slot may be slightly ahead.

    Attributes:
        steps: agent steps.
        updates: updates of the shared weights.
        dropped: updates dropped because their gradient was not finite.
        dropped_in_a_row: dropped updates since the last one that was made.
    """

    steps: int = 0
    updates: int = 0
    dropped: int = 0
    dropped_in_a_row: int = 0


class WorkerPool:
    """Shared memory, a handle for each worker, and the progress that each has reported.

    Args:
        workers: number of workers.
        parameters: initial weights, flat.

    Attributes:
        shared: weights, statistics and counters.
        handles: one per worker, with the snapshot that it starts from or has sent last.
        progress: one per worker.
    """

    def __init__(self, workers: int, parameters: torch.Tensor) -> None:
        self.shared = SharedState.create(workers, parameters.numel())
        self.shared.parameters[:] = parameters.cpu().numpy()
        self.handles = [WorkerHandle(number) for number in range(workers)]
        self.progress = [Progress() for _ in self.handles]

    @property
    def steps(self) -> int:
        """Reported agent steps of all workers."""
        return sum(progress.steps for progress in self.progress)

    @property
    def updates(self) -> int:
        """Reported updates of all workers."""
        return sum(progress.updates for progress in self.progress)

    @property
    def dropped(self) -> int:
        """Reported dropped updates of all workers."""
        return sum(progress.dropped for progress in self.progress)

    @property
    def deaths(self) -> int:
        """Deaths of all workers."""
        return sum(handle.deaths for handle in self.handles)

    def record(self, worker: int, report: RolloutReport) -> None:
        """Take the progress of a worker from its report."""
        dropped = self.progress[worker].dropped_in_a_row
        in_a_row = 0 if report.not_finite is None else dropped + 1
        self.progress[worker] = Progress(report.steps, report.updates, report.dropped, in_a_row)

    def record_slot(self, worker: int) -> None:
        """Take the progress of a dead worker from its slot: it may not have reported everything."""
        slot, in_a_row = self.shared.slots[worker], self.progress[worker].dropped_in_a_row
        self.progress[worker] = Progress(slot.steps, slot.updates, slot.dropped, in_a_row)

    def copy_weights_to(self, parameters: torch.Tensor) -> None:
        """Copy the shared weights."""
        parameters.copy_(torch.from_numpy(self.shared.parameters))

    def close(self) -> None:
        """Release the shared memory."""
        self.shared.close()

    # --- state, while no worker runs -------------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the statistics and the tensors of the snapshots; the agent names the weights."""
        named = {"squares": torch.from_numpy(self.shared.squares)}
        for handle in self.handles:
            if handle.snapshot is not None:
                own, _ = decode_snapshot(handle.snapshot)
                named |= add_prefix(f"worker.{handle.number}.", own)
        return named

    def state(self) -> list[dict[str, Any]]:
        """Return the rest of the state, JSON-able."""
        return [
            {
                "counters": slot.state(),
                "dropped_in_a_row": progress.dropped_in_a_row,
                "incarnation": handle.incarnation,
                "deaths": handle.deaths,
                "state": None if handle.snapshot is None else decode_snapshot(handle.snapshot)[1],
            }
            for handle, slot, progress in zip(
                self.handles, self.shared.slots, self.progress, strict=True
            )
        ]

    def restore(
        self,
        parameters: torch.Tensor,
        tensors: dict[str, torch.Tensor],
        state: list[dict[str, Any]],
    ) -> None:
        """Load the weights and what `tensors` and `state` returned; before any worker starts."""
        self.shared.parameters[:] = parameters.cpu().numpy()
        self.shared.squares[:] = tensors["squares"].numpy()
        for handle, stored in zip(self.handles, state, strict=True):
            self.shared.slots[handle.number].restore(stored["counters"])
            self.record_slot(handle.number)
            self.progress[handle.number].dropped_in_a_row = stored["dropped_in_a_row"]
            handle.incarnation, handle.deaths = stored["incarnation"], stored["deaths"]
            if stored["state"] is not None:
                own = strip_prefix(f"worker.{handle.number}.", tensors)
                handle.snapshot = encode_snapshot(own, stored["state"])
