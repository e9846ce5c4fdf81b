"""The runs of a sweep as processes of this machine, as many at once as its cores hold."""

from __future__ import annotations

import os
import time
from typing import Final

from noisynet.experiments.carrying import Carrier, How, Stage
from noisynet.experiments.plan import Plan
from noisynet.experiments.stopping import StopRequest
from noisynet.experiments.table import Display

_GLANCE_SECONDS: Final = 0.1


def available_cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # elsewhere than on Linux
        return os.cpu_count() or 1


class Pool:
    """The runs of a plan, some of them at work.

    Args:
        plan: what is to be done.
        how: processes are started.
        display: shows how it goes.
        cores: how many to use; None for all.
        jobs: how many runs at once; None for as many as the cores hold.

    Attributes:
        runs: in the order of the plan.
    """

    def __init__(
        self,
        plan: Plan,
        how: How,
        display: Display,
        *,
        cores: int | None = None,
        jobs: int | None = None,
    ) -> None:
        self.cores, self.jobs, self.display = cores or available_cores(), jobs, display
        self.runs = [Carrier(spec, how, display.tell) for spec in plan.specs]
        # Half-done runs first: what they have on disk is the sooner of use.
        self._queue = sorted(self.runs, key=lambda run: not run.begun)

    def run(self, stop: StopRequest) -> None:
        """Carry every run to its end, or to a checkpoint when somebody wants to stop."""
        try:
            while not all(run.stage.ended for run in self.runs):
                self._tend(stop)
                self.display.refresh(self.runs)
                time.sleep(_GLANCE_SECONDS)
        finally:
            self._see_them_out()

    def _see_them_out(self) -> None:
        """Wait for the checkpoints of what an error has left at work: our end would hurry them."""
        for run in self.runs:
            run.stop()
        while any(run.stage is Stage.RUNNING for run in self.runs):
            for run in self.runs:
                run.tend()
            time.sleep(_GLANCE_SECONDS)

    def _tend(self, stop: StopRequest) -> None:
        for run in self.runs:
            if stop.at_once:
                run.kill()
            if stop.wanted:
                run.stop()
            run.tend()
        if not stop.wanted:
            self._start_what_fits()

    def _start_what_fits(self) -> None:
        free, places = self._free()
        for run in self._queue:
            if free <= 0 or places <= 0:
                return
            if run.stage is Stage.WAITING and self._start(run, free, places):
                free, places = self._free()

    def _start(self, run: Carrier, free: int, places: int) -> bool:
        if run.spec.processes > 1:  # each of them has one thread
            cores = min(run.spec.processes, self.cores)
            fits = cores <= free or self.jobs is not None
            return fits and run.start(cores, threads_of_a_run(1))
        sharing = sum(
            other.stage is Stage.WAITING and other.spec.processes == 1 for other in self.runs
        )
        cores = max(1, free // min(sharing, places))
        return run.start(cores, threads_of_a_run(cores))

    def _free(self) -> tuple[int, int]:
        """How many cores nobody uses, and how many runs may still be started."""
        running = [run for run in self.runs if run.stage is Stage.RUNNING]
        free = self.cores - sum(run.cores for run in running)
        if self.jobs is None:
            return free, free
        return max(1, free), self.jobs - len(running)  # who asks for so many at once has them


def threads_of_a_run(cores: int) -> int:
    """As many as it has cores, unless the environment says how many."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdecimal() and int(said) > 0 else max(1, cores)
