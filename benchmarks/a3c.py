"""A3C on atari/pong and minatar/breakout: agent steps per second, ours against pfrl's and SB3's.

The workload is A3C's: roll-outs of 5 steps, and on Atari frame skip 4, convolutions of 16 and 32
filters and 256 hidden units, as pfrl has them. On MinAtar it is our preset with 2 workers.
stable-baselines3 has A2C instead: its 2 environments are compared with 2 workers, its 16 with 2
workers of 8 environments each. Each contestant is a group of processes, ours the real command. They
take turns of a few seconds, while the others are stopped (SIGSTOP).

    python benchmarks/a3c.py --pfrl PYTHON --sb3 PYTHON

PYTHON is the interpreter of an environment that has the peer; benchmarks/README.md says how to make
one. pfrl plays through Gymnasium's preprocessing: its own wrappers are slower, and need the older
Gym. `--before PATH` lets the agents of another checkout take part. It takes about 12 minutes.

A worker with 8 environments makes an eighth of the updates, so steps per second are not learning
per second: `a3c_learning.py` measures how much is learnt per frame.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from training import PACKAGES, versions
from turns import CONTESTANTS, ROOT, commit, compare, machine, show, summarise, write_results

from noisynet.agents import ActorCriticAgent
from noisynet.config import ActorCriticConfig, build_config
from noisynet.envs import make_environment
from noisynet.loops.shared_state import SharedState

RESULTS = Path(__file__).parent / "results" / "a3c.json"
WARM_UP_STEPS: Final = 400
SCALING: Final = (1, 2, 4, 8, 16)
AGENTS: Final = ("a3c", "noisynet-a3c-factorised", "noisynet-a3c")
PONG: Final = ("atari/pong", "network.torso=a3c")  # pfrl's network
BREAKOUT: Final = ("minatar/breakout",)


@dataclass(frozen=True)
class Entry:
    """How to start a contestant.

    Attributes:
        command: what to run; "{folder}" stands for its folder, "{count}" for a file to which it
            writes its steps.
        workers: the number of processes that learn.
        checkout: whose code runs; None for a peer. Our steps are read from the memory that the
            workers share.
    """

    command: tuple[str, ...]
    workers: int
    checkout: Path | None = None


def ours(
    agent: str,
    workload: Sequence[str],
    workers: int = 2,
    envs: int | None = None,
    checkout: Path = ROOT,
) -> Entry:
    """The real command, with a budget and evaluations that are never reached.

    Args:
        agent: the agent.
        workload: the environment, and settings.
        workers: the number of processes.
        envs: environments per worker; None for the preset's.
        checkout: whose code runs.
    """
    environment, *settings = workload
    settings += ["evaluation.period_frames=4000000000"]
    settings += [f"envs_per_worker={envs}"] if envs else []
    command = [sys.executable, "-m", "noisynet", "train", agent, environment]
    command += ["--frames", "4000M", "--workers", str(workers), "--name", "run"]
    command += ["--out", "{folder}", "--no-tensorboard", "--patience", "60"]
    for setting in settings:
        command += ["--set", setting]
    return Entry(tuple(command), workers, checkout)


def pfrl_entry(python: str, kind: str, workers: int) -> Entry:
    """pfrl's A3C, "plain" or "noisy"."""
    script = str(CONTESTANTS / "pfrl_a3c.py")
    return Entry((python, script, kind, str(workers), "{count}"), workers)


def sb3_entry(python: str, envs: int) -> Entry:
    """stable-baselines3's A2C: one process, many environments."""
    script = str(CONTESTANTS / "sb3_a2c.py")
    return Entry((python, script, str(envs), "{count}"), workers=1)


@dataclass
class Contestant:
    """A group of processes that runs only while it is its turn."""

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
            stderr=(self.folder / "stderr.txt").open("wb"),
            cwd=self.folder,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self._python_path()},
        )
        self.counter = None if self.entry.checkout else count
        try:
            self._warm_up()
        except BaseException:
            self.stop()
            raise

    def _python_path(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.entry.checkout)} if self.entry.checkout else {}

    def _warm_up(self) -> None:
        while self.counter is None or self.steps() < WARM_UP_STEPS:
            if self.process.poll() is not None:
                said = (self.folder / "stderr.txt").read_text()
                raise RuntimeError(f"a contestant died: {' '.join(self.entry.command)}\n{said}")
            self.counter = self.counter if self.counter is not None else self._shared()
            time.sleep(0.05)
        self._signal(signal.SIGSTOP)

    def _shared(self) -> SharedState | None:
        """The memory that the workers of a run share, by their parent's descriptor."""
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                is_block = str(link.readlink()).startswith("/memfd:noisynet")
                if is_block and link.stat().st_size > 1 << 18:  # a worker's setup is smaller
                    return SharedState(os.open(link, os.O_RDWR), self.entry.workers, 1)
            except OSError:
                continue  # closed meanwhile
        return None

    def steps(self) -> int:
        """Agent steps so far."""
        return self.counter.steps if self.entry.checkout else int(self.counter[0])

    def run(self, seconds: float) -> float:
        """Agent steps per second over a turn."""
        self._signal(signal.SIGCONT)
        time.sleep(0.3)  # until all of its processes run
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
                print(f"  warming up: {name}", flush=True)
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
    """How many normals a roll-out of noisynet-a3c draws, and the time of drawing them alone."""
    config = build_config("noisynet-a3c", PONG[0], settings=list(PONG[1:]))
    assert isinstance(config, ActorCriticConfig)
    with make_environment(PONG[0]) as environment:
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


