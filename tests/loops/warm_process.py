"""A process that imports everything once and forks for each command (not a test).

An interpreter with torch takes three seconds to start, and these tests start a hundred runs. The
process, which also imports the modules in WARM_MODULES, reads one JSON object per line:
    {"arguments": […], "output": PATH, "signal": [SIGNAL, EVENT, N, …], "threads": N} starts the
    command line and answers with its pid;
    {"wait": PID} answers with its exit status.

EVENT is "files TEXT", an operation on a file whose path contains TEXT, or a function as
"module:Class.name". The command sends itself the signal just before the Nth event, so that the
moment is exact. Every command has a process group of its own. The workers of A3C are forked, too.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import torch

FILE_EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")


def _send(number: int) -> None:
    """Send a signal to this process; Ctrl-C in a terminal reaches its workers, too."""
    if number == signal.SIGINT:
        os.killpg(0, number)
    else:
        os.kill(os.getpid(), number)


def _signal_at_files(number: int, text: str, moments: list[int]) -> None:
    calls, folder, process = 0, "", os.getpid()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal calls, folder
        if event not in FILE_EVENTS or isinstance(arguments[0], int) or os.getpid() != process:
            return
        path = str(arguments[0])
        if event == "open" and arguments[2] & os.O_DIRECTORY:
            folder = path
        elif "/" not in path:  # relative to the folder that was opened just before
            path = f"{folder}/{path}"
        if text in path:
            calls += 1
            if calls in moments:
                _send(number)

    sys.addaudithook(hook)


def _signal_at_calls(number: int, where: str, moments: list[int]) -> None:
    module, _, path = where.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for attribute in owners:
        owner = getattr(owner, attribute)
    original, calls, process = getattr(owner, name), 0, os.getpid()

    def counted(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += os.getpid() == process  # not in a worker
        if calls in moments:
            _send(number)
        return original(*arguments, **keywords)

    setattr(owner, name, counted)


class ForkedWorker:
    """What a supervisor uses of `Popen`, without a new interpreter."""

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], **_: Any) -> None:
        self.returncode: int | None = None
        with (
            warnings.catch_warnings()
        ):  # a run's watchdog is a thread, which a worker does not need
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            inherited = {int(path.name) for path in Path("/proc/self/fd").iterdir()} - {nothing}
            for descriptor in inherited - {1, 2, *pass_fds}:  # not closed: objects still have them
                os.dup2(nothing, descriptor)
            sys.argv = ["-c", *command[4:]]
            from noisynet.loops.worker_main import main

            main()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or None."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = 1e9) -> int:
        """Wait for the end."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.001)
        return status

    def kill(self) -> None:
        """Kill the process, unless it has been waited for."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def _fork_workers() -> None:
    from noisynet.loops import supervisor

    names = {name: getattr(subprocess, name) for name in ("DEVNULL", "TimeoutExpired")}
    vars(supervisor)["subprocess"] = SimpleNamespace(Popen=ForkedWorker, **names)


def _run(order: dict[str, Any]) -> NoReturn:
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["noisynet", *order["arguments"]]
    torch.set_num_threads(order["threads"])  # the parent has started none, so a fork is safe
    if order["signal"]:
        number, event, *moments = order["signal"]
        if event.startswith("files "):
            _signal_at_files(number, event.removeprefix("files "), moments)
        else:
            _signal_at_calls(number, event, moments)
    try:
        from noisynet.cli import main as command

        command()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _load_kernels() -> None:
    """The machine code of value agents, half a second of every process otherwise."""
    from noisynet.agents import ValueAgent
    from noisynet.config import Config, build_config
    from noisynet.envs import EnvironmentSpec
    from noisynet.replay import TransitionBatch

    torch.set_num_threads(1)  # no thread may be there when the process forks
    for agent in ("noisynet-dqn", "noisynet-dueling"):
        config = build_config(agent, "deep_sea/4", settings=["network.hidden=[8]"])
        assert isinstance(config, Config)
        made = ValueAgent(config, EnvironmentSpec("deep_sea/4", 2, (16,), "float32", 1, 1, 1.0))
        x, ones = np.zeros((2, 1, 16), np.float32), np.ones(2, np.float32)
        actions = np.zeros(2, np.int64)
        made.act(x, 0)
        made.learn(TransitionBatch(x, actions, ones, ones, x, ones, actions))


def main() -> None:
    """Handle orders until the other end closes."""
    modules = [
        "noisynet.loops.launch",
        "noisynet.loops.worker",
        "gymnasium",
        "ale_py",
        "minatar",
    ]
    for module in modules + os.environ.get("WARM_MODULES", "").split():
        try:
            importlib.import_module(module)
        except ImportError:
            continue  # the test that needs it is skipped
    _load_kernels()
    _fork_workers()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                _run(order)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
