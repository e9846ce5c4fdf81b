"""Commands in odd surroundings: closed and full streams, odd paths, no home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noisynet.runs import RunFolder, read_metrics

TRAIN = [
    *("noisynet-dqn", "deep_sea/4", "--frames", "80", "--no-tensorboard", "--set", "threads=1"),
    *("--set", "learning.starts_steps=32", "--set", "evaluation.frames=8", "--name", "run"),
    *("--set", "compute=torch"),  # nothing to compile first
]


MODULE = ("-m", "noisynet")
# As under PYTHONOPTIMIZE=2, without assertions and docstrings, but our own modules only: all of
# torch would be compiled for this one test.
OPTIMISED = """
from importlib.machinery import SourceFileLoader
get_code = SourceFileLoader.get_code
def optimised(loader, name):
    if not name.startswith("noisynet"):
        return get_code(loader, name)
    return compile(loader.get_data(loader.path), loader.path, "exec", optimize=2)
SourceFileLoader.get_code = optimised
import noisynet.layers
assert noisynet.layers.__doc__ is None
from noisynet.cli import main
main()
"""


def call(
    *arguments: str | bytes,
    program: tuple[str, ...] = MODULE,
    shell: str = '"$@"',
    **surroundings: str,
) -> tuple[int, str]:
    """Run a command through a shell, which may redirect its streams."""
    given = {key: value for key, value in os.environ.items() if key != "HOME"} | surroundings
    command = [sys.executable, *program, *arguments]
    ended = subprocess.run(
        ["sh", "-c", shell, "sh", *command], env=given, check=False, capture_output=True
    )
    return ended.returncode, ended.stderr.decode(errors="replace")


def assert_finished(run: Path) -> None:
    status = RunFolder(run).read_status()
    assert status is not None
    assert status["state"] == "finished"
    assert read_metrics(RunFolder(run).metrics_path)  # nothing else was written into it


def test_a_run_trains_without_a_home_optimised_in_ascii_and_under_any_path(tmp_path: Path) -> None:
    odd = b" a 'path' \"quoted\" \xff\xfe " + b"x" * 150
    out = os.fsencode(tmp_path) + b"/" + b"/".join([odd] * 20)
    assert len(out) > 3_500
    surroundings = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    status, said = call("train", *TRAIN, "--out", out, program=("-c", OPTIMISED), **surroundings)
    assert status == 0, said
    assert_finished(Path(os.fsdecode(out)) / "run")


@pytest.mark.parametrize("redirected", ["<&- >&- 2>&-", "2>/dev/full"])
def test_closed_and_full_streams_do_not_end_a_run(redirected: str, tmp_path: Path) -> None:
    status, _ = call("train", *TRAIN, "--out", str(tmp_path), shell=f'"$@" {redirected}')
    assert status == 0
    assert_finished(tmp_path / "run")


def test_errors_of_the_system_are_a_sentence(tmp_path: Path) -> None:
    status, said = call("train", *TRAIN, "--out", str(tmp_path / ("x" * 300)))
    assert status == 1
    assert "noisynet: [Errno 36] File name too long" in said
    assert "Traceback" not in said
    status, said = call("agents", shell='"$@" >/dev/full')
    assert status == 1
    assert "noisynet: [Errno 28] No space left on device" in said
