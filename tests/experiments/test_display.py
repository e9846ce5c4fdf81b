"""The live table and the lines of a sweep."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from noisynet.experiments import RunSpec, build_plan
from noisynet.experiments.display import (
    Display,
    SweepConsole,
    counted,
    counts_line,
    format_duration,
    format_frames,
)
from noisynet.experiments.job import Job, JobState
from noisynet.experiments.process import LocalProcess, ProcessOptions


def make_job(spec: RunSpec) -> Job:
    """A job that is not started."""
    options = ProcessOptions(program=("/no/such/program",))
    return Job(spec, lambda run, _, threads: LocalProcess(run, options, threads), lambda *_: None)


def test_the_table_has_every_run_that_fits_and_counts_all(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path)
    console = Console(file=StringIO(), width=100, height=10, force_terminal=True, color_system=None)
    jobs = [make_job(spec) for spec in plan.specs]
    jobs[5].state = JobState.RUNNING
    jobs[7].state = JobState.FAILED
    with Display(console) as table:
        table.log(plan.specs[7], "failed: [bold]not markup")
        table.refresh(jobs)
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert f"{plan.specs[7].name}: failed: [bold]not markup" in shown
    for text in (f"{plan.specs[5].name}", "0/50,000", "time left", "steps/s"):
        assert text in shown
    assert "12 runs: 1 running, 1 failed, 10 waiting" in shown
    assert counts_line(jobs[5:6]) == "1 run: 1 running"


def test_lines_are_printed_for_events_only(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path)
    console = Console(file=StringIO(), width=100)
    display = Display(console)
    with display:
        display.refresh([make_job(plan.specs[0])])
        display.log(plan.specs[0], "started")
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == f"{plan.specs[0].name}: started\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_broken_pipe_does_not_end_the_sweep(tmp_path: Path, terminal: bool) -> None:
    class Broken(StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    plan = build_plan("classic", out=tmp_path)
    display = Display(SweepConsole(file=Broken(), force_terminal=terminal))
    with display:
        display.log(plan.specs[0], "started")
        display.refresh([])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        *((45, "45 s"), (720, "12 min"), (12_000, "3 h 20 min"), (442_800, "5 d 3 h")),
        *((1e7, "116 d"), (4.2e8, "13.3 years")),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert format_duration(seconds) == expected


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        *((0, "0"), (1_500, "1,500"), (8_000, "8k"), (348_000, "348k")),
        *((72_000_000, "72M"), (1_234_567, "1,235k"), (300_960_000_000, "300,960M")),
    ],
)
def test_frames_have_a_unit(frames: int, expected: str) -> None:
    assert format_frames(frames) == expected


def test_counts_have_a_singular() -> None:
    assert [counted(count, "run") for count in (0, 1, 1197)] == ["0 runs", "1 run", "1,197 runs"]
