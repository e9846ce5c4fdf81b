"""Runs in real processes, and what is left of them.

The folder is a package for the type checker's sake: it cannot tell two conftest.py apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from noisynet.config import Config, load_config
from noisynet.evaluation import make_configured_environment
from noisynet.loops import identity
from noisynet.loops.training import SCHEMA
from noisynet.replay import FrameStore
from noisynet.runs import Checkpoint, RunFolder, load_newest

ENVIRONMENT: Final = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

# A few seconds each, with two evaluations and a handful of checkpoints.
RUNS: Final[dict[str, list[str]]] = {
    "deep_sea": [
        *("noisynet-dqn", "deep_sea/4", "--frames", "400"),
        *("--set", "learning.starts_steps=60", "--set", "replay.capacity_steps=120"),
        *("--set", "learning.update_period_steps=4", "--set", "network.hidden=[16]"),
        *("--set", "evaluation.period_frames=150", "--set", "evaluation.frames=60"),
        *("--set", "checkpoint_period_frames=50", "--set", "log_period_steps=40"),
    ],
    "prioritised": [
        *("noisynet-dueling", "gym/CartPole-v1", "--frames", "400"),
        *("--set", "replay.kind=prioritised", "--set", "replay.capacity_steps=150"),
        *("--set", "learning.n_step=3", "--set", "num_envs=4"),
        *("--set", "learning.update_period_steps=2", "--set", "network.hidden=[16]"),
        *("--set", "learning.starts_steps=60", "--set", "log_period_steps=40"),
        *("--set", "evaluation.period_frames=150", "--set", "evaluation.frames=60"),
        *("--set", "checkpoint_period_frames=80"),
    ],
    "minatar": [
        *("noisynet-dqn", "minatar/breakout", "--frames", "400", "--set", "network.hidden=[32]"),
        *("--set", "learning.starts_steps=60", "--set", "replay.capacity_steps=120"),
        *("--set", "learning.update_period_steps=2", "--set", "learning.sync_target_steps=50"),
        *("--set", "evaluation.period_frames=150", "--set", "evaluation.frames=60"),
        *("--set", "checkpoint_period_frames=50", "--set", "log_period_steps=40"),
    ],
    "atari": [
        *("noisynet-dqn", "atari/pong", "--frames", "1600", "--set", "network.hidden=[32]"),
        *("--set", "learning.starts_steps=100", "--set", "replay.capacity_steps=250"),
        *("--set", "learning.update_period_steps=4", "--set", "learning.sync_target_steps=40"),
        *("--set", "evaluation.period_frames=600", "--set", "evaluation.frames=160"),
        *("--set", "checkpoint_period_frames=200", "--set", "log_period_steps=50"),
    ],
}


@dataclass
class Ended:
    """A command that has ended: its exit status, negative for a signal, and all it said."""

    status: int
    said: str


@dataclass
class Started:
    """A command under way."""

    pid: int
    output: Path
    warm: WarmProcess

    def until_stopped(self) -> str:
        """Wait for the process to stop itself; what it has said by then."""
        while True:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2][0]
            assert state != "Z", self.output.read_text()
            if state == "T":
                return self.output.read_text()
            time.sleep(0.002)

    def go_on(self) -> None:
        """Wake the stopped process."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> Ended:
        status = self.warm.ask({"wait": self.pid})
        return Ended(status, self.output.read_text())


