"""The workers of a run as its checkpoints know them: what they share, and where each one stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from noisynet.loops.handover import Report, pack, unpack
from noisynet.loops.shared_state import SharedState
from noisynet.loops.supervisor import Member


@dataclass
class Reported:
    """What a worker has reported so far; its slot may be ahead by a moment.

    Attributes:
        steps: its agent steps.
        updates: its updates.
        dropped: its updates whose gradient was not finite.
        dropped_in_a_row: how many of them were its last ones.
    """

    steps: int = 0
    updates: int = 0
    dropped: int = 0
    dropped_in_a_row: int = 0


class Crew:
    """Shared memory, the workers, and what they have reported.

    Args:
        workers: how many.
        parameters: the initial weights, flat.

    Attributes:
        shared: weights, statistics and counters.
        members: each worker with the state that it starts from or has handed over.
        reported: of each worker.
    """

    def __init__(self, workers: int, parameters: torch.Tensor) -> None:
        self.shared = SharedState.create(workers, parameters.numel())
        self.shared.parameters[:] = parameters.cpu().numpy()
        self.members = [Member(number) for number in range(workers)]
        self.reported = [Reported() for _ in self.members]

    @property
    def steps(self) -> int:
        """Agent steps of all workers, as far as they have reported."""
        return sum(reported.steps for reported in self.reported)

    @property
    def updates(self) -> int:
        """Updates of the shared weights, likewise."""
        return sum(reported.updates for reported in self.reported)

    @property
    def dropped(self) -> int:
        """Updates that were dropped, likewise."""
        return sum(reported.dropped for reported in self.reported)

    @property
    def deaths(self) -> int:
        """How often a worker has died."""
        return sum(member.deaths for member in self.members)

    def take(self, worker: int, report: Report) -> None:
        """Count what a worker reports."""
        reported = self.reported[worker]
        in_a_row = 0 if report.not_finite is None else reported.dropped_in_a_row + 1
        self.reported[worker] = Reported(report.steps, report.updates, report.dropped, in_a_row)

    def settle(self, worker: int) -> None:
        """Count what a worker has done but can no longer report."""
        slot, in_a_row = self.shared.slots[worker], self.reported[worker].dropped_in_a_row
        self.reported[worker] = Reported(slot.steps, slot.updates, slot.dropped, in_a_row)

    def copy_weights_to(self, parameters: torch.Tensor) -> None:
        """Bring a copy of the shared weights up to date."""
        parameters.copy_(torch.from_numpy(self.shared.parameters))

    # --- state, while nobody is at work ----------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """Statistics and every array of the workers' states; weights are named by the agent."""
        named = {"squares": torch.from_numpy(self.shared.squares)}
        for member in self.members:
            if member.state is not None:
                own, _ = unpack(member.state)
                named |= {f"worker.{member.number}.{name}": value for name, value in own.items()}
        return named

    def state(self) -> list[dict[str, Any]]:
        """The rest of the state, JSON-able."""
        return [
            {
                "counters": slot.state(),
                "dropped_in_a_row": reported.dropped_in_a_row,
                "incarnation": member.incarnation,
                "deaths": member.deaths,
                "state": None if member.state is None else unpack(member.state)[1],
            }
            for member, slot, reported in zip(
                self.members, self.shared.slots, self.reported, strict=True
            )
        ]

    def restore(
        self,
        parameters: torch.Tensor,
        tensors: dict[str, torch.Tensor],
        state: list[dict[str, Any]],
    ) -> None:
        """Take back what `tensors` and `state` gave, and the weights; before any worker starts."""
        self.shared.parameters[:] = parameters.cpu().numpy()
        self.shared.squares[:] = tensors["squares"].numpy()
        for member, of_member in zip(self.members, state, strict=True):
            self.shared.slots[member.number].restore(of_member["counters"])
            self.settle(member.number)
            self.reported[member.number].dropped_in_a_row = of_member["dropped_in_a_row"]
            member.incarnation, member.deaths = of_member["incarnation"], of_member["deaths"]
            if of_member["state"] is not None:
                own = _below(f"worker.{member.number}.", tensors)
                member.state = pack(own, of_member["state"])

    def close(self) -> None:
        """Give the memory back."""
        self.shared.close()


def _below(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
