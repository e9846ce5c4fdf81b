"""The entry point of a worker process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from noisynet.loops.channel import Channel
from noisynet.loops.messages import ERROR, WorkerSetup, write_setup
from noisynet.loops.shared_state import SharedState
from noisynet.loops.supervisor import PROGRAM


def test_a_process_whose_parent_has_died_exits_before_it_imports_torch() -> None:
    arguments = [str(os.getpid() + 1), "3", "4", "5", json.dumps(sys.path)]
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "noisynet.loops.worker_main" in imported
    assert "torch" not in imported


def test_an_error_is_sent_to_the_parent_with_its_traceback() -> None:
    ours, theirs = Channel.pair()
    setup = write_setup(WorkerSetup(0, 0, {"agent": "none"}, 1))
    shared = SharedState.create(1, 1)
    arguments = [str(os.getpid()), str(theirs.fileno()), str(shared.descriptor), str(setup)]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments, json.dumps(sys.path)],
        pass_fds=(theirs.fileno(), shared.descriptor, setup),
    )
    theirs.close()
    message = ours.wait()
    assert process.wait(60) == 1
    os.close(setup)
    shared.close()
    ours.close()
    assert message is not None
    kind, body = message
    line, _, traceback = body.decode().partition("\n")
    assert kind == ERROR
    assert "'none'" in line
    assert traceback.startswith("Traceback")
