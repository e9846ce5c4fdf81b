"""Starts a run's workers, watches over them, and starts those again that die or hang."""

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
from typing import Final, Self

from noisynet.loops.channel import Channel
from noisynet.loops.handover import (
    ERROR,
    GO,
    LEAVE,
    READY,
    REPORT,
    STATE,
    Job,
    Report,
    decode_reports,
    write_job,
)
from noisynet.loops.shared_state import END, SharedState

PATIENCE_SECONDS: Final = 4.0
"""How long a worker may be without a heartbeat; it has one at every step of its environments."""

DEATHS_IN_A_ROW: Final = 5
"""So many deaths of one worker without an update in between are one too many."""

# The first roll-out has the libraries' own preparations in it, and all workers make it at once.
_FIRST_SECONDS: Final = 30.0
_STARTING_SECONDS: Final = 300.0
_LEAVING_SECONDS: Final = 2.0
# A supervisor that was itself stopped or starved knows nothing of the time in which it was.
_LONGEST_GLANCE_SECONDS: Final = 0.5

PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[5]); "
    "from noisynet.loops.entrance import main; main()"
)


class Phase(Enum):
    """Where a worker is."""

    STARTING = "starting"
    READY = "ready"
    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True)
class Death:
    """The end of a worker that nobody wanted.

    Attributes:
        worker: which one.
        how: by which signal, exit code or silence, and its last words.
        in_a_row: how many there were of this worker without an update in between.
        traceback: what it said of its error, if it came to that.
    """

    worker: int
    how: str
    in_a_row: int
    traceback: str = ""


@dataclass(frozen=True)
class Health:
    """How a worker is doing.

    Attributes:
        phase: where it is.
        steps: its agent steps so far.
        deaths: how often it has died.
    """

    phase: Phase
    steps: int
    deaths: int


@dataclass
class Member:
    """A worker as its supervisor knows it.

    Attributes:
        number: which one.
        incarnation: how many of its processes have died in the midst of their work.
        state: what it starts from, or has handed over last; None to begin, or to begin again.
        deaths: how many of its processes have died.
        in_a_row: how many without an update in between.
    """

    number: int
    incarnation: int = 0
    state: bytes | None = None
    deaths: int = 0
    in_a_row: int = 0
    phase: Phase = Phase.DEAD
    process: subprocess.Popen[bytes] = field(init=False, repr=False)
    channel: Channel = field(init=False, repr=False)
    last_words: str = ""
    traceback: str = ""
    # Counters when its process started, its heartbeat when it was last told to go on, and its last
    # heartbeat with the time it was seen.
    updates: int = 0
    rollouts: int = 0
    released_beat: int = 0
    beat: int = 0
    beat_at: float = 0.0


