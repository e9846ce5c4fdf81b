"""Actors and critics on atari/pong: agent steps per second, ours against pfrl's and SB3's.

The workload is A3C's: roll-outs of 5 steps, frame skip 4, convolutions of 16 and 32 filters and 256
hidden units, RMSProp. stable-baselines3 has A2C instead: its 2 environments stand beside 2 workers,
its 16 beside 2 workers with 8 each. Each contestant is a group of processes of its own, the real
command where it is ours. They take turns of a few seconds, the others stopped meanwhile (SIGSTOP),
so that a busy machine slows all alike.

    python benchmarks/a3c.py --pfrl PYTHON --sb3 PYTHON

Peers need environments of their own outside the repository, of which PYTHON is path/to/bin/python:
`pip install torch==2.13.0` first, then `pip install pfrl gymnasium ale-py opencv-python-headless`
for one, `pip install stable-baselines3 ale-py opencv-python-headless` for the other. pfrl plays
through Gymnasium's preprocessing, which is faster than its own wrappers (and those do not work with
today's Gym). Only with both are the results, which are cited, written over; `--out` writes whatever
there is elsewhere.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from turns import CONTESTANTS, keep, machine, show, summarise

from noisynet.agents import ActorCriticAgent
from noisynet.config import ActorCriticConfig, build_config
from noisynet.envs import make_environment
from noisynet.loops.shared_state import SharedState

RESULTS = Path(__file__).parent / "results" / "a3c.json"
WARM_UP_STEPS: Final = 400
SCALING: Final = (1, 2, 4, 8, 16)
TORSO: Final = "network.torso=a3c"  # pfrl's network


@dataclass(frozen=True)
class Entry:
    """A contestant.

    Attributes:
        command: what to run; "{count}" stands for a file where the steps are to be counted.
        workers: how many processes learn.
        is_ours: whether its steps are read from the memory that its workers share.
    """

    command: tuple[str, ...]
    workers: int
    is_ours: bool = True


def ours(agent: str, workers: int, envs: int = 1) -> Entry:
    """The real command, which evaluates and ends only after the benchmark is over."""
    settings = ["evaluation.period_frames=4000000000", f"envs_per_worker={envs}", TORSO]
    command = [sys.executable, "-m", "noisynet", "train", agent, "atari/pong"]
    command += ["--frames", "4000M", "--workers", str(workers), "--name", "run"]
    command += ["--out", "{folder}", "--no-tensorboard", "--patience", "60"]
    for setting in settings:
        command += ["--set", setting]
    return Entry(tuple(command), workers)


def pfrls(python: str, kind: str, workers: int) -> Entry:
    """The peer's A3C, "plain" or "noisy"."""
    script = str(CONTESTANTS / "pfrl_a3c.py")
    return Entry((python, script, kind, str(workers), "{count}"), workers, is_ours=False)


def sb3s(python: str, envs: int) -> Entry:
    """The peer's A2C: one learner, many environments."""
    script = str(CONTESTANTS / "sb3_a2c.py")
    return Entry((python, script, str(envs), "{count}"), workers=1, is_ours=False)


@dataclass
class Contestant:
    """A group of processes that learns while it is its turn."""

    entry: Entry
    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)
    counter: Any = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        count = np.memmap(self.folder / "count", np.int64, "w+", shape=(1,))
        names = {"{folder}": str(self.folder), "{count}": str(self.folder / "count")}
        self.process = subprocess.Popen(
            [names.get(part, part) for part in self.entry.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "said.txt").open("wb"),
            cwd=self.folder,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.counter = None if self.entry.is_ours else count
        try:
            self._warm_up()
        except BaseException:
            self.stop()
            raise

    def _warm_up(self) -> None:
        while self.counter is None or self.steps() < WARM_UP_STEPS:
            if self.process.poll() is not None:
                raise RuntimeError(f"a contestant died: {(self.folder / 'said.txt').read_text()}")
            self.counter = self.counter if self.counter is not None else self._shared()
            time.sleep(0.05)
        self._signal(signal.SIGSTOP)

    def _shared(self) -> SharedState | None:
        """The memory that the workers of a run share, by its parent's descriptor."""
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                is_block = str(link.readlink()).startswith("/memfd:noisynet")
                if is_block and link.stat().st_size > 1 << 20:  # a job is smaller
                    return SharedState(os.open(link, os.O_RDWR), self.entry.workers, 1)
            except OSError:
                continue  # closed meanwhile
        return None

    def steps(self) -> int:
        """Agent steps so far."""
        return self.counter.steps if self.entry.is_ours else int(self.counter[0])

    def run(self, seconds: float) -> float:
        """Agent steps per second over a turn."""
        self._signal(signal.SIGCONT)
        time.sleep(0.3)  # until everybody is awake
        steps, started = self.steps(), time.perf_counter()
        time.sleep(seconds)
        speed = (self.steps() - steps) / (time.perf_counter() - started)
        self._signal(signal.SIGSTOP)
        return speed

    def stop(self) -> None:
        """End all of its processes."""
        with suppress(ProcessLookupError):
            self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)


