"""Commands in odd surroundings: closed and full streams, odd paths, no home, read-only disks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import noisynet
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


# --- other disks, which only this process and its children see -----------------------------------

PRIVATE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
FULL = (
    "mount -t tmpfs -o size=4k tmpfs /dev/shm && "
    "! cat /dev/zero >/dev/shm/full && ! echo more >/dev/shm/more"
)
READ_ONLY = (
    'mount --bind "$HOME" "$HOME" && mount -o remount,ro,bind "$HOME" && ! touch "$HOME/new"'
)


def call_with_mounts(mounts: str, *arguments: str, **surroundings: str) -> tuple[int, str]:
    """Run a command after shell commands that mount something and must succeed."""
    shell = f'{" ".join(PRIVATE)} sh -c \'{{ {mounts}; }} 2>&- || exit 99; "$@"\' sh "$@"'
    status, said = call(*arguments, program=MODULE, shell=shell, **surroundings)
    if status == 99 or "unshare" in said:
        pytest.skip("no permission to mount")
    return status, said


def test_workers_train_with_a_full_dev_shm(tmp_path: Path) -> None:
    """What they share is in anonymous files, which that disk does not limit."""
    arguments = ["train", "a3c", "gym/CartPole-v1", "--frames", "100", "--workers", "1"]
    arguments += [
        "--patience",
        "60",
        "--no-tensorboard",
        "--set",
        "evaluation.frames=20",
        "--name",
        "run",
    ]
    status, said = call_with_mounts(FULL, *arguments, "--out", str(tmp_path))
    assert status == 0, said
    assert "died" not in said
    assert_finished(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("agent", ["noisynet-dqn", "noisynet-a3c-factorised"])
def test_a_run_trains_from_an_installation_that_cannot_be_written(
    agent: str, tmp_path: Path
) -> None:
    """Nor can the home: there is neither bytecode nor a cache of kernels."""
    site, out = tmp_path / "site", tmp_path / "out"
    package = Path(noisynet.__file__).parent
    shutil.copytree(package, site / "noisynet", ignore=shutil.ignore_patterns("__pycache__"))
    arguments = ["train", agent, "gym/CartPole-v1", "--frames", "200", "--out", str(out)]
    arguments += ["--no-tensorboard", "--set", "evaluation.frames=20", "--name", "run"]
    arguments += ["--set", "learning.starts_steps=64"] if agent == "noisynet-dqn" else []
    surroundings = {"HOME": str(site), "XDG_CACHE_HOME": str(site), "NUMBA_CACHE_DIR": ""}
    surroundings |= {"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    status, said = call_with_mounts(READ_ONLY, *arguments, **surroundings)
    assert status == 0, said
    assert "compiled kernels cannot be stored" in said
    assert "died" not in said
    assert_finished(out / "run")
    assert not list(site.rglob("__pycache__"))
