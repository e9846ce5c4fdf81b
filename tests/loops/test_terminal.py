"""What a terminal shows of a run."""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console

from noisynet.loops import Health, Phase
from noisynet.loops.terminal import Lines, Terminal, evaluation_line, workers_line


def test_the_line_of_an_evaluation_marks_a_partial_score() -> None:
    row = {"frames": 1500, "score": 7.125, "noise": "on", "episodes": 3, "completed": True}
    assert evaluation_line(row) == "frame 1,500: score 7.12 with noise on, 3 episodes"
    row |= {"completed": False, "episodes": 0}
    assert evaluation_line(row).endswith("0 episodes (partial: no episode was completed)")


ROW = {
    "frames": 13_450_000,
    "score_last": -20.5,
    "score_mean_100": -19.875,
    "loss": 0.0123456,
    "entropy": None,
    "sigma": {"head.value.0": 0.01, "head.value.1": 0.03},
}


def test_plain_lines_have_messages_evaluations_and_the_progress_once_a_minute() -> None:
    printed, now = list[str](), [0.0]
    lines = Lines(200_000_000, printed.append, clock=lambda: now[0])
    lines.started(0)
    lines.logged(ROW, 5.0)
    lines.noted("resuming")
    lines.evaluated({"frames": 9, "score": 1, "noise": "off", "episodes": 1, "completed": True})
    assert printed == ["resuming", "frame 9: score 1.00 with noise off, 1 episodes"]
    for now[0] in (59.0, 60.0, 100.0, 119.0, 121.0):
        lines.logged(ROW, 1234.5)
    numbers = "return -20.5  mean -19.9  loss 0.0123  Σ̄ 0.0200"
    assert printed[2:] == 2 * [f"frame 13,450,000 of 200,000,000  1,234 steps/s  {numbers}"]


def test_there_is_a_line_a_minute_without_rows_and_during_an_evaluation() -> None:
    printed, now = list[str](), [0.0]
    lines = Lines(1_000, printed.append, unit="step", frames_per_unit=4, clock=lambda: now[0])
    lines.started(0)
    for now[0] in range(150):
        lines.progressed(40 * int(now[0]), 10.0 if now[0] < 100 else None)
    assert printed == ["step 600 of 1,000  10 steps/s", "step 1,200 of 1,000  evaluating"]
    lines.close()
    lines.close()
    assert [line.split()[1] for line in printed] == ["600", "1,200", "1,490"]


def test_the_line_of_workers_has_a_symbol_for_each_and_lists_deaths() -> None:
    workers = [
        Health(Phase.RUNNING, 1200, 0),
        Health(Phase.STARTING, 900, 2),
        Health(Phase.RUNNING, 1100, 0),
        Health(Phase.STOPPED, 1000, 1),
    ]
    assert workers_line(workers) == (
        "workers ●◌●‖  ◌ 1 starting, ● 2 running, ‖ 1 stopped; 900 to 1,200 steps each; "
        "died: worker 1 ×2, worker 3 ×1"
    )


def shown_by(width: int, frames: int, row: dict[str, Any], workers: list[Health]) -> list[str]:
    """The lines of the last state that a terminal shows."""
    written = io.StringIO()
    terminal = Terminal(frames, Console(file=written, force_terminal=True, width=width))
    terminal.start()
    terminal.started(0)
    terminal.logged(row, 12_345.6)
    if workers:
        terminal.watched(workers)
    terminal.noted("worker 0 died [twice]")
    terminal.stop()
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue())
    assert "worker 0 died [twice]" in plain
    return plain.rstrip("\n").split("\r")[-1].splitlines()[-(2 + bool(workers)) :]


def test_the_live_view_has_two_lines_of_80_columns() -> None:
    bar, numbers = shown_by(80, 200_000_000, ROW, [])
    assert bar.startswith("13,450,000/200,000,000 frames ━")
    assert " 12,346 steps/s " in bar
    assert numbers.rstrip() == "return -20.5  mean -19.9  loss 0.0123  Σ̄ 0.0200"
    assert max(len(bar), len(numbers)) <= 80
    assert "…" not in bar + numbers
    full = {**ROW, "frames": 200_000_000, "score_last": -123456.0, "score_mean_100": -123456.0}
    bar, numbers = shown_by(80, 200_000_000, {**full, "epsilon": 0.01, "entropy": 1.25}, [])
    assert bar.startswith("200,000,000/200,000,000 frames ━")
    assert "…" not in bar + numbers


def test_a_terminal_shows_the_workers_in_a_third_line() -> None:
    workers = [Health(Phase.RUNNING, 400_000 + number, 0) for number in range(16)]
    *_, third = shown_by(80, 200_000_000, ROW, workers)
    assert third.startswith("workers ●●●●●●●●●●●●●●●●  ● 16 running; 400,000 to")
    assert len(third) <= 80
