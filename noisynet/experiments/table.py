"""How a sweep goes, for people: a live table in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from noisynet.experiments.carrying import Stage
from noisynet.experiments.estimate import measure
from noisynet.experiments.plan import RunSpec
from noisynet.experiments.progress import look, planned, tail_rows
from noisynet.runs import RunFolder

_STYLES: Final = {
    Stage.RUNNING: "bold",
    Stage.ELSEWHERE: "cyan",
    Stage.FAILED: "red",
    Stage.DONE: "green",
    Stage.STOPPED: "yellow",
    Stage.WAITING: "dim",
}
# The order of the rows, where there are more runs than lines.
_ORDER: Final = tuple(_STYLES)
_REFRESH_SECONDS: Final = 1.0
_LINES_AROUND: Final = 6


class SweepConsole(Console):
    """A console that falls silent when nobody listens any more, where rich would end the process.

    It would also redirect standard output, where the summary is to go.
    """

    def on_broken_pipe(self) -> None:
        """Say nothing more."""
        self.quiet = True


class Shown(Protocol):
    """A run of a sweep that can be shown."""

    @property
    def spec(self) -> RunSpec:
        """What it is."""

    @property
    def stage(self) -> Stage:
        """Where it is."""


class Display(Protocol):
    """Shows how a sweep goes, within a `with` block."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave what was shown last."""

    def tell(self, spec: RunSpec, message: str) -> None:
        """Something happened to a run."""

    def refresh(self, runs: Sequence[Shown]) -> None:
        """Show all runs as they are now; may be called as often as one likes."""


class QuietLines:
    """One line for whatever happens.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, spec: RunSpec, message: str) -> None:
        """Say it, with the name of the run."""
        _say(self._console, f"{spec.name}: {message}")

    def refresh(self, runs: Sequence[Shown]) -> None:
        """Nothing to say."""


class LiveTable:
    """A row for every run, as many as fit on the screen, and what happens above them.

    Args:
        console: a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._refreshed_at = -_REFRESH_SECONDS
        self._shown: Sequence[Shown] = ()

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._draw(self._shown)
        with suppress(OSError):
            self._live.stop()

    def tell(self, spec: RunSpec, message: str) -> None:
        """Write it above the table."""
        _say(self._console, f"{spec.name}: {message}")

    def refresh(self, runs: Sequence[Shown]) -> None:
        """Draw the table, at most once a second."""
        self._shown = runs
        if time.monotonic() - self._refreshed_at >= _REFRESH_SECONDS:
            self._draw(runs)
            self._refreshed_at = time.monotonic()

    def _draw(self, runs: Sequence[Shown]) -> None:
        table = runs_table(runs, self._console.height - _LINES_AROUND)
        with suppress(OSError):
            self._live.update(table, refresh=True)


def make_display(console: Console) -> Display:
    """A live table where somebody watches."""
    return LiveTable(console) if console.is_terminal else QuietLines(console)


def runs_table(runs: Sequence[Shown], rows: int) -> Group:
    """A table of runs: those at work first, then the failed, the done and the waiting.

    Args:
        runs: of the sweep.
        rows: at most so many; the last line says how many runs of each kind there are.
    """
    ordered = sorted(runs, key=lambda run: _ORDER.index(run.stage))
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    for column in ("state", "frames", "steps/s", "score", "time left"):
        table.add_column(column, justify="left" if column == "state" else "right", no_wrap=True)
    for run in ordered[: max(1, rows)]:
        cells = [run.spec.name, run.stage.value, *_numbers(run)]
        table.add_row(*map(Text, cells), style=_STYLES[run.stage])
    return Group(table, Text(counts_line(runs)))


def counts_line(runs: Sequence[Shown]) -> str:
    """How many runs there are of each kind."""
    found = Counter(run.stage for run in runs)
    parts = [f"{found[stage]:,} {stage.value}" for stage in _ORDER if found[stage]]
    return f"{len(runs):,} run{'s' if runs[1:] else ''}: {', '.join(parts)}"


def duration(seconds: float) -> str:
    """A time in the two units that matter: 45 s, 12 min, 3 h 20 min, 5 d 3 h."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 90:
        return f"{round(seconds)} s"
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24:,} d {hours % 24} h"


def _numbers(run: Shown) -> list[str]:
    """Frames, steps per second, score and the time that is left."""
    progress, spec = look(run.spec, ask_lock=False), run.spec
    frames, speed, left = progress.frames, "", ""
    if run.stage in (Stage.RUNNING, Stage.ELSEWHERE):
        folder = RunFolder(spec.folder)
        timed = [row for row in tail_rows(folder.timing_path) if row.get("kind") == "train"]
        if timed:  # ahead of the checkpoint
            frames = max(frames, timed[-1].get("frames", 0))
            speed = f"{timed[-1].get('steps_per_second', 0):,.0f}"
        pace = measure(folder, planned(spec))
        if pace is not None:
            left = duration(pace.seconds(spec, frames))
    score = "" if progress.score is None else f"{progress.score:,.2f}"
    return [f"{frames:,}/{spec.frames:,}", speed, score, left]


def _say(console: Console, message: str) -> None:
    with suppress(OSError):  # a terminal that is gone is no reason for the runs to end
        console.print(message, highlight=False, markup=False, soft_wrap=True)
