"""Observers that show a run to the user: as plain lines, or live in a terminal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from noisynet.loops.run_log import Observer
from noisynet.loops.supervisor import Health, Phase

LINE_SECONDS: Final = 60.0
"""Without a terminal, the progress is printed so long after the last line."""

_SYMBOLS: Final = {
    Phase.STARTING: "◌",
    Phase.READY: "○",
    Phase.RUNNING: "●",
    Phase.STOPPED: "‖",
    Phase.DEAD: "✕",
}


class Lines(Observer):
    """Prints evaluations, messages and, once a minute, the progress; for output to a file."""

    def __init__(
        self,
        frames: int,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._frames, self._say, self._clock = frames, say, clock
        self._said_at = clock()

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Print the progress if a minute has passed since the last line."""
        if self._clock() - self._said_at >= LINE_SECONDS:
            done = f"frame {row['frames']:,} of {self._frames:,}"
            self._print("  ".join([done, f"{steps_per_second:,.0f} steps/s", *_numbers(row)]))

    def evaluated(self, row: dict[str, Any]) -> None:
        """Print the score."""
        self._print(evaluation_line(row))

    def noted(self, message: str) -> None:
        """Print the message."""
        self._print(message)

    def _print(self, line: str) -> None:
        self._say(line)
        self._said_at = self._clock()


class Terminal(Observer):
    """A progress bar and below it the latest metrics, in 80 columns; a third line for workers."""

    def __init__(self, frames: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.completed:,}/{task.total:,} frames"),
            BarColumn(None),
            TextColumn("{task.fields[speed]} steps/s"),
            TimeRemainingColumn(),
            console=self._console,
            expand=True,
        )
        self._task = self._progress.add_task("", total=frames, speed="-")
        self._numbers, self._workers = "", ""
        self._live = Live(self._progress, console=self._console)

    def start(self) -> None:
        """Show the progress bar."""
        self._live.start()

    def stop(self) -> None:
        """Stop updating, and leave the last state visible."""
        self._live.stop()

    def started(self, frames: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=frames)

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Move the bar and show the latest metrics."""
        speed = f"{steps_per_second:,.0f}"
        self._progress.update(self._task, completed=row["frames"], speed=speed)
        self._numbers = "  ".join(_numbers(row))
        self._refresh()

    def watched(self, workers: Sequence[Health]) -> None:
        """Show the state of each worker."""
        self._workers = workers_line(workers)
        self._refresh()

    def _refresh(self) -> None:
        lines = [line for line in (self._numbers, self._workers) if line]
        texts = [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
        self._live.update(Group(self._progress, *texts))

    def evaluated(self, row: dict[str, Any]) -> None:
        """Print the score above the progress bar."""
        self.noted(evaluation_line(row))

    def noted(self, message: str) -> None:
        """Print the message above the progress bar."""
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)


def _numbers(row: dict[str, Any]) -> list[str]:
    """Format the metrics of a row of training; Σ̄ is the mean over layers."""
    names = {"return": "score_last", "mean": "score_mean_100", "loss": "loss"}
    names |= {"entropy": "entropy", "ε": "epsilon"}
    found = [f"{name} {row[key]:.3g}" for name, key in names.items() if row.get(key) is not None]
    if row["sigma"]:
        found.append(f"Σ̄ {fmean(row['sigma'].values()):.4f}")
    return found


def evaluation_line(row: dict[str, Any]) -> str:
    """Format a row of an evaluation."""
    partial = "" if row["completed"] else " (partial: no episode was completed)"
    return (
        f"frame {row['frames']:,}: score {row['score']:.2f} with noise {row['noise']}, "
        f"{row['episodes']} episodes{partial}"
    )


def workers_line(workers: Sequence[Health]) -> str:
    """Format the state of the workers: a symbol for each, a legend, steps and deaths."""
    found = Counter(worker.phase for worker in workers)
    symbols = "".join(_SYMBOLS[worker.phase] for worker in workers)
    meaning = ", ".join(
        f"{_SYMBOLS[phase]} {found[phase]} {phase.value}" for phase in Phase if found[phase]
    )
    steps = [worker.steps for worker in workers]
    deaths = {i: worker.deaths for i, worker in enumerate(workers) if worker.deaths}
    died = ", ".join(f"worker {i} ×{count}" for i, count in deaths.items())
    return f"workers {symbols}  {meaning}; {min(steps):,} to {max(steps):,} steps each" + (
        f"; died: {died}" if died else ""
    )
