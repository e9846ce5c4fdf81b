"""Shows the progress of a sweep: a live table in a terminal, one line per event elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from noisynet.experiments.job import Job, JobState
from noisynet.experiments.plan import RunSpec
from noisynet.experiments.progress import read_last_rows, read_progress
from noisynet.experiments.throughput import measure_throughput
from noisynet.runs import RunFolder

# In the order of the table's rows: the last ones are left out if the terminal is too small.
_STYLES: Final = {
    JobState.RUNNING: "bold",
    JobState.LOCKED: "cyan",
    JobState.FAILED: "red",
    JobState.DONE: "green",
    JobState.STOPPED: "yellow",
    JobState.QUEUED: "dim",
    JobState.WAITING: "dim",
}
_ORDER: Final = tuple(_STYLES)
_REFRESH_SECONDS: Final = 1.0
_LINES_AROUND_TABLE: Final = 6


class SweepConsole(Console):
    """A console that turns quiet on a broken pipe.

    Rich would redirect standard output, which the summary needs, and exit the process.
    """

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True


class Display:
    """Prints one line per event; in a terminal, a live table of the jobs follows. A `with` block.

    Args:
        console: to print to.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._drawn_at = console, -_REFRESH_SECONDS
        self._jobs: Sequence[Job] = ()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            with suppress(OSError):  # here and below: the sweep continues without a terminal
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._draw(self._live)
            with suppress(OSError):
                self._live.stop()

    def log(self, spec: RunSpec, message: str) -> None:
        """Show an event of a run."""
        with suppress(OSError):
            line = f"{spec.name}: {message}"
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def refresh(self, jobs: Sequence[Job]) -> None:
        """Draw the table, at most once a second."""
        self._jobs = jobs
        if self._live and time.monotonic() - self._drawn_at >= _REFRESH_SECONDS:
            self._draw(self._live)
            self._drawn_at = time.monotonic()

    def _draw(self, live: Live) -> None:
        with suppress(OSError):
            rows = self._console.height - _LINES_AROUND_TABLE
            live.update(jobs_table(self._jobs, rows), refresh=True)


def jobs_table(jobs: Sequence[Job], rows: int) -> Group:
    """A table of jobs, running ones first, in at most so many rows, and a line that counts all."""
    ordered = sorted(jobs, key=lambda job: _ORDER.index(job.state))
    table = Table(box=None, pad_edge=False)
    for column in ("run", "state", "frames", "steps/s", "score", "time left"):
        left = column in ("run", "state")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for job in ordered[: max(1, rows)]:
        cells = [job.spec.name, job.state.value, *_progress_cells(job)]
        table.add_row(*map(Text, cells), style=_STYLES[job.state])
    return Group(table, Text(counts_line(jobs)))


def counts_line(jobs: Sequence[Job]) -> str:
    """The number of jobs in each state."""
    found = Counter(job.state for job in jobs)
    states = [f"{found[state]:,} {state.value}" for state in _ORDER if found[state]]
    return f"{counted(len(jobs), 'run')}: {', '.join(states)}"


def counted(count: int, noun: str) -> str:
    """A number of things: 1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """A duration in at most two units: 45 s, 12 min, 3 h 20 min, 5 d 3 h, 120 d, 13.3 years."""
    minutes, hours, days = (round(seconds / unit) for unit in (60, 3600, 86400))
    if seconds < 90:
        return f"{round(seconds)} s"
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    if days < 10:
        return f"{hours // 24} d {hours % 24} h"
    return f"{days} d" if days < 730 else f"{days / 365.25:,.1f} years"


def format_frames(frames: int) -> str:
    """A number of frames in at most five digits, as `--frames` takes it: 348k, 72M, 300,960M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if frames >= 10 * size or (frames >= size and frames % size == 0):
            return f"{frames / size:,.0f}{unit}"
    return f"{frames:,}"


def _progress_cells(job: Job) -> list[str]:
    """Frames, steps per second, score and time left."""
    progress, spec = read_progress(job.spec), job.spec
    frames, speed, left = progress.frames, "", ""
    if job.state in (JobState.RUNNING, JobState.LOCKED):
        folder = RunFolder(spec.folder)
        rows = [row for row in read_last_rows(folder.timing_path) if row.get("kind") == "train"]
        if rows:  # newer than the checkpoint
            frames = max(frames, rows[-1].get("frames", 0))
            speed = f"{rows[-1].get('steps_per_second', 0):,.0f}"
        throughput = measure_throughput(folder, spec.config)
        if throughput is not None:
            left = format_duration(throughput.seconds_left(spec, frames))
    score = "" if progress.score is None else f"{progress.score:,.2f}"
    return [f"{frames:,}/{spec.frames:,}", speed, score, left]