class WarmProcess:
    """See warm_process.py."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.count, self.threads = scratch, 0, 1
        script = Path(__file__).with_name("warm_process.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def ask(self, order: dict[str, Any]) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, arguments: Sequence[str], moments: Sequence[str | int] = ()) -> Started:
        self.count += 1
        output = self.scratch / f"{self.count}.txt"
        order = {
            "arguments": list(arguments),
            "output": str(output),
            "signal": list(moments),
            "threads": self.threads,
        }
        return Started(self.ask(order), output, self)

    def close(self) -> None:
        self.process.communicate()


class Bench:
    """Short runs, their folders, and how uninterrupted ones end.

    Inside `two_threads` updates of Atari agents are computed while they act. Uninterrupted runs
    are on their own: that the threads change nothing is thereby shown, too.
    """

    def __init__(self, warm: WarmProcess, folder: Path) -> None:
        self.warm, self.folder = warm, folder
        self.references: dict[str, dict[str, str]] = {}

    def command(self, kind: str, out: Path, *more: str) -> list[str]:
        """`noisynet train …` into the folder `out`/run."""
        where = ["--out", str(out), "--name", "run", "--no-tensorboard"]
        return ["train", *RUNS[kind], *where, *more]

    def run(
        self,
        command: Sequence[str],
        at: tuple[str, int] | None = None,
        number: int = signal.SIGKILL,
    ) -> Ended:
        """The command in a forked process, sent a signal at its Nth event: see warm_process.py."""
        return self.warm.start(command, (number, *at) if at else ()).wait()

    def start(self, command: Sequence[str], *stops: str | int) -> Started:
        """The same without waiting; with an event and Ns, it stops (SIGSTOP) at each of them."""
        return self.warm.start(command, (signal.SIGSTOP, *stops) if stops else ())

    def popen(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """The command as a user gives it, in an interpreter of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "noisynet", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**ENVIRONMENT, "OMP_NUM_THREADS": str(self.warm.threads)},
        )

    @contextmanager
    def two_threads(self) -> Iterator[None]:
        """Commands get two threads meanwhile."""
        self.warm.threads = 2
        yield
        self.warm.threads = 1

    def reference(self, kind: str, *more: str) -> dict[str, str]:
        """What an uninterrupted run leaves."""
        name = "-".join([kind, *more]).replace("/", "_")
        if name not in self.references:
            out = self.folder / name
            ended = self.run(self.command(kind, out, *more))
            assert ended.status == 0, ended.said
            self.references[name] = remains(out / "run")
        return self.references[name]

    def remains(self, run: Path) -> dict[str, str]:
        """SHA-256 of everything that a run leaves."""
        return remains(run)

    def newest(self, run: Path) -> Checkpoint:
        """The newest checkpoint as the package reads it, which must need no repair."""
        folder = RunFolder(run)
        config = load_config(folder.read_config())
        assert isinstance(config, Config)
        with make_configured_environment(config, 1) as environment:
            expected = identity(config, environment.spec)
        checkpoint, skipped = load_newest(
            folder.checkpoints_path, schema=SCHEMA, identity=expected, repair=False
        )
        assert checkpoint is not None
        assert skipped == []
        return checkpoint


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Short runs and their uninterrupted ends."""
    warm = WarmProcess(tmp_path_factory.mktemp("said"))
    yield Bench(warm, tmp_path_factory.mktemp("reference"))
    warm.close()


def remains(run: Path) -> dict[str, str]:
    """SHA-256 of everything that a run leaves: state, replay contents, metrics and traces."""
    newest = max((run / "checkpoints").glob("[0-9]" * 12))
    parts = [newest / "tensors.safetensors", newest / "state.json", run / "metrics.jsonl"]
    parts += sorted((run / "traces").iterdir())
    found = {part.name: hashlib.sha256(part.read_bytes()).hexdigest() for part in parts}
    state = json.loads((newest / "state.json").read_text())["loop"]["replay"]["store"]
    return {"step": newest.name, "replay": _replay_digest(run / "replay", state)} | found


def _replay_digest(folder: Path, state: dict[str, Any]) -> str:
    layout = state["layout"]
    stack, n_step, envs = layout["stack"], layout["n_step"], layout["num_envs"]
    store = FrameStore(
        layout["window_rows"] * envs,
        tuple(layout["frame_shape"]),
        frame_dtype=layout["frame_dtype"],
        num_actions=layout["num_actions"],
        num_envs=envs,
        stack=stack,
        n_step=n_step,
        slack_rows=layout["ring_rows"] - layout["window_rows"] - stack - n_step,
        folder=folder,
    )
    store.restore(state)
    return store.digest()
