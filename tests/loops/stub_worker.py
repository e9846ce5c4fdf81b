"""A worker that neither plays nor learns, for tests of whoever watches over it (not a test).

It is told what to do: `fault` names what it does wrong, `worker` who does it (all, if it is left
out), `until` before which incarnation, and `after` how many updates of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
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
NO_TENSORS = (8).to_bytes(8, "little") + b"{}      "  # of safetensors


def _misbehave(
    told: dict[str, Any], job: Job, slot: Slot, updates: int, channel: Channel
) -> str | None:
    """Do what is wrong, or say what is to be reported as such."""
    mine = told.get("worker", job.worker) == job.worker
    if not mine or job.incarnation >= told.get("until", 10**9) or updates < told.get("after", 0):
        return None
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
        case "nan":
            return "the gradient of 'policy.weight'"
    return None


def pack(played: int) -> bytes:
    """A state as real workers pack it, without tensors."""
    text = json.dumps({"played": played}).encode()
    return len(text).to_bytes(8, "little") + text + NO_TENSORS


def unpack(state: bytes) -> int:
    played: int = json.loads(state[8 : -len(NO_TENSORS)])["played"]
    return played


def _work(told: dict[str, Any], job: Job, shared: SharedState, channel: Channel) -> NoReturn:
    slot = shared.slots[job.worker]
    if told.get("fault") == "raise at start":
        raise RuntimeError("no such game")
    played = 0 if job.state is None else unpack(job.state)
    channel.send(READY)
    wait(channel)
    slot.beat()
    updates = 0
    while True:
        if shared.stop_at == END:
            os._exit(0)
        if shared.steps >= shared.stop_at:
            channel.send(STATE, pack(played))
            wait(channel)
            slot.beat()
            continue
        not_finite = _misbehave(told, job, slot, updates, channel)
        time.sleep(told.get("seconds", 0.001))
        slot.beat()
        slot.count(ROLLOUT_STEPS, dropped=not_finite is not None)
        updates, played = updates + 1, played + 1
        finished = [(job.worker, played, 1.0, ROLLOUT_STEPS)] if played % 3 == 0 else []
        report = Report(
            slot.steps, slot.updates, slot.dropped, not_finite, {"loss": 0.5}, finished, {}
        )
        channel.send(REPORT, encode_reports([report]))


def wait(channel: Channel) -> None:
    word = channel.wait()
    if word is None or word[0] != GO:
        os._exit(0)


def main(told: dict[str, Any]) -> NoReturn:
    """As the worker of the package is started."""
    _, connection, block, order = map(int, sys.argv[1:5])
    job = read_job(order)
    channel = Channel.inherited(connection)
    try:
        _work(told, job, SharedState(block, job.config["workers"], job.size), channel)
    except Exception as error:
        channel.send(ERROR, encode_error(error))
        os._exit(1)


def program(**told: Any) -> str:
    """What the interpreter of a stub runs."""
    return (
        "import json, sys; sys.path[:] = "
        f"[*json.loads(sys.argv[5]), {json.dumps(str(Path(__file__).parent))}]; "
        f"from stub_worker import main; main({told!r})"
    )
