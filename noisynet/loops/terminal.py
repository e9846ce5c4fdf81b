"""Observers that show a run to the user: as plain lines, or live in a terminal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Final, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from noisynet.loops.run_log import Observer
from noisynet.loops.supervisor import Health, Phase

LINE_SECONDS: Final = 60.0
"""Without a terminal, the progress is printed so long after the last line."""

Unit = Literal["frame", "step"]
"""What the budget of the command line and that of `Agent.learn` count."""

_SYMBOLS: Final = {
    Phase.STARTING: "◌",
    Phase.READY: "○",
    Phase.RUNNING: "●",
    Phase.STOPPED: "‖",
    Phase.DEAD: "✕",
}


class Lines(Observer):
    """Prints evaluations, messages and, once a minute, the progress; for output to a file.

    Args:
        total: frames or steps at the end.
        say: prints a line.
        unit: what `total` counts.
        frames_per_unit: frames of the environment per `unit`.
        clock: the time in seconds.
    """

    def __init__(
        self,
        total: int,
        say: Callable[[str], None],
        *,
        unit: Unit = "frame",
        frames_per_unit: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._say, self._clock = total, say, clock
        self._unit, self._frames_per_unit = unit, frames_per_unit
        self._said_at, self._said = clock(), True
        self._frames, self._speed, self._numbers = 0, "", list[str]()

    def started(self, frames: int) -> None:
        """Count the first minute from here."""
        self._frames, self._said_at = frames, self._clock()

    def progressed(self, frames: int, steps_per_second: float | None) -> None:
        """Print the progress if a minute has passed since the last line."""
        self._frames, self._said = frames, False
        self._speed = "evaluating" if steps_per_second is None else _speed(steps_per_second)
        if self._clock() - self._said_at >= LINE_SECONDS:
            self.close()

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Keep the metrics for the next line."""
        self._numbers = _numbers(row)
        self.progressed(row["frames"], steps_per_second)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Print the score."""
        self._speed = ""  # not evaluating any more
        self._print(evaluation_line(row, self._unit, self._frames_per_unit))

    def noted(self, message: str) -> None:
        """Print the message."""
        self._print(message)

    def close(self) -> None:
        """Print the progress, if it was not printed yet."""
        if not self._said:
            done = f"{self._unit} {self._frames // self._frames_per_unit:,} of {self._total:,}"
            self._print("  ".join(filter(None, [done, self._speed, *self._numbers])))
            self._said = True

    def _print(self, line: str) -> None:
        self._say(line)
        self._said_at = self._clock()


class Terminal(Observer):
    """A progress bar and below it the latest metrics, in 80 columns; a third line for workers.

    Args:
        total: frames or steps at the end.
        console: where to show it; standard error if None.
        unit: what `total` counts.
        frames_per_unit: frames of the environment per `unit`.
    """

    def __init__(
        self,
        total: int,
        console: Console | None = None,
        *,
        unit: Unit = "frame",
        frames_per_unit: int = 1,
    ) -> None:
        self._console = console or Console(stderr=True)
        self._unit, self._frames_per_unit = unit, frames_per_unit
        self._progress = Progress(
            TextColumn(f"{{task.completed:,}}/{{task.total:,}} {unit}s"),
            BarColumn(None),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=self._console,
            expand=True,
        )
        self._task = self._progress.add_task("", total=total, speed="")
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
        self._progress.update(self._task, completed=frames // self._frames_per_unit)

    def progressed(self, frames: int, steps_per_second: float | None) -> None:
        """Move the bar."""
        speed = "evaluating" if steps_per_second is None else _speed(steps_per_second)
        done = frames // self._frames_per_unit
        self._progress.update(self._task, completed=done, speed=speed)

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Move the bar and show the latest metrics."""
        self.progressed(row["frames"], steps_per_second)
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
        self.noted(evaluation_line(row, self._unit, self._frames_per_unit))

    def noted(self, message: str) -> None:
        """Print the message above the progress bar."""
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)


def _speed(steps_per_second: float) -> str:
    return f"{steps_per_second:,.0f} steps/s"


def _numbers(row: dict[str, Any]) -> list[str]:
    """Format the metrics of a row of training; Σ̄ is the mean over layers."""
    names = {"return": "score_last", "mean": "score_mean_100", "loss": "loss"}
    names |= {"entropy": "entropy", "ε": "epsilon"}
    found = [f"{name} {row[key]:.3g}" for name, key in names.items() if row.get(key) is not None]
    if row["sigma"]:
        found.append(f"Σ̄ {fmean(row['sigma'].values()):.4f}")
    return found


def evaluation_line(row: dict[str, Any], unit: Unit = "frame", frames_per_unit: int = 1) -> str:
    """Format a row of an evaluation."""
    partial = "" if row["completed"] else " (partial: no episode was completed)"
    return (
        f"{unit} {row['frames'] // frames_per_unit:,}: score {row['score']:.2f} "
        f"with noise {row['noise']}, {row['episodes']} episodes{partial}"
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
