"""Shows the progress of a sweep: a live table in a terminal, one line per event elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from noisynet.experiments.job import JobState
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


class DisplayedJob(Protocol):
    """A job that can be displayed."""

    @property
    def spec(self) -> RunSpec:
        """The run."""

    @property
    def state(self) -> JobState:
        """Its state."""


class Display:
    """Prints one line per event, inside a `with` block.

    Args:
        console: to print to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def log(self, spec: RunSpec, message: str) -> None:
        """Show an event of a run."""
        _print_line(self._console, f"{spec.name}: {message}")

    def refresh(self, jobs: Sequence[DisplayedJob]) -> None:
        """Show the state of all jobs: not in lines. Cheap to call often."""


class TableDisplay(Display):
    """A live table of the jobs, as many as fit on the screen, below the lines of events.

    Args:
        console: a terminal.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._refreshed_at = -_REFRESH_SECONDS
        self._jobs: Sequence[DisplayedJob] = ()

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._draw()
        with suppress(OSError):
            self._live.stop()

    def refresh(self, jobs: Sequence[DisplayedJob]) -> None:
        """Draw the table, at most once a second."""
        self._jobs = jobs
        if time.monotonic() - self._refreshed_at >= _REFRESH_SECONDS:
            self._draw()
            self._refreshed_at = time.monotonic()

    def _draw(self) -> None:
        table = jobs_table(self._jobs, self._console.height - _LINES_AROUND_TABLE)
        with suppress(OSError):
            self._live.update(table, refresh=True)


def make_display(console: Console) -> Display:
    """A live table if the console is a terminal, otherwise lines."""
    return TableDisplay(console) if console.is_terminal else Display(console)


def jobs_table(jobs: Sequence[DisplayedJob], rows: int) -> Group:
    """A table of jobs, running ones first, and a line that counts all of them.

    Args:
        jobs: of the sweep.
        rows: the maximum number of rows.
    """
    ordered = sorted(jobs, key=lambda job: _ORDER.index(job.state))
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    for column in ("state", "frames", "steps/s", "score", "time left"):
        table.add_column(column, justify="left" if column == "state" else "right", no_wrap=True)
    for job in ordered[: max(1, rows)]:
        cells = [job.spec.name, job.state.value, *_progress_cells(job)]
        table.add_row(*map(Text, cells), style=_STYLES[job.state])
    return Group(table, Text(counts_line(jobs)))


def counts_line(jobs: Sequence[DisplayedJob]) -> str:
    """The number of jobs in each state."""
    found = Counter(job.state for job in jobs)
    counts = [f"{found[state]:,} {state.value}" for state in _ORDER if found[state]]
    return f"{len(jobs):,} run{'s' if jobs[1:] else ''}: {', '.join(counts)}"


def format_duration(seconds: float) -> str:
    """A duration in at most two units: 45 s, 12 min, 3 h 20 min, 5 d 3 h."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 90:
        return f"{round(seconds)} s"
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24:,} d {hours % 24} h"


def _progress_cells(job: DisplayedJob) -> list[str]:
    """Frames, steps per second, score and time left."""
    progress, spec = read_progress(job.spec, check_lock=False), job.spec
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


def _print_line(console: Console, message: str) -> None:
    with suppress(OSError):  # the sweep continues without a terminal
        console.print(message, highlight=False, markup=False, soft_wrap=True)
