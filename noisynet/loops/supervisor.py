"""Starts the workers of a run, watches them, and restarts those that die or hang."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Self

from noisynet.loops.channel import Channel
from noisynet.loops.messages import (
    ERROR,
    GO,
    LEAVE,
    READY,
    REPORT,
    SNAPSHOT,
    RolloutReport,
    WorkerSetup,
    decode_reports,
    write_setup,
)
from noisynet.loops.shared_state import END, SharedState

PATIENCE_SECONDS: Final = 4.0
"""Longest time between two heartbeats of a worker, which gives one at every environment step."""

MAX_DEATHS_IN_A_ROW: Final = 5
"""A worker that dies so often without an update in between is not restarted."""

# The first roll-out includes the initialisation of libraries, in all workers at once.
_FIRST_SECONDS: Final = 30.0
_STARTING_SECONDS: Final = 300.0
_EXIT_SECONDS: Final = 2.0
# Time between two polls beyond this does not count: this process was stopped or starved itself.
_LONGEST_POLL_SECONDS: Final = 0.5
_CHECK_SECONDS: Final = 0.1

PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[5]); "
    "from noisynet.loops.worker_main import main; main()"
)
"""What the interpreter of a worker runs."""


class Phase(Enum):
    """Phase in the life of a worker."""

    STARTING = "starting"
    READY = "ready"
    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True)
class Death:
    """The unexpected end of a worker process.

    Attributes:
        worker: number of the worker.
        cause: signal, exit code or timeout, with the last line of the error.
        in_a_row: deaths of this worker without an update in between.
        traceback: traceback of the error, if the worker sent one.
    """

    worker: int
    cause: str
    in_a_row: int
    traceback: str = ""


@dataclass(frozen=True)
class Health:
    """Condition of a worker."""

    phase: Phase
    steps: int
    deaths: int


@dataclass
class WorkerHandle:
    """A worker as its supervisor sees it.

    Attributes:
        number: number of the worker.
        incarnation: how many of its processes have died while running.
        snapshot: what it starts from, or has sent at the last stop; None to start from scratch.
        deaths: how many of its processes have died.
        in_a_row: deaths without an update in between.
    """

    number: int
    incarnation: int = 0
    snapshot: bytes | None = None
    deaths: int = 0
    in_a_row: int = 0
    phase: Phase = Phase.DEAD
    process: subprocess.Popen[bytes] = field(init=False, repr=False)
    channel: Channel = field(init=False, repr=False)
    error: str = ""
    traceback: str = ""
    # Counters at the start of the process, the heartbeat at its last release, and the last
    # heartbeat that was seen, with its time by the worker's own clock.
    updates: int = 0
    rollouts: int = 0
    released_beat: int = 0
    beat: int = 0
    beat_at: float = 0.0


class Supervisor:
    """The worker processes of a run; all events are handled in `poll`.

    A worker that dies while running is restarted from scratch, with random streams named by its
    incarnation. One that dies while starting or stopped resumes from its snapshot.

    Args:
        shared: weights, statistics and counters.
        handles: the workers, with the snapshots that they start from.
        make_setup: makes the setup of a worker.
        on_report: called with every roll-out.
        on_death: called with every death, before the worker is restarted.
        patience_seconds: longest time between two heartbeats of a worker.
        program: what the interpreter of a worker runs. Its arguments are the supervisor's pid, the
            descriptors of channel, shared memory and setup, and the import path as JSON.

    Attributes:
        failure: the death after which a worker was not restarted.
    """

    def __init__(
        self,
        shared: SharedState,
        handles: Sequence[WorkerHandle],
        make_setup: Callable[[WorkerHandle], WorkerSetup],
        *,
        on_report: Callable[[int, RolloutReport], None],
        on_death: Callable[[Death], None],
        patience_seconds: float = PATIENCE_SECONDS,
        program: str = PROGRAM,
    ) -> None:
        self.shared, self.handles, self.program = shared, list(handles), program
        self.patience_seconds = patience_seconds
        self.failure: Death | None = None
        self._make_setup, self._on_report, self._on_death = make_setup, on_report, on_death
        self._released = False
        self._clock, self._awake_seconds, self._check_at = time.monotonic(), 0.0, 0.0

    def __enter__(self) -> Self:
        try:
            for handle in self.handles:
                self._start(handle)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- commands --------------------------------------------------------------------------------

    def release(self, stop_at: int) -> None:
        """Let the workers play until all of them together have made `stop_at` steps."""
        self.shared.stop_at = stop_at
        self._released = True
        for handle in self.handles:
            if handle.phase in (Phase.READY, Phase.STOPPED):
                self._send_go(handle)

    def request_stop(self) -> None:
        """Make every worker stop after its current roll-out."""
        self.shared.stop_at = 0

    @property
    def all_stopped(self) -> bool:
        """Whether no worker runs, and none will until the next release.

        A worker that is starting counts as stopped: it will wait for the release.
        """
        if self.shared.steps >= self.shared.stop_at:
            self._released = False
        running = any(handle.phase is Phase.RUNNING for handle in self.handles)
        return not self._released and not running

    def health(self) -> list[Health]:
        """Return the condition of each worker."""
        slots = self.shared.slots
        return [Health(h.phase, slots[h.number].steps, h.deaths) for h in self.handles]

    # --- events ----------------------------------------------------------------------------------

    def poll(self, timeout_seconds: float = 0.1) -> None:
        """Wait for messages, handle them, and restart workers that died or hang."""
        channels = select.poll()
        for handle in self.handles:
            if handle.phase is not Phase.DEAD:
                channels.register(handle.channel, select.POLLIN)
        channels.poll(1000 * timeout_seconds)
        now = time.monotonic()
        self._awake_seconds += min(now - self._clock, _LONGEST_POLL_SECONDS)
        self._clock = now
        check = self._awake_seconds >= self._check_at
        if check:
            self._check_at = self._awake_seconds + _CHECK_SECONDS
        for handle in self.handles:
            if handle.phase is not Phase.DEAD:
                self._poll_worker(handle, check)

    def _poll_worker(self, handle: WorkerHandle, check: bool) -> None:
        ended = handle.process.poll() is not None  # before reading: then no message can be missed
        for kind, body in handle.channel.arrived():
            self._receive(handle, kind, body)
        if ended or handle.channel.closed:
            self._reap(handle)
        elif check:
            self._check_heartbeat(handle)

    def _receive(self, handle: WorkerHandle, kind: str, body: bytes) -> None:
        if kind == READY:
            handle.phase = Phase.READY
            if self._released:
                self._send_go(handle)
        elif kind == REPORT:
            for report in decode_reports(body):
                self._on_report(handle.number, report)
        elif kind == SNAPSHOT:
            handle.phase, handle.snapshot = Phase.STOPPED, body
        elif kind == ERROR:
            handle.error, _, handle.traceback = body.decode(errors="replace").partition("\n")

    def _send_go(self, handle: WorkerHandle) -> None:
        handle.phase, handle.beat_at = Phase.RUNNING, self._clock_of(handle)
        handle.released_beat = self.shared.slots[handle.number].heartbeat
        with suppress(OSError):  # it has just died, which the next poll will find
            handle.channel.send(GO)

    def _check_heartbeat(self, handle: WorkerHandle) -> None:
        slot, clock = self.shared.slots[handle.number], self._clock_of(handle)
        if slot.heartbeat != handle.beat or handle.phase in (Phase.READY, Phase.STOPPED):
            handle.beat, handle.beat_at = slot.heartbeat, clock
        allowed = self.patience_seconds
        if handle.phase is Phase.STARTING:
            allowed = max(allowed, _STARTING_SECONDS)
        elif slot.updates + slot.dropped == handle.rollouts:
            allowed = max(allowed, _FIRST_SECONDS)
        if clock - handle.beat_at > allowed:
            handle.process.kill()
            handle.process.wait()
            for kind, body in handle.channel.arrived():
                if kind == REPORT:
                    self._receive(handle, kind, body)
            self._restart(handle, f"no heartbeat for {allowed:g} s, killed")

    def _clock_of(self, handle: WorkerHandle) -> float:
        """Seconds in which this process was awake, and the worker had a core or did not want one.

        On a busy machine, or with many more workers than cores, a worker waits for seconds.
        """
        return self._awake_seconds - seconds_without_core(handle.process.pid)

    def _reap(self, handle: WorkerHandle) -> None:
        """Find out how a worker process ended, and restart it."""
        try:
            code = handle.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:  # it has closed its channel without exiting
            handle.process.kill()
            code = handle.process.wait()
        if code < 0:
            named = -code in list(signal.Signals)  # most real-time signals have no name
            cause = f"killed by {signal.Signals(-code).name if named else f'signal {-code}'}"
        else:
            cause = f"exit code {code}" + (f": {handle.error}" if handle.error else "")
        self._restart(handle, cause)

    def _restart(self, handle: WorkerHandle, cause: str) -> None:
        """Count a death, and restart the worker unless it has died too often."""
        slot = self.shared.slots[handle.number]
        if slot.updates > handle.updates:
            handle.in_a_row = 0
        handle.in_a_row += 1
        handle.deaths += 1
        # A worker answers GO with a heartbeat. Without one it is still as it was when it stopped.
        if handle.phase is Phase.RUNNING and slot.heartbeat != handle.released_beat:
            handle.incarnation, handle.snapshot = handle.incarnation + 1, None
        handle.phase = Phase.DEAD
        handle.channel.close()
        death = Death(handle.number, cause, handle.in_a_row, handle.traceback)
        self._on_death(death)
        if handle.in_a_row < MAX_DEATHS_IN_A_ROW:
            self._start(handle)
        else:
            self.failure = death

    # --- processes -------------------------------------------------------------------------------

    def _start(self, handle: WorkerHandle) -> None:
        slot = self.shared.slots[handle.number]
        handle.updates, handle.rollouts = slot.updates, slot.updates + slot.dropped
        handle.error, handle.traceback = "", ""
        handle.beat = slot.heartbeat
        setup = write_setup(self._make_setup(handle))
        handle.channel, theirs = Channel.pair()
        descriptors = (theirs.fileno(), self.shared.descriptor, setup)
        arguments = [str(os.getpid()), *map(str, descriptors), json.dumps([*map(str, sys.path)])]
        # Blocked until the worker ignores them: Ctrl-C may reach the process group at any time.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            handle.process = subprocess.Popen(
                # -P: nothing is imported from the current directory.
                [sys.executable, "-P", "-c", self.program, *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            failed = f"the process could not be started: {error}"
        else:
            failed, handle.phase = "", Phase.STARTING
            handle.beat_at = self._clock_of(handle)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            os.close(setup)
        if failed:
            self._restart(handle, failed)

    def close(self) -> None:
        """Ask every worker to exit, and kill those that do not."""
        self.shared.stop_at = END
        living = [handle for handle in self.handles if handle.phase is not Phase.DEAD]
        for handle in living:
            if handle.phase is Phase.STARTING:
                handle.process.kill()
            with suppress(OSError):
                handle.channel.send(LEAVE)
        deadline = time.monotonic() + _EXIT_SECONDS
        for handle in living:
            try:
                handle.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                handle.process.kill()
                handle.process.wait()
            handle.channel.close()
            handle.phase = Phase.DEAD


def seconds_without_core(pid: int) -> float:
    """How long a process has waited for a core so far; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
