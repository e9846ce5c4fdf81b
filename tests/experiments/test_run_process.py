"""The process of a run: it passes on exit codes, and ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.conftest import has_ended, until
from noisynet.experiments import build_plan
from noisynet.experiments.process import PROGRAM
from noisynet.runs import EXIT_LOCKED, RunFolder


def test_a_locked_run_exits_with_its_own_code(tmp_path: Path) -> None:
    plan = build_plan("classic", out=tmp_path, agents="dqn", environments="deep_sea/4", seeds=1)
    (spec,) = plan.specs
    stored = spec.config.model_dump(mode="json")
    with RunFolder.create_or_open(spec.folder, stored, must_match=["agent"]).lock():
        ended = subprocess.run(
            [*PROGRAM, str(os.getpid()), *spec.arguments(), "--no-tensorboard"],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == EXIT_LOCKED, ended.stderr
    assert f"noisynet: {spec.folder} is" in ended.stderr


def test_a_bad_command_exits_with_code_2() -> None:
    command = [*PROGRAM, str(os.getpid()), "train", "no-such-agent", "deep_sea/4"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_a_process_whose_parent_is_gone_exits() -> None:
    command = [*PROGRAM, "1" if os.getpid() != 1 else "2", "--help"]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_process_gets_sigterm_when_its_parent_is_killed(tmp_path: Path) -> None:
    child = (
        "import os, pathlib, signal, sys, time\n"
        "from noisynet.experiments.run_process import exit_with_parent\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path('saved').touch(), sys.exit()))\n"
        "exit_with_parent(os.getppid())\n"
        "pathlib.Path('pid.new').write_text(str(os.getpid()))\n"
        "pathlib.Path('pid.new').rename('pid')\n"
        "time.sleep(600)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path)
    until((tmp_path / "pid").exists)
    process.kill()
    process.wait()
    until(lambda: has_ended(int((tmp_path / "pid").read_text())))
    assert (tmp_path / "saved").exists()
