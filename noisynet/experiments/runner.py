"""Runs the jobs of a sweep as processes of this machine, as many at once as its cores allow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from noisynet.experiments.display import Display
from noisynet.experiments.job import Job, JobState
from noisynet.experiments.plan import Plan, RunSpec
from noisynet.experiments.process import LocalProcess, Process, ProcessOptions
from noisynet.runs.stop_signals import StopRequest

if TYPE_CHECKING:
    from noisynet.experiments.search import Study

_POLL_SECONDS: Final = 0.1


def available_cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


class Runner:
    """Runs every job of a plan, as many at once as `cores` and `max_jobs` allow.

    With `studies`, the jobs are those of their trials, which are sampled while there is room.
    """

    def __init__(
        self,
        plan: Plan,
        options: ProcessOptions,
        display: Display,
        *,
        cores: int | None = None,
        max_jobs: int | None = None,
        studies: Sequence[Study] = (),
    ) -> None:
        self.options, self.display, self.studies = options, display, studies
        self.cores, self.max_jobs = cores or available_cores(), max_jobs
        self.jobs: list[Job] = []
        self._add([spec for study in studies for spec in study.specs()] if studies else plan.specs)

    def _add(self, specs: Iterable[RunSpec]) -> bool:
        """Add jobs; whether there are any."""
        jobs = [Job(spec, self.launch, self.display.log) for spec in specs]
        self.jobs += jobs
        return bool(jobs)

    def launch(self, spec: RunSpec, _cores: int, threads: int) -> Process:
        """Start a process of a run."""
        return LocalProcess(spec, self.options, threads)

    def run(self, stop: StopRequest) -> None:
        """Run every job to its end, or to a checkpoint once a stop is requested."""
        try:
            while self._poll(stop) or not all(job.state.ended for job in self.jobs):
                self.display.refresh(self.jobs)
                time.sleep(_POLL_SECONDS)
        finally:  # an error here may have left jobs running: wait for their checkpoints
            for job in self.jobs:
                job.stop()
            while any(job.state.has_process for job in self.jobs):
                for job in self.jobs:
                    job.poll()
                time.sleep(_POLL_SECONDS)

    def _poll(self, stop: StopRequest) -> bool:
        """Update and start jobs; whether a search added some."""
        for job in self.jobs:
            if stop():
                job.stop(kill=stop.immediate)
            job.poll()
        for study in self.studies:
            study.update({job.spec.name: job for job in self.jobs})
        return not stop() and self.start_jobs()

    def start_jobs(self) -> bool:
        """Start as many waiting jobs as there is room for; whether a search added some."""
        cores, slots = self.free()
        # Runs that have checkpoints come first: they are the sooner complete.
        for job in sorted(self.jobs, key=lambda job: not job.started):
            if cores <= 0 or slots <= 0:
                return False
            if job.state is JobState.WAITING and self.start(job, cores, slots):
                cores, slots = self.free()
        idle = (JobState.WAITING, JobState.LOCKED)  # these come before any new trial
        if not self.studies or any(job.state in idle for job in self.jobs):
            return False
        fewest = min(self.studies, key=lambda study: len(study.trials()))
        return cores > 0 and slots > 0 and self._add(fewest.ask())

    def free(self) -> tuple[int, int]:
        """How many cores are free, and how many more runs may be started."""
        running = [job for job in self.jobs if job.state.has_process]
        cores = self.cores - sum(job.cores for job in running)
        if self.max_jobs is None:
            return cores, cores
        return max(1, cores), self.max_jobs - len(running)  # may oversubscribe the cores

    def start(self, job: Job, free_cores: int, free_slots: int) -> bool:
        """Start a job with its share of the free cores; whether it was started."""
        if job.spec.processes > 1:  # one thread each
            cores = min(job.spec.processes, self.cores)
            fits = cores <= free_cores or self.max_jobs is not None
            return fits and job.start(cores, threads_per_run(1))
        waiting = sum(
            other.state is JobState.WAITING and other.spec.processes == 1 for other in self.jobs
        )
        cores = max(1, free_cores // min(waiting, free_slots))
        return job.start(cores, threads_per_run(cores))


def threads_per_run(cores: int) -> int:
    """OMP_NUM_THREADS if it is set, otherwise one thread for each core of the run."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else max(1, cores)
