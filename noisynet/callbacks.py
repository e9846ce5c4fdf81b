"""Callbacks of training in Python, and the progress that it shows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from noisynet.loops.run_log import Observer
from noisynet.loops.terminal import Terminal

_LINE_SECONDS: Final = 60.0


class Callback(Observer):
    """Follows training, and can stop it; override the methods that you need.

    `logged` has a row of metrics every `log_period_steps`: `frames`, `steps`, `updates`,
    `episodes`, `score_last` and `score_mean_100` (returns of the last and of the last 100 training
    episodes), `loss`, and `sigma`, Σ̄ of each noisy layer. `evaluated` has a row for each mode of
    an evaluation, every `evaluation.period_frames`: `frames`, `noise` ("on" or "off"), `score` and
    `episodes`. Values that do not exist yet are None.

    Attributes:
        stopped: whether `stop` was called since `Agent.learn` began.
    """

    stopped: bool = False

    def stop(self) -> None:
        """Let `Agent.learn` return after the current step."""
        self.stopped = True


class ProgressLines(Observer):
    """A line a minute and one at the end, for notebooks and for output that is not a terminal.

    Args:
        steps: agent steps at the end.
        frames_per_step: frames of the environment per agent step.
        write: writes a line.
        clock: the time in seconds.
    """

    def __init__(
        self,
        steps: int,
        frames_per_step: int = 1,
        write: Callable[[str], object] = lambda line: sys.stderr.write(f"{line}\n"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps, self._frames_per_step = steps, frames_per_step
        self._write, self._clock, self._shown_at = write, clock, clock()
        self._row: dict[str, Any] | None = None
        self._speed, self._score = 0.0, ""

    def started(self, frames: int) -> None:  # noqa: ARG002
        """Count the first minute from here."""
        self._shown_at = self._clock()

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Write a line if a minute has passed since the last."""
        self._row, self._speed = row, steps_per_second
        if self._clock() - self._shown_at >= _LINE_SECONDS:
            self.close()

    def evaluated(self, row: dict[str, Any]) -> None:
        """Keep the score for the next line."""
        self._score = f", evaluation {row['score']:.2f} (noise {row['noise']})"

    def noted(self, message: str) -> None:
        """Write the message."""
        self._write(message)

    def close(self) -> None:
        """Write what is not written yet."""
        row, self._row = self._row, None
        if row is None:
            return
        self._shown_at = self._clock()
        mean = row["score_mean_100"]
        returns = "" if mean is None else f", mean return {mean:.2f}"
        sigma = list(row["sigma"].values())
        noise = f", Σ̄ {sum(sigma) / len(sigma):.4f}" if sigma else ""
        steps = row["frames"] // self._frames_per_step
        self._write(
            f"step {steps:,} of {self._steps:,}, {self._speed:,.0f} steps/s"
            f"{returns}{self._score}{noise}"
        )


@contextmanager
def progress_observer(
    progress: bool | None, steps: int, frames_per_step: int
) -> Iterator[list[Observer]]:
    """What shows the progress of training, if anything does.

    Args:
        progress: None for a live view in a terminal and a line a minute elsewhere, True for the
            live view, False for nothing.
        steps: agent steps at the end.
        frames_per_step: frames of the environment per agent step.
    """
    if progress is False:
        yield []
    elif progress or sys.stderr.isatty():
        terminal = Terminal(steps * frames_per_step)
        terminal.start()
        try:
            yield [terminal]
        finally:
            terminal.stop()
    else:
        lines = ProgressLines(steps, frames_per_step)
        yield [lines]
        lines.close()