def take_turns(entries: Mapping[str, Entry], rounds: int, seconds: float) -> dict[str, list[float]]:
    """The speed of each contestant in every round."""
    with tempfile.TemporaryDirectory() as parent:
        running: dict[str, Contestant] = {}
        try:
            for number, (name, entry) in enumerate(entries.items()):
                running[name] = Contestant(entry, Path(parent) / str(number))
            speeds: dict[str, list[float]] = {name: [] for name in running}
            for _ in range(rounds):
                for name, contestant in running.items():
                    speeds[name].append(contestant.run(seconds))
        finally:
            for contestant in running.values():
                contestant.stop()
    return speeds


def normals_ms(repeats: int = 30) -> tuple[int, float]:
    """How many normals a roll-out of noisynet-a3c draws, and what drawing them alone takes."""
    config = build_config("noisynet-a3c", "atari/pong", settings=[TORSO])
    assert isinstance(config, ActorCriticConfig)
    with make_environment("atari/pong") as environment:
        agent = ActorCriticAgent(config, environment.spec)
    # Each σ has a normal of its own.
    named = agent.online.named_parameters()
    count = sum(parameter.numel() for name, parameter in named if name.endswith("_sigma"))
    torch.set_num_threads(1)
    target, times = torch.empty(count), []
    for _ in range(repeats):
        started = time.perf_counter()
        target.normal_()
        times.append(1000 * (time.perf_counter() - started))
    return count, statistics.median(times)


def contestants(pfrl: str | None, sb3: str | None) -> dict[str, Entry]:
    """Those that are compared, with two workers or as many environments."""
    found = {
        "a3c": ours("a3c", 2),
        "noisynet-a3c-factorised": ours("noisynet-a3c-factorised", 2),
        "noisynet-a3c": ours("noisynet-a3c", 2),
        "a3c, 8 environments each": ours("a3c", 2, envs=8),
    }
    if pfrl:
        found["pfrl a3c"] = pfrls(pfrl, "plain", 2)
        found["pfrl a3c, factorised"] = pfrls(pfrl, "noisy", 2)
    if sb3:
        for envs in (2, 16):
            found[f"stable-baselines3 a2c, {envs} environments"] = sb3s(sb3, envs)
    return found


def main() -> None:
    """Let the contestants take turns, print the tables and, with the peers, write the results."""
    parser = argparse.ArgumentParser(description="Agent steps per second on atari/pong")
    parser.add_argument("--pfrl", help="the Python of an environment with pfrl")
    parser.add_argument("--sb3", help="the Python of an environment with stable-baselines3")
    parser.add_argument("--out", type=Path, help="where the JSON goes, with or without peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each turn")
    parser.add_argument(
        "--scaling", default=",".join(map(str, SCALING)), help="numbers of workers; empty: none"
    )
    options = parser.parse_args()
    count, milliseconds = normals_ms()
    report: dict[str, Any] = {
        "machine": machine(),
        "rounds": options.rounds,
        "seconds": options.seconds,
    }
    entries = contestants(options.pfrl, options.sb3)
    speeds = take_turns(entries, options.rounds, options.seconds)
    to = "pfrl a3c" if options.pfrl else "a3c"
    report["two workers"] = summarise(speeds, to)
    show("two workers", report["two workers"], to)
    report["cost of noise"] = summarise(
        {name: speeds[name] for name in ("a3c", "noisynet-a3c-factorised", "noisynet-a3c")}, "a3c"
    )
    show("what noise costs", report["cost of noise"], "a3c")
    rollout_ms = 2 * 5 * 1000 / statistics.median(speeds["noisynet-a3c"])
    report["normals of a roll-out"] = {
        "count": count,
        "milliseconds": round(milliseconds, 2),
        "share_of_a_rollout": round(milliseconds / rollout_ms, 3),
    }
    print(
        f"independent noise: {count:,} normals for each roll-out take {milliseconds:.1f} ms alone, "
        f"{100 * milliseconds / rollout_ms:.0f} % of a roll-out's {rollout_ms:.1f} ms"
    )
    if numbers := [int(number) for number in options.scaling.split(",") if number]:
        scaled = {f"{number} workers": ours("a3c", number) for number in numbers}
        speeds = take_turns(scaled, options.rounds, options.seconds)
        first = f"{numbers[0]} workers"
        report["scaling"] = summarise(speeds, first)
        show("scaling of a3c", report["scaling"], first)
    peers = {"pfrl": options.pfrl, "stable-baselines3": options.sb3}
    keep(report, RESULTS, options.out, [name for name, python in peers.items() if not python])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no stopped process is left behind
    main()
