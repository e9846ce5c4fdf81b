"""A worker that neither plays nor learns, for tests of whoever watches over it (not a test).

It is told what to do by the configuration of its job: `fault` names what it does wrong, `worker`
who does it (all, if it is left out), `until` before which incarnation, and `after` how many updates
of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, NoReturn

from noisynet.loops.channel import Channel
from noisynet.loops.handover import (
    ERROR,
    GO,
    READY,
    REPORT,
    STATE,
    Job,
    Report,
    encode_error,
    encode_reports,
    read_job,
)
from noisynet.loops.shared_state import END, SharedState, Slot

ROLLOUT_STEPS = 5


def _misbehave(job: Job, slot: Slot, updates: int, channel: Channel) -> None:
    told: dict[str, Any] = job.config
    mine = told.get("worker", job.worker) == job.worker
    if not mine or job.incarnation >= told.get("until", 10**9) or updates < told.get("after", 0):
        return
    match told.get("fault"):
        case "raise":
            raise ValueError("the environment\nis out of order")
        case "sleep":
            time.sleep(600)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "leave":
            os._exit(0)
        case "deaf":
            channel.close()
            time.sleep(600)
        case "slow":  # but alive
            for _ in range(20):
                time.sleep(0.05)
                slot.beat()


def _work(job: Job, shared: SharedState, channel: Channel) -> NoReturn:
    slot = shared.slots[job.worker]
    if job.config.get("fault") == "raise at start":
        raise RuntimeError("no such game")
    played = int(job.state or b"0")
    channel.send(READY)
    wait(channel)
    updates = 0
    while True:
        if shared.stop_at == END:
            os._exit(0)
        if shared.steps >= shared.stop_at:
            channel.send(STATE, str(played).encode())
            wait(channel)
            continue
        _misbehave(job, slot, updates, channel)
        time.sleep(job.config.get("seconds", 0.001))
        slot.beat()
        slot.count(ROLLOUT_STEPS, dropped=False)
        updates, played = updates + 1, played + 1
        report = Report(slot.steps, slot.updates, slot.dropped, None, {"loss": 0.0})
        channel.send(REPORT, encode_reports([report]))


def wait(channel: Channel) -> None:
    word = channel.wait()
    if word is None or word[0] != GO:
        os._exit(0)


def main() -> NoReturn:
    """As the worker of the package is started."""
    _, connection, block, order = map(int, sys.argv[1:5])
    job = read_job(order)
    channel = Channel.inherited(connection)
    try:
        _work(job, SharedState(block, job.config["workers"], job.size), channel)
    except Exception as error:
        channel.send(ERROR, encode_error(error))
        os._exit(1)
