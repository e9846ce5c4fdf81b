"""Callbacks of training in Python, and the progress that it shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from noisynet.loops.run_log import Observer
from noisynet.loops.terminal import Lines, Terminal


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
        terminal = Terminal(steps, unit="step", frames_per_unit=frames_per_step)
        terminal.start()
        try:
            yield [terminal]
        finally:
            terminal.stop()
    else:
        lines = Lines(steps, _say, unit="step", frames_per_unit=frames_per_step)
        yield [lines]
        lines.close()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
