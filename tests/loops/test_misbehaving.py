"""Environments that misbehave: the run ends with their name, its folder stays valid and resumes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loops.conftest import ACT
from noisynet.runs import RunFolder

if TYPE_CHECKING:
    from loops.conftest import Bench

NAME = "gym/misbehaving_environments:Misbehaving-v0"


class Bed:
    """A run of a misbehaving environment, which behaves once `switch` is removed."""

    def __init__(self, bench: Bench, out: Path) -> None:
        self.bench, self.out, self.switch = bench, out, out / "switch"
        self.switch.touch()

    def command(self, how: str, name: str = "run") -> list[str]:
        arguments = json.dumps({"how": how, "while_exists": str(self.switch)})
        settings = ["--set", f"environment_options.arguments={arguments}", "--name", name]
        command = self.bench.command("deep_sea", self.out, *settings)
        command[command.index("deep_sea/4")] = NAME
        return command

    def status(self) -> str:
        status = RunFolder(self.out / "run").read_status()
        assert status is not None
        return str(status["state"])

    def assert_it_resumes_bit_for_bit(self, how: str) -> None:
        """Without the fault the run ends as one that never had it."""
        self.switch.unlink()
        for name in ("run", "uninterrupted"):
            ended = self.bench.run(self.command(how, name))
            assert ended.status == 0, ended.said
        resumed, whole = (self.bench.remains(self.out / name) for name in ("run", "uninterrupted"))
        assert resumed == whole


@pytest.fixture
def bed(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.syspath_prepend(Path(__file__).parent)  # the forked process has it from its script
    return Bed(bench, tmp_path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "failed in step: LookupError: the emulator gave up (/"),
        ("odd", "failed in step: BaseException: odd (/"),
        ("exit", "failed in step: SystemExit: 3 (/"),
        ("none", "failed in step: TypeError: "),
        ("text_reward", "failed in step: ValueError: could not convert string to float: 'one' (/"),
        ("shape", "failed in step: ValueError: cannot reshape array of size 5 into shape (2,) (/"),
    ],
)
def test_an_environment_that_fails_is_named_and_the_run_can_go_on(
    how: str, message: str, bed: Bed
) -> None:
    ended = bed.bench.run(bed.command(how))
    assert ended.status == 1, ended.said
    assert f"noisynet: {NAME} {message}" in ended.said
    assert "Traceback" not in ended.said
    assert bed.status() == "failed"
    ended = bed.bench.run(["evaluate", str(bed.out / "run"), "--frames", "200"])
    assert ended.status == 1, ended.said
    assert f"noisynet: {NAME} {message}" in ended.said
    assert "Traceback" not in ended.said
    if how in ("raise", "exit"):
        bed.assert_it_resumes_bit_for_bit(how)


def test_observations_that_are_not_finite_are_refused(bed: Bed) -> None:
    ended = bed.bench.run(bed.command("not_finite"))
    assert ended.status == 1
    assert f"expected a finite observation from {NAME}, got nan; fix" in ended.said
    bed.assert_it_resumes_bit_for_bit("not_finite")


def test_a_run_whose_process_the_environment_ends_can_go_on(bed: Bed) -> None:
    ended = bed.bench.run(bed.command("segfault"))
    assert ended.status == -signal.SIGSEGV
    assert "misbehaving_environments.py" in ended.said  # the line of Python that crashed
    assert bed.bench.run(bed.command("os_exit", "other")).status == 3
    bed.assert_it_resumes_bit_for_bit("segfault")


def test_a_run_whose_files_the_environment_closes_ends_and_can_go_on(bed: Bed) -> None:
    ended = bed.bench.run(bed.command("close"))
    assert ended.status == 1
    assert "Bad file descriptor" in ended.said
    assert "Traceback" not in ended.said
    bed.assert_it_resumes_bit_for_bit("close")


def test_an_environment_that_ignores_signals_does_not_keep_a_run_from_stopping(bed: Bed) -> None:
    ended = bed.bench.run(bed.command("signals"), (ACT, 200), signal.SIGTERM)
    assert ended.status == 128 + signal.SIGTERM, ended.said
    assert "interrupted at frame 200 and saved" in ended.said
