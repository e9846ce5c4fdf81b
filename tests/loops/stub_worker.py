"""A worker that neither plays nor learns, for tests of its supervisor (not a test).

Its options: `fault` names what goes wrong, `worker` in which worker (all by default), `until`
before which incarnation, and `after` how many of its own updates.
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
from noisynet.loops.messages import (
    ERROR,
    GO,
    READY,
    REPORT,
    SNAPSHOT,
    RolloutReport,
    WorkerSetup,
    encode_error,
    encode_reports,
    read_setup,
)
from noisynet.loops.shared_state import END, SharedState, Slot

ROLLOUT_STEPS = 5
NO_TENSORS = (8).to_bytes(8, "little") + b"{}      "  # an empty safetensors file


def _misbehave(
    options: dict[str, Any], setup: WorkerSetup, slot: Slot, updates: int, channel: Channel
) -> str | None:
    """Fail as told, or return the tensor to report as not finite."""
    mine = options.get("worker", setup.worker) == setup.worker
    in_time = setup.incarnation < options.get("until", 10**9)
    if not mine or not in_time or updates < options.get("after", 0):
        return None
    match options.get("fault"):
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
        case "slow":  # but with heartbeats
            for _ in range(20):
                time.sleep(0.05)
                slot.beat()
        case "nan":
            return "the gradient of 'policy.weight'"
    return None


def encode_played(played: int) -> bytes:
    """Encode a snapshot as real workers do, without tensors."""
    return json.dumps({"played": played}).encode() + b"\n" + NO_TENSORS


def decode_played(snapshot: bytes) -> int:
    played: int = json.loads(snapshot.partition(b"\n")[0])["played"]
    return played


def _work(
    options: dict[str, Any], setup: WorkerSetup, shared: SharedState, channel: Channel
) -> NoReturn:
    slot = shared.slots[setup.worker]
    if options.get("fault") == "raise at start":
        raise RuntimeError("no such game")
    played = 0 if setup.snapshot is None else decode_played(setup.snapshot)
    channel.send(READY)
    wait(channel)
    slot.beat()
    updates = 0
    while True:
        if shared.stop_at == END:
            os._exit(0)
        if shared.steps >= shared.stop_at:
            channel.send(SNAPSHOT, encode_played(played))
            wait(channel)
            slot.beat()
            continue
        not_finite = _misbehave(options, setup, slot, updates, channel)
        time.sleep(options.get("seconds", 0.001))
        slot.beat()
        slot.count(ROLLOUT_STEPS, dropped=not_finite is not None)
        updates, played = updates + 1, played + 1
        finished = [(setup.worker, played, 1.0, ROLLOUT_STEPS)] if played % 3 == 0 else []
        report = RolloutReport(
            slot.steps, slot.updates, slot.dropped, not_finite, {"loss": 0.5}, finished, {}
        )
        channel.send(REPORT, encode_reports([report]))


def wait(channel: Channel) -> None:
    message = channel.wait()
    if message is None or message[0] != GO:
        os._exit(0)


def main(options: dict[str, Any]) -> NoReturn:
    """Start like a worker of the package."""
    _, connection, memory, descriptor = map(int, sys.argv[1:5])
    setup = read_setup(descriptor)
    channel = Channel.inherited(connection)
    try:
        shared = SharedState(memory, setup.config["workers"], setup.size)
        _work(options, setup, shared, channel)
    except Exception as error:
        channel.send(ERROR, encode_error(error))
        os._exit(1)


def program(**options: Any) -> str:
    """Return what the interpreter of a stub runs."""
    return (
        "import json, sys; sys.path[:] = "
        f"[*json.loads(sys.argv[5]), {json.dumps(str(Path(__file__).parent))}]; "
        f"from stub_worker import main; main({options!r})"
    )
