"""Short runs in real processes, and digests of their results.

The folder is a package because mypy cannot tell two conftest.py apart otherwise.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from noisynet.config import load_config
from noisynet.evaluation import make_configured_environment
from noisynet.loops.run import checkpoint_identity
from noisynet.replay import FrameStore
from noisynet.runs import Checkpoint, RunFolder, load_newest
from noisynet.runs.sealed import unseal

ENVIRONMENT: Final = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

ACT: Final = "noisynet.agents.value:ValueAgent.act"
CHECKPOINT: Final = "noisynet.loops.run:Run.checkpoint"
EVALUATE: Final = "noisynet.agents.policy:ValuePolicy.act"
LOG: Final = "noisynet.runs.metrics:MetricsLog.append"
"""Functions at whose calls a command can be sent a signal."""

_A3C: Final = [
    *("--set", "envs_per_worker=1", "--set", "learning.rollout_steps=5"),
    *("--set", "network.hidden=[16]", "--set", "log_period_steps=50"),
    *("--set", "evaluation.frames=60", "--set", "checkpoint_period_frames=150"),
]
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
        *("noisynet-dueling", "gym/CartPole-v1", "--frames", "400", "--preset", "classic"),
        *("--set", "replay.kind=prioritised", "--set", "replay.capacity_steps=150"),
        *("--set", "learning.n_step=3", "--set", "num_envs=4"),
        *("--set", "learning.update_period_steps=2", "--set", "network.hidden=[16]"),
        *("--set", "learning.starts_steps=60", "--set", "log_period_steps=40"),
        *("--set", "evaluation.period_frames=150", "--set", "evaluation.frames=60"),
        *("--set", "checkpoint_period_frames=80"),
    ],
    "rainbow": [
        *("rainbow", "minatar/breakout", "--frames", "400", "--set", "network.hidden=[32]"),
        *("--set", "learning.starts_steps=60", "--set", "replay.capacity_steps=120"),
        *("--set", "learning.update_period_steps=2", "--set", "learning.sync_target_steps=50"),
        *("--set", "evaluation.period_frames=150", "--set", "evaluation.frames=60"),
        *("--set", "checkpoint_period_frames=50", "--set", "log_period_steps=40"),
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
    "a3c minatar": [
        *("noisynet-a3c-factorised", "minatar/breakout", "--frames", "700"),
        *("--workers", "1", *_A3C, "--set", "evaluation.period_frames=320"),
    ],
    "a3c recurrent": [
        *("noisynet-a3c", "gym/CartPole-v1", "--frames", "700", "--workers", "1", *_A3C),
        *("--set", "envs_per_worker=3", "--set", "recurrent=true", "--set", "network.cells=16"),
        *("--set", "evaluation.period_frames=320"),
    ],
    "a3c pong": [
        *("noisynet-a3c", "atari/pong", "--frames", "6000", "--workers", "1", *_A3C),
        *("--set", "evaluation.period_frames=2000", "--set", "evaluation.frames=400"),
        *("--set", "checkpoint_period_frames=700"),
    ],
    "a3c two workers": [
        *("a3c", "gym/CartPole-v1", "--frames", "3000", "--workers", "2", "--patience", "1.5"),
        *(*_A3C, "--set", "evaluation.period_frames=100000"),
    ],
}


@dataclass
class Ended:
    """A command that has ended: its exit status, negative for a signal, and its output."""

    status: int
    said: str


@dataclass
class Started:
    """A running command."""

    pid: int
    output: Path
    warm: WarmProcess

    def until_stopped(self) -> str:
        """Wait for the process to stop itself; return its output so far."""
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
        """Wait for the process to exit."""
        status = self.warm.ask({"wait": self.pid})
        return Ended(status, self.output.read_text())


class WarmProcess:
    """See warm_process.py."""

    def __init__(self, scratch: Path, variables: Mapping[str, str] | None = None) -> None:
        self.scratch, self.count = scratch, 0
        script = Path(__file__).with_name("warm_process.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **(variables or {})},
        )

    def ask(self, order: dict[str, Any]) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(
        self, arguments: Sequence[str], moments: Sequence[str | int] = (), threads: int = 1
    ) -> Started:
        self.count += 1
        output = self.scratch / f"{self.count}.txt"
        order = {
            "arguments": list(arguments),
            "output": str(output),
            "signal": list(moments),
            "threads": threads,
        }
        return Started(self.ask(order), output, self)

    def close(self) -> None:
        self.process.communicate()


class Bench:
    """Runs short commands, and knows how uninterrupted ones end."""

    def __init__(self, warm: WarmProcess, folder: Path) -> None:
        self.warm, self.folder = warm, folder
        self.references: dict[str, dict[str, str]] = {}

    def command(self, kind: str, out: Path, *more: str) -> list[str]:
        """`noisynet train …` into the folder `out`/run."""
        where = ["--out", str(out), "--name", "run", "--no-tensorboard", "--keep-replay"]
        return ["train", *RUNS[kind], *where, *more]

    def run(
        self,
        command: Sequence[str],
        at: tuple[str, int] | None = None,
        number: int = signal.SIGKILL,
        threads: int = 1,
    ) -> Ended:
        """Run a command in a forked process; send a signal at its Nth event (warm_process.py).

        `threads` is the number that torch would use by default.
        """
        return self.warm.start(command, (number, *at) if at else (), threads).wait()

    def start(
        self, command: Sequence[str], *events: str | int, number: int = signal.SIGSTOP
    ) -> Started:
        """Start a command; with an event and numbers, it is sent a signal at each of them."""
        return self.warm.start(command, (number, *events) if events else ())

    def popen(self, command: Sequence[str], threads: int = 1) -> subprocess.Popen[str]:
        """Start a command in a new interpreter, as a user does."""
        return subprocess.Popen(
            [sys.executable, "-m", "noisynet", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**ENVIRONMENT, "OMP_NUM_THREADS": str(threads)},
        )

    def reference(self, kind: str, *more: str, threads: int = 1) -> dict[str, str]:
        """Return the digests of an uninterrupted run."""
        name = "-".join([kind, *more, str(threads)]).replace("/", "_")
        if name not in self.references:
            out = self.folder / name
            ended = self.run(self.command(kind, out, *more), threads=threads)
            assert ended.status == 0, ended.said
            self.references[name] = remains(out / "run")
        return self.references[name]

    def remains(self, run: Path) -> dict[str, str]:
        """Return the SHA-256 of everything that a run has written."""
        return remains(run)

    def newest(self, run: Path) -> Checkpoint:
        """Load the newest checkpoint, which must need no repair."""
        folder = RunFolder(run)
        config = load_config(folder.read_config())
        with make_configured_environment(config, 1) as environment:
            expected = checkpoint_identity(config, environment.spec)
        checkpoint, skipped = load_newest(folder.checkpoints_path, **expected, repair=False)
        assert checkpoint is not None
        assert skipped == []
        return checkpoint


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Short runs, and the results of uninterrupted ones."""
    warm = WarmProcess(tmp_path_factory.mktemp("said"))
    yield Bench(warm, tmp_path_factory.mktemp("reference"))
    warm.close()


@pytest.fixture(scope="session")
def killed_run(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after three quarters of its budget."""
    out = tmp_path_factory.mktemp("killed")
    assert bench.run(bench.command("deep_sea", out), (ACT, 310)).status == -signal.SIGKILL
    return out / "run"


@pytest.fixture
def run(killed_run: Path, tmp_path: Path) -> Path:
    """A copy of the killed run."""
    return Path(shutil.copytree(killed_run, tmp_path / "run"))


def remains(run: Path) -> dict[str, str]:
    """Return the SHA-256 of a run's state, replay, metrics and traces."""
    newest = max((run / "checkpoints").glob("[0-9]" * 12 + ".safetensors"))
    files = [newest, run / "metrics.jsonl"]
    files += sorted((run / "traces").iterdir())
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    loop = unseal(newest.read_bytes())["state"].get("loop")
    if loop and loop["replay"]:
        found["replay"] = FrameStore.read(loop["replay"]["store"], run / "replay").digest()
    return found
