"""The commands on many runs: what they print, refuse and return."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from noisynet.cli import app
from noisynet.experiments import PlanError, SweepSummary
from noisynet.experiments.sweep import FailedRun


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_dry_run_of_a_sweep_prints_the_plan(tmp_path: Path) -> None:
    ended = invoke("sweep", "classic", "--dry-run", "--out", str(tmp_path / "runs"), "--seeds", "1")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.startswith("classic: 4 runs (2 agents, 2 environments, 1 seed)")
    assert not (tmp_path / "runs").exists()


def test_an_invalid_plan_exits_with_2_and_lists_every_error(tmp_path: Path) -> None:
    ended = invoke("sweep", "classic", "--agents", "dqnn", "--frames", "many", "--dry-run")
    assert ended.exit_code == 2
    lines = ended.stderr.splitlines()
    assert all(line.startswith("noisynet: ") for line in lines)
    assert any("unknown agent 'dqnn'" in line for line in lines)
    assert any("--frames" in line for line in lines)


def test_the_exit_code_of_a_sweep_is_that_of_its_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = FailedRun("gym/A/dqn/seed-0", "not finite", Path("seed-0.log"))
    for summary, code in (
        (SweepSummary("classic", 2, 2), 0),
        (SweepSummary("classic", 2, 1, (failed,)), 1),
        (SweepSummary("classic", 2, 1, signal=15), 143),
    ):
        monkeypatch.setattr(
            "noisynet.experiments.run_sweep", lambda *_, _summary=summary, **__: _summary
        )
        ended = invoke("sweep", "classic")
        assert ended.exit_code == code
        assert ended.stdout == f"{summary}\n"


@pytest.mark.parametrize(
    ("error", "code"), [(PlanError("wrong"), 2), (ImportError("no ray"), 1), (ConnectionError(), 1)]
)
def test_errors_of_a_sweep_become_exit_codes(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("noisynet.experiments.run_sweep", fail)
    ended = invoke("sweep", "classic")
    assert ended.exit_code == code
    assert isinstance(ended.exception, SystemExit)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["report", "{}", "--references", "rounded"], 2, "expected unrounded or printed"),
        (["report", "{}", "--at-frames", "many"], 2, "--at-frames"),
        (["report", "{}/nothing"], 1, "expected a folder of runs at"),
        (["paper", "--form", "html"], 2, "--form expected text, markdown, csv or latex"),
    ],
)
def test_bad_commands_are_refused(
    tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    ended = invoke(*(argument.format(tmp_path) for argument in arguments))
    assert ended.exit_code == code
    assert message in ended.stderr


def test_the_paper_is_printed_in_a_chosen_format() -> None:
    ended = invoke("paper", "--form", "csv")
    assert ended.exit_code == 0
    assert ended.stdout.startswith(",printed,recomputed")
