"""What a terminal shows of a run."""

from __future__ import annotations

import io
import re

from rich.console import Console

from noisynet.loops import Health, Phase
from noisynet.loops.terminal import Lines, Terminal, evaluation_line, workers_line


def test_the_line_of_an_evaluation_marks_a_partial_score() -> None:
    row = {"frames": 1500, "score": 7.125, "noise": "on", "episodes": 3, "completed": True}
    assert evaluation_line(row) == "frame 1,500: score 7.12 with noise on, 3 episodes"
    row |= {"completed": False, "episodes": 0}
    assert evaluation_line(row).endswith("0 episodes (partial: no episode was completed)")


def test_plain_lines_have_messages_and_evaluations_only() -> None:
    printed = list[str]()
    lines = Lines(printed.append)
    lines.started(0)
    lines.logged({"frames": 10}, 5.0)
    lines.noted("resuming")
    lines.evaluated({"frames": 9, "score": 1, "noise": "off", "episodes": 1, "completed": True})
    assert printed == ["resuming", "frame 9: score 1.00 with noise off, 1 episodes"]


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


def test_a_terminal_shows_progress_and_below_it_the_workers() -> None:
    written = io.StringIO()
    terminal = Terminal(1000, Console(file=written, force_terminal=True, width=150))
    terminal.start()
    terminal.started(0)
    row = {"frames": 400, "score_last": 7.0, "loss": 0.5, "entropy": 1.25, "sigma": {"policy": 0.1}}
    terminal.logged(row, 123.4)
    terminal.watched([Health(Phase.RUNNING, 400, 0)])
    terminal.noted("worker 0 died [twice]")
    terminal.stop()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue())
    assert "400/1,000 frames" in shown
    assert "123 steps/s" in shown
    assert "return 7  loss 0.5  entropy 1.25  Σ̄ policy 0.1000" in shown
    assert "workers ●  ● 1 running; 400 to 400 steps each" in shown
    assert "worker 0 died [twice]" in shown
