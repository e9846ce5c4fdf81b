"""How the cost of training grows: with environments, actions, batch and replay size.

    python benchmarks/growth.py

One thing is changed at a time; everything else is DQN's workload on atari/pong. Those that belong
together take turns, and each is a ratio to the first of them in the same round. (For workers, see
`a3c.py`.)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from train_step import SPEC, learner, made_up_batch, our_update
from turns import Entry, keep, machine, show, summarise, take_turns

from noisynet.agents import Learner
from noisynet.envs import EnvironmentSpec
from noisynet.loops.process import prepare_process
from noisynet.replay import FrameStore, UniformReplay

RESULTS = Path(__file__).parent / "results" / "growth.json"
BATCHES: Final = (32, 8, 16, 64, 128)
ACTIONS: Final = (6, 3, 18)
ENVIRONMENTS: Final = (1, 2, 4, 8)
ROWS: Final = (10_000, 100_000, 300_000)


def in_turns(works: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """How often a second each can be done, in every round."""
    speeds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(-1, rounds):  # the first warms up
        for name, work in works.items():
            started = time.perf_counter()
            work()
            if number >= 0:
                speeds[name].append(1 / (time.perf_counter() - started))
    return speeds


def updates_by_batch(shared: Learner | None) -> dict[str, Callable[[], None]]:
    """An update of DQN from batches of several sizes."""
    return {
        f"batch: {size}": our_update("dqn", SPEC, made_up_batch(size), shared) for size in BATCHES
    }


def updates_by_actions(shared: Learner | None) -> dict[str, Callable[[], None]]:
    """An update of NoisyNet-Dueling, whose heads grow with the actions, for several of them."""
    specs = {n: EnvironmentSpec("atari/pong", n, (84, 84), "uint8", 4, 4, 1 / 255) for n in ACTIONS}
    return {
        f"actions: {count}": our_update("noisynet-dueling", spec, made_up_batch(), shared)
        for count, spec in specs.items()
    }


def samples_by_rows() -> dict[str, Callable[[], None]]:
    """A hundred batches of 32 from full replays of several sizes, in memory."""
    rng, frame = np.random.default_rng(0), np.zeros((84, 84), np.uint8)

    def sampler(rows: int) -> Callable[[], None]:
        store = FrameStore(rows, (84, 84), num_actions=6)
        store.begin(0, frame)
        for _ in range(rows):
            store.append(0, 0, 0.0, 0.99, frame, False)
        replay = UniformReplay(store)

        def sample() -> None:
            for _ in range(100):
                replay.sample(32, rng)

        return sample

    return {f"replay: {rows:,}": sampler(rows) for rows in ROWS}


def training_by_environments(rounds: int) -> dict[str, list[float]]:
    """Agent steps a second of whole training, with an update for every 4 of them."""
    common = (sys.executable, "ours.py")
    entries = {
        f"environments: {count}": Entry(
            *common, ("dqn", "atari/pong", "4", "1000", f"num_envs={count}")
        )
        for count in ENVIRONMENTS
    }
    return take_turns(entries, rounds, steps=160)


def main() -> None:
    """Measure, print the tables and write the results."""
    parser = argparse.ArgumentParser(description="How the cost of training grows")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    prepare_process()
    shared = learner()  # once: it leaves each operation half of the threads
    training = training_by_environments(options.rounds)
    measured = {
        "whole training": ("steps", training),
        "updates of dqn": ("updates", in_turns(updates_by_batch(shared), options.rounds)),
        "updates of noisynet-dueling": (
            "updates",
            in_turns(updates_by_actions(shared), options.rounds),
        ),
        "samples of 32": ("hundreds", in_turns(samples_by_rows(), options.rounds)),
    }
    report: dict[str, Any] = {"machine": machine(), "rounds": options.rounds}
    for title, (unit, speeds) in measured.items():
        first = next(iter(speeds))
        report[title] = summarise(speeds, first, unit)
        show(title, report[title], first, unit)
    keep(report, RESULTS, options.out, [])


if __name__ == "__main__":
    main()
