"""Observers that show a run to the user: as plain lines, or live in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from noisynet.loops.run_log import Observer
from noisynet.loops.supervisor import Health, Phase

_SYMBOLS: Final = {
    Phase.STARTING: "◌",
    Phase.READY: "○",
    Phase.RUNNING: "●",
    Phase.STOPPED: "‖",
    Phase.DEAD: "✕",
}


class Lines(Observer):
    """Prints evaluations and messages, one per line; for output that is not a terminal.

    Args:
        say: prints a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def evaluated(self, row: dict[str, Any]) -> None:
        """Print the score."""
        self._say(evaluation_line(row))

    def noted(self, message: str) -> None:
        """Print the message."""
        self._say(message)


class Terminal(Observer):
    """A progress bar, with a line below it for the workers of a run.

    Args:
        frames: budget of the run.
        console: console to print to; None for standard error.
    """

    def __init__(self, frames: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.completed:,}/{task.total:,} frames"),
            BarColumn(),
            TextColumn("{task.fields[speed]} steps/s"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=self._console,
        )
        self._task = self._progress.add_task("", total=frames, speed="-", numbers="")
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
        numbers = [
            f"{name} {row[key]:.3g}"
            for name, key in (("return", "score_last"), ("loss", "loss"), ("entropy", "entropy"))
            if row.get(key) is not None
        ]
        numbers += [f"Σ̄ {layer} {sigma:.4f}" for layer, sigma in row["sigma"].items()]
        self._progress.update(
            self._task,
            completed=row["frames"],
            speed=f"{steps_per_second:.0f}",
            numbers="  ".join(numbers),
        )

    def watched(self, workers: Sequence[Health]) -> None:
        """Show the state of each worker."""
        self._live.update(Group(self._progress, Text(workers_line(workers))))

    def evaluated(self, row: dict[str, Any]) -> None:
        """Print the score above the progress bar."""
        self.noted(evaluation_line(row))

    def noted(self, message: str) -> None:
        """Print the message above the progress bar."""
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)


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
