"""How the cost of training grows: with environments, batch, hidden units, actions, threads, replay.

    python benchmarks/growth.py

One quantity is changed at a time; everything else is the agent's preset. The values of a quantity
take turns, and each is a ratio to the first of them in the same round. For workers, see `a3c.py`.
It takes about 10 minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from train_step import update_entry
from training import Workload, our_entry
from turns import Entry, machine, show, summarise, take_turns, write_results

from noisynet.replay import FrameStore, UniformReplay

RESULTS = Path(__file__).parent / "results" / "growth.json"
ROWS: Final = (10_000, 100_000, 300_000)


@dataclass(frozen=True)
class Growth:
    """Updates of an agent while one quantity grows.

    Attributes:
        agent: the agent.
        environment: whose observations it learns from.
        quantity: what changes.
        values: its values; the others are compared with the first.
        setting: the argument for a value, "{}" in place of it.
        common: further settings.
        updates: updates of each turn.
    """

    agent: str
    environment: str
    quantity: str
    values: Sequence[int]
    setting: str
    common: tuple[str, ...] = ()
    updates: int = 8

    @property
    def title(self) -> str:
        """The title of its table."""
        settings = "".join(f", {setting}" for setting in self.common)
        return f"{self.agent} on {self.environment}{settings}: updates by {self.quantity}"

    def entries(self) -> dict[str, Entry]:
        """A contestant for each value."""
        return {
            f"{self.quantity}: {value:,}": update_entry(
                self.agent, self.environment, *self.setting.format(value).split(), *self.common
            )
            for value in self.values
        }


BATCH, HIDDEN = "learning.batch_size={}", "network.hidden=[{}]"
GROWTHS: Final = (
    Growth("dqn", "atari/pong", "batch size", (32, 8, 16, 64, 128), BATCH),
    Growth("dqn", "atari/pong", "hidden units", (512, 128, 256, 1024, 2048), HIDDEN),
    Growth("dqn", "atari/pong", "threads", (1, 2, 4), "threads={}"),
    Growth("noisynet-dueling", "atari/pong", "actions", (6, 3, 18), "--actions {}"),
    # Small networks. From 512 hidden units the first layer is no longer small (agents/fused.py).
    *(
        Growth(agent, "minatar/breakout", quantity, values, setting, updates=200)
        for agent in ("dqn", "noisynet-dqn")
        for quantity, values, setting in (
            ("batch size", (32, 8, 16, 64, 128), BATCH),
            ("hidden units", (128, 32, 64, 256, 512), HIDDEN),
        )
    ),
    Growth(
        *("dqn", "minatar/breakout", "threads", (1, 2, 4), "threads={}", ("compute=torch",)),
        updates=200,
    ),
)


def training_by_environments(rounds: int, steps: int) -> dict[str, list[float]]:
    """Agent steps per second of whole training, with an update for every 4 of them."""
    workload = Workload("atari/pong", 4, 1000)
    entries = {
        f"environments: {count}": our_entry(workload, "dqn", f"num_envs={count}")
        for count in (1, 2, 4, 8)
    }
    return take_turns(entries, rounds, steps)


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


def time_samples(works: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Batches per second in every round, in turns within this process."""
    speeds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(-1, rounds):  # the first warms up
        for name, work in works.items():
            started = time.perf_counter()
            work()
            if number >= 0:
                speeds[name].append(100 / (time.perf_counter() - started))
    return speeds


def main() -> None:
    """Measure, print the tables and write the results."""
    parser = argparse.ArgumentParser(description="How the cost of training grows")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each contestant")
    parser.add_argument("--steps", type=int, default=160, help="steps of a turn of whole training")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "rounds": options.rounds, "tables": {}}

    def add(title: str, unit: str, speeds: Mapping[str, Sequence[float]]) -> None:
        summary = summarise(speeds, next(iter(speeds)), unit)
        report["tables"][title] = summary
        show(title, summary, unit)

    title = "dqn on atari/pong: whole training by environments"
    add(title, "steps", training_by_environments(options.rounds, options.steps))
    for growth in GROWTHS:
        speeds = take_turns(growth.entries(), options.rounds, growth.updates)
        add(growth.title, "updates", speeds)
    title = "atari/pong: batches of 32 by rows of the replay"
    add(title, "batches", time_samples(samples_by_rows(), options.rounds))
    write_results(report, RESULTS, options.out)


if __name__ == "__main__":
    main()
