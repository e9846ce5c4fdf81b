"""The lock of a run folder, between real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import noisynet
from noisynet.runs import RunDamaged, RunFolder, RunLocked

_ROOT = Path(noisynet.__file__).parents[1]


def _open(path: Path) -> RunFolder:
    return RunFolder.create_or_open(path, {"agent": "dqn"}, must_match=["agent"])


_HOLDER = """
import os, sys, time
from noisynet.runs import RunFolder
lock = RunFolder(sys.argv[1]).lock()
if sys.argv[2] == "fork":
    begun, tell = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.write(tell, b".")
        time.sleep(600)
        os._exit(0)
    os.read(begun, 1)
    os.write(1, f"{worker} ".encode())
os.write(1, b"held\\n")
sys.stdin.read()
if sys.argv[2] == "release":
    lock.release()
"""


def _hold(path: Path, how: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert holder.stdout is not None
    return holder


def _kill(holder: subprocess.Popen[str]) -> None:
    with holder:
        holder.kill()


def test_a_locked_folder_cannot_be_locked_by_a_second_process(tmp_path: Path) -> None:
    run = _open(tmp_path / "run")
    holder = _hold(run.path, "release")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RunLocked) as caught:
        run.lock()
    owner = caught.value.owner
    assert owner is not None
    assert (owner.pid, owner.host) == (holder.pid, socket.gethostname())
    assert f"is locked by process {holder.pid} on {owner.host} (since 20" in str(caught.value)
    assert run.holder() == owner

    holder.communicate("")  # exits, with a clean release
    assert run.holder() is None
    with run.lock() as lock:
        assert lock.note is None


def test_the_lock_of_a_killed_process_is_taken_over_with_a_note(tmp_path: Path) -> None:
    run = _open(tmp_path / "run")
    holder = _hold(run.path, "hold")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    (run.path / ".status.json.tmp-99").write_text("half")
    _kill(holder)
    assert run.holder() is None
    with run.lock() as lock:
        assert lock.note is not None
        assert f"process {holder.pid} on {socket.gethostname()} (since 20" in lock.note
        assert not (run.path / ".status.json.tmp-99").exists()
    with run.lock() as lock:  # only once
        assert lock.note is None


def test_a_forked_worker_does_not_keep_a_killed_owners_lock(tmp_path: Path) -> None:
    run = _open(tmp_path / "run")
    holder = _hold(run.path, "fork")
    assert holder.stdout is not None
    worker, held = holder.stdout.readline().split()
    try:
        assert held == "held"
        holder.kill()
        holder.wait()
        with run.lock() as lock:
            assert lock.note is not None
    finally:
        os.kill(int(worker), signal.SIGKILL)
        _kill(holder)


def test_one_process_cannot_take_the_lock_twice_but_can_after_release(tmp_path: Path) -> None:
    run = _open(tmp_path / "run")
    lock = run.lock()
    with pytest.raises(RunLocked, match=f"process {os.getpid()} "):
        run.lock()
    assert run.holder() is not None  # the failed attempt did not change the owner
    lock.release()
    lock.release()
    run.lock().release()


def test_an_error_under_the_lock_releases_it(tmp_path: Path) -> None:
    run = _open(tmp_path / "run")
    with pytest.raises(KeyError), run.lock():
        raise KeyError
    run.lock().release()


def test_a_lock_whose_file_was_replaced_is_lost(tmp_path: Path) -> None:
    run = _open(tmp_path / "run")
    with run.lock() as lock:
        lock.check()
        (run.path / "run.lock").unlink()
        with pytest.raises(RunLocked, match=r"run\.lock was deleted or replaced while this proc"):
            lock.check()
        with _open(run.path).lock() as second:
            with pytest.raises(RunLocked):
                run.write_status("running")
            lock.release()  # the second one's owner file stays
            assert run.holder() is not None
            second.check()


def test_an_owner_counts_by_its_start_time_or_by_the_lock(tmp_path: Path) -> None:
    run = _open(tmp_path / "run")
    with run.lock():
        signed = (run.path / "run.owner").read_text()
        owner = run.holder()
        assert owner is not None
        assert owner.started is not None
        # Whatever the pid, the lock is held.
        (run.path / "run.owner").write_text(signed.replace(str(os.getpid()), "1", 1))
        assert run.holder() is not None
    (run.path / "run.owner").write_text(signed)  # of a living process, which has released it
    assert run.holder() is not None
    for changed in (
        signed.replace(owner.started, "another boot/1"),  # the pid is used again
        signed.replace(socket.gethostname(), "another-machine"),
        signed.replace(f'"pid":{os.getpid()}', '"pid":-1'),
    ):
        assert changed != signed
        (run.path / "run.owner").write_text(changed)
        assert run.holder() is None


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("elsewhere"), Path.mkdir])
def test_a_lock_that_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    run = _open(tmp_path / "run")
    (run.path / "run.lock").unlink()
    make(run.path / "run.lock")
    with pytest.raises(RunDamaged, match=rf"expected a regular file at {run.path}/run\.lock, got"):
        run.lock()
    assert not (run.path / "elsewhere").exists()