def before_entries(checkout: Path | None, workload: Sequence[str]) -> dict[str, Entry]:
    """The agents of another version; none without a checkout."""
    if checkout is None:
        return {}
    code = checkout.resolve()
    return {f"before {agent}": ours(agent, workload, checkout=code) for agent in AGENTS}


def tables(options: argparse.Namespace) -> dict[str, dict[str, Entry]]:
    """Those that are compared, with two workers or as many environments, by title."""
    pong = {agent: ours(agent, PONG) for agent in AGENTS}
    pong["a3c, 8 environments each"] = ours("a3c", PONG, envs=8)
    pong |= before_entries(options.before, PONG)
    if options.pfrl:
        pong["pfrl a3c"] = pfrl_entry(options.pfrl, "plain", 2)
        pong["pfrl a3c, factorised"] = pfrl_entry(options.pfrl, "noisy", 2)
    if options.sb3:
        for envs in (2, 16):
            pong[f"stable-baselines3 a2c, {envs} environments"] = sb3_entry(options.sb3, envs)
    breakout = {agent: ours(agent, BREAKOUT) for agent in AGENTS}
    breakout["a3c, 1 environment each"] = ours("a3c", BREAKOUT, envs=1)
    breakout |= before_entries(options.before, BREAKOUT)
    return {"two workers": pong, "minatar/breakout, two workers": breakout}


def pairs() -> list[tuple[str, list[str]]]:
    """The ratios that matter, see `turns.compare`."""
    found = [("a3c", ["pfrl a3c"]), ("noisynet-a3c-factorised", ["pfrl a3c, factorised"])]
    found += [("a3c", ["stable-baselines3 a2c, 2 environments"])]
    found += [("a3c, 8 environments each", ["stable-baselines3 a2c, 16 environments"])]
    found += [(agent, ["a3c"]) for agent in AGENTS[1:]]
    found += [("a3c", ["a3c, 1 environment each"])]
    return found + [(agent, [f"before {agent}"]) for agent in AGENTS]


def share_of_normals(speeds: Sequence[float]) -> dict[str, Any]:
    """How much of a roll-out of noisynet-a3c is drawing its normals, which bounds it from below."""
    count, milliseconds = normals_ms()
    rollout_ms = 2 * 5 * 1000 / statistics.median(speeds)  # two workers, 5 steps
    print(
        f"independent noise: {count:,} normals for each roll-out take {milliseconds:.1f} ms alone, "
        f"{100 * milliseconds / rollout_ms:.0f} % of a roll-out's {rollout_ms:.1f} ms"
    )
    return {
        "count": count,
        "milliseconds": round(milliseconds, 2),
        "share_of_a_rollout": round(milliseconds / rollout_ms, 3),
    }


def parse() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description="Agent steps per second of asynchronous training")
    parser.add_argument("--pfrl", help="a Python that has pfrl")
    parser.add_argument("--sb3", help="a Python that has stable-baselines3")
    parser.add_argument(
        "--before", type=Path, help="a checkout of another version, which takes part"
    )
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each turn")
    parser.add_argument("--scaling", type=int, nargs="*", default=SCALING, help="worker counts")
    return parser.parse_args()


def main() -> None:
    """Let the contestants take turns, print the tables and, with the peers, write the results."""
    options = parse()
    pythons = {"pfrl": options.pfrl, "sb3": options.sb3}
    report: dict[str, Any] = {
        "machine": machine(),
        "versions": versions({peer: python for peer, python in pythons.items() if python}),
        "before": options.before and commit(options.before),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "ratios": {},
    }
    for title, entries in tables(options).items():
        print(title)
        speeds = take_turns(entries, options.rounds, options.seconds)
        report[title] = summarise(speeds, "a3c")
        report["ratios"][title] = compare(speeds, pairs())
        show("steps per second", report[title])
        show("ratios", report["ratios"][title])
        if title == "two workers":
            report["normals of a roll-out"] = share_of_normals(speeds["noisynet-a3c"])
    if options.scaling:
        scaled = {f"{number} workers": ours("a3c", PONG, number) for number in options.scaling}
        speeds = take_turns(scaled, options.rounds, options.seconds)
        report["scaling"] = summarise(speeds, next(iter(scaled)))
        show("scaling of a3c on atari/pong", report["scaling"])
    missing = [PACKAGES[peer] for peer, python in pythons.items() if not python]
    write_results(report, RESULTS, options.out, missing)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no stopped process is left behind
    main()