class Supervisor:
    """The workers of a run; everything happens in `tend`, which its owner calls again and again.

    A worker that dies at work starts again afresh, with streams of its own that its incarnation
    names; one that dies while it starts or is stopped goes on from the state that it had.

    Args:
        shared: weights, statistics and counters.
        members: the workers, with what they start from.
        job: makes the job of a worker.
        reported: told of every roll-out.
        died: told of every death, before the worker is started again.
        patience_seconds: how long a worker may be without a heartbeat.
        program: what the interpreter of a worker runs; it is given the supervisor's pid, the
            descriptors of the channel, the block and the job, and the import path as JSON.

    Attributes:
        failure: the death that was one too many; its worker is not started again.
    """

    def __init__(
        self,
        shared: SharedState,
        members: Sequence[Member],
        job: Callable[[Member], Job],
        *,
        reported: Callable[[int, Report], None],
        died: Callable[[Death], None],
        patience_seconds: float = PATIENCE_SECONDS,
        program: str = PROGRAM,
    ) -> None:
        self.shared, self.members, self.program = shared, list(members), program
        self.patience_seconds = patience_seconds
        self.failure: Death | None = None
        self._job, self._reported, self._died = job, reported, died
        self._released = False
        self._clock, self._awake_seconds = time.monotonic(), 0.0

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                self._start(member)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what the owner says ---------------------------------------------------------------------

    def release(self, stop_at: int) -> None:
        """Let every worker play until all of them together have made so many steps."""
        self.shared.stop_at = stop_at
        self._released = True
        for member in self.members:
            if member.phase in (Phase.READY, Phase.STOPPED):
                self._let_go(member)

    def call_in(self) -> None:
        """Have every worker stop after the roll-out that it is playing."""
        self.shared.stop_at = 0

    @property
    def all_stopped(self) -> bool:
        """Whether nobody is at work, and nobody will be until the next release.

        A worker that is starting counts as stopped where it will start from.
        """
        if self.shared.steps >= self.shared.stop_at:
            self._released = False
        at_work = any(member.phase is Phase.RUNNING for member in self.members)
        return not self._released and not at_work

    def health(self) -> list[Health]:
        """How each worker is doing."""
        slots = self.shared.slots
        return [Health(m.phase, slots[m.number].steps, m.deaths) for m in self.members]

    # --- watching --------------------------------------------------------------------------------

    def tend(self, timeout_seconds: float = 0.1) -> None:
        """Wait a moment for messages, take them, and look after the dead and the hung."""
        poll = select.poll()
        for member in self.members:
            if member.phase is not Phase.DEAD:
                poll.register(member.channel, select.POLLIN)
        poll.poll(1000 * timeout_seconds)
        now = time.monotonic()
        self._awake_seconds += min(now - self._clock, _LONGEST_GLANCE_SECONDS)
        self._clock = now
        for member in self.members:
            if member.phase is not Phase.DEAD:
                self._tend(member)

    def _tend(self, member: Member) -> None:
        ended = member.process.poll() is not None  # asked first: then all that it has sent is here
        for kind, body in member.channel.arrived():
            self._hear(member, kind, body)
        if ended or member.channel.closed:
            self._bury(member)
        else:
            self._feel_pulse(member)

    def _hear(self, member: Member, kind: str, body: bytes) -> None:
        if kind == READY:
            member.phase = Phase.READY
            if self._released:
                self._let_go(member)
        elif kind == REPORT:
            for report in decode_reports(body):
                self._reported(member.number, report)
        elif kind == STATE:
            member.phase, member.state = Phase.STOPPED, body
        elif kind == ERROR:
            told = body.decode(errors="replace")
            member.last_words, _, member.traceback = told.partition("\n")

    def _let_go(self, member: Member) -> None:
        member.phase, member.beat_at = Phase.RUNNING, self._awake_seconds
        member.released_beat = self.shared.slots[member.number].heartbeat
        with suppress(OSError):  # it has just died, which the next look will find
            member.channel.send(GO)

    def _feel_pulse(self, member: Member) -> None:
        slot = self.shared.slots[member.number]
        if slot.heartbeat != member.beat or member.phase in (Phase.READY, Phase.STOPPED):
            member.beat, member.beat_at = slot.heartbeat, self._awake_seconds
        allowed = self.patience_seconds
        if member.phase is Phase.STARTING:
            allowed = max(allowed, _STARTING_SECONDS)
        elif slot.updates + slot.dropped == member.rollouts:
            allowed = max(allowed, _FIRST_SECONDS)
        if self._awake_seconds - member.beat_at > allowed:
            member.process.kill()
            member.process.wait()
            for kind, body in member.channel.arrived():
                if kind == REPORT:
                    self._hear(member, kind, body)
            self._lose(member, f"no heartbeat for {allowed:g} s, so it was killed")

    def _bury(self, member: Member) -> None:
        """Find out how a worker has ended."""
        try:
            code = member.process.wait(_LEAVING_SECONDS)
        except subprocess.TimeoutExpired:  # it has closed its channel, and lives on: useless
            member.process.kill()
            code = member.process.wait()
        if code < 0:
            named = -code in list(signal.Signals)  # most real-time signals have no name
            how = f"killed by {signal.Signals(-code).name if named else f'signal {-code}'}"
        else:
            how = f"exit code {code}" + (f": {member.last_words}" if member.last_words else "")
        self._lose(member, how)

    def _lose(self, member: Member, how: str) -> None:
        """Count a death, and start the worker again unless it was one too many."""
        slot = self.shared.slots[member.number]
        if slot.updates > member.updates:
            member.in_a_row = 0
        member.in_a_row += 1
        member.deaths += 1
        # Whoever has not heard the word to go on, and so not answered it by a heartbeat, is as it
        # was when it stopped.
        if member.phase is Phase.RUNNING and slot.heartbeat != member.released_beat:
            member.incarnation, member.state = member.incarnation + 1, None
        member.phase = Phase.DEAD
        member.channel.close()
        death = Death(member.number, how, member.in_a_row, member.traceback)
        self._died(death)
        if member.in_a_row < DEATHS_IN_A_ROW:
            self._start(member)
        else:
            self.failure = death

    # --- starting and ending ---------------------------------------------------------------------

    def _start(self, member: Member) -> None:
        slot = self.shared.slots[member.number]
        member.updates, member.rollouts = slot.updates, slot.updates + slot.dropped
        member.last_words, member.traceback = "", ""
        member.beat, member.beat_at = slot.heartbeat, self._awake_seconds
        job = write_job(self._job(member))
        member.channel, theirs = Channel.pair()
        handed = (theirs.fileno(), self.shared.descriptor, job)
        arguments = [str(os.getpid()), *map(str, handed), json.dumps([*map(str, sys.path)])]
        # Blocked until the worker ignores them: Ctrl-C reaches the whole group at any moment.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            member.process = subprocess.Popen(
                # -P: nothing is imported from the folder in which the user happens to be.
                [sys.executable, "-P", "-c", self.program, *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=handed,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            failed = f"it could not be started: {error}"
        else:
            failed, member.phase = "", Phase.STARTING
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            os.close(job)
        if failed:
            self._lose(member, failed)

    def close(self) -> None:
        """End every worker: politely where it listens, and in any case."""
        self.shared.stop_at = END
        living = [member for member in self.members if member.phase is not Phase.DEAD]
        for member in living:
            if member.phase is Phase.STARTING:
                member.process.kill()
            with suppress(OSError):
                member.channel.send(LEAVE)
        deadline = time.monotonic() + _LEAVING_SECONDS
        for member in living:
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
            member.channel.close()
            member.phase = Phase.DEAD
