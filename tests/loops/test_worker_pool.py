"""The workers of a run: what they report, and what a checkpoint stores."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noisynet.loops.messages import RolloutReport, decode_snapshot, encode_snapshot
from noisynet.loops.worker_pool import Progress, WorkerPool


def report(steps: int, updates: int, dropped: int, not_finite: str | None = None) -> RolloutReport:
    return RolloutReport(steps, updates, dropped, not_finite, {"loss": 0.5})


def test_totals_are_sums_over_the_workers() -> None:
    pool = WorkerPool(3, torch.zeros(4))
    pool.record(0, report(10, 2, 0))
    pool.record(2, report(25, 4, 1, "'x'"))
    pool.handles[1].deaths = 3
    assert (pool.steps, pool.updates, pool.dropped, pool.deaths) == (35, 6, 1, 3)
    pool.close()


def test_dropped_updates_are_counted_until_the_next_update() -> None:
    pool = WorkerPool(1, torch.zeros(4))
    in_a_row = []
    for dropped, not_finite in ((1, "'x'"), (2, "'x'"), (2, None), (3, "'x'")):
        pool.record(0, report(5, 1, dropped, not_finite))
        in_a_row.append(pool.progress[0].dropped_in_a_row)
    assert in_a_row == [1, 2, 0, 1]
    pool.close()


def test_the_slot_of_a_dead_worker_has_what_it_did_not_report() -> None:
    pool = WorkerPool(2, torch.zeros(4))
    pool.record(1, report(5, 1, 0))
    pool.shared.slots[1].count(5, dropped=False)
    pool.shared.slots[1].count(7, dropped=False)
    pool.record_slot(1)
    assert pool.progress == [Progress(), Progress(12, 2, 0, 0)]
    pool.close()


def test_weights_are_shared_and_copied() -> None:
    pool = WorkerPool(1, torch.arange(4.0))
    pool.shared.parameters[2] = 7
    copy = torch.zeros(4)
    pool.copy_weights_to(copy)
    assert copy.tolist() == [0, 1, 7, 3]
    pool.close()


@pytest.mark.parametrize("started", [True, False])
def test_a_restored_pool_has_the_same_tensors_and_state(started: bool) -> None:
    pool = WorkerPool(2, torch.arange(4.0))
    pool.shared.squares[:] = np.arange(4) / 3
    if started:
        own = {"agent.stream.rollout": torch.arange(3, dtype=torch.uint8)}
        pool.handles[1].snapshot = encode_snapshot(own, {"agent": {"drawn": True}})
        pool.handles[0].incarnation, pool.handles[0].deaths = 2, 3
        pool.shared.slots[0].count(5, dropped=True)
        pool.shared.slots[0].begin_episode(9)
        pool.record(0, report(5, 0, 1, "'x'"))
    tensors, state = pool.tensors(), pool.state()
    other = WorkerPool(2, torch.zeros(4))
    other.restore(torch.arange(4.0), tensors, state)
    assert other.state() == state
    assert other.tensors().keys() == tensors.keys()
    assert all(other.tensors()[name].equal(tensor) for name, tensor in tensors.items())
    assert other.shared.parameters.tolist() == [0, 1, 2, 3]
    assert other.progress == pool.progress
    if started:
        assert other.handles[1].snapshot is not None
        assert decode_snapshot(other.handles[1].snapshot)[1] == {"agent": {"drawn": True}}
    pool.close()
    other.close()
