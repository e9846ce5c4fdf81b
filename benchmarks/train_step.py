"""One update of DQN on Atari frames, against what the processor can do at best.

    python benchmarks/train_step.py

An update is a batch of 32: two passes through the network, one back, and the optimiser. Its
floating-point operations, divided by the speed of a large matrix product that is measured in the
same rounds, bound its time from below; what is reported is how many times that bound is taken. The
same update written down plainly in PyTorch stands beside it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from turns import keep, machine

from noisynet.agents import Learner, ValueAgent
from noisynet.config import Config, build_config
from noisynet.envs import EnvironmentSpec
from noisynet.loops.process import prepare_process
from noisynet.replay import TransitionBatch

RESULTS = Path(__file__).parent / "results" / "train_step.json"
AGENTS: Final = ("dqn", "noisynet-dqn", "dueling", "noisynet-dueling")
SPEC: Final = EnvironmentSpec("atari/pong", 6, (84, 84), "uint8", 4, 4, 1 / 255)
BATCH: Final = 32
SIDE: Final = 1536  # of the matrices


def made_up_batch(size: int = BATCH) -> TransitionBatch:
    """Frames of noise, and actions that every game has."""
    rng = np.random.default_rng(0)
    shape = (size, 4, 84, 84)
    return TransitionBatch(
        x=rng.integers(256, size=shape, dtype=np.uint8),
        action=rng.integers(3, size=size),
        reward=rng.standard_normal(size, dtype=np.float32),
        discount=np.full(size, 0.99, np.float32),
        y=rng.integers(256, size=shape, dtype=np.uint8),
        weight=np.ones(size, np.float32),
        index=np.arange(size),
    )


def plain_network() -> nn.Sequential:
    """Nature DQN's."""
    return nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)),
    )


def multiplications() -> int:
    """Of one pass of one observation through Nature DQN, each with an addition."""
    convolutions = 20**2 * 32 * 4 * 8**2 + 9**2 * 64 * 32 * 4**2 + 7**2 * 64 * 64 * 3**2
    return convolutions + 3136 * 512 + 512 * 6


def operations() -> int:
    """Floating-point operations of an update: two passes, and back to weights and inputs.

    Nobody needs the gradient of the frames.
    """
    first = 20**2 * 32 * 4 * 8**2
    return 2 * BATCH * (4 * multiplications() - first)


def plain_update(batch: TransitionBatch) -> Callable[[], None]:
    """The update as a plain program has it, with torch's own centred RMSProp."""
    online, target = plain_network(), plain_network()
    optimiser = torch.optim.RMSprop(
        online.parameters(), lr=2.5e-4, alpha=0.95, eps=0.01, centered=True
    )
    action = torch.from_numpy(batch.action)[:, None]
    reward, discount = torch.from_numpy(batch.reward), torch.from_numpy(batch.discount)

    def update() -> None:
        x, y = (torch.from_numpy(frames).float() / 255 for frames in (batch.x, batch.y))
        with torch.no_grad():
            wanted = reward + discount * target(y).amax(dim=1)
        loss = F.smooth_l1_loss(online(x).gather(1, action)[:, 0], wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return update


def learner() -> Learner | None:
    """The second thread that an agent has in training; each operation has half of the threads."""
    threads = torch.get_num_threads()
    return Learner(threads // 2) if threads > 1 else None


def our_update(
    name: str, spec: EnvironmentSpec, batch: TransitionBatch, shared: Learner | None
) -> Callable[[], None]:
    """An agent's, as in training."""
    config = build_config(name, spec.name)
    assert isinstance(config, Config)
    agent = ValueAgent(config, spec, "cpu", shared)

    def update() -> None:
        agent.learn(batch)

    return update


def matrix_product() -> Callable[[], None]:
    """Large enough to be as fast as it gets."""
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)

    def multiply() -> None:
        torch.mm(left, right, out=out)

    return multiply


def time_of(work: Callable[[], None], repeats: int) -> float:
    """Seconds of one of several, all at once."""
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - started) / repeats


def measure(rounds: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each contestant in every round."""
    prepare_process()
    threads, batch = torch.get_num_threads(), made_up_batch()
    shared = learner()
    ours = {name: our_update(name, SPEC, batch, shared) for name in AGENTS}
    others = {"matrix product": matrix_product(), "plain PyTorch": plain_update(batch)}
    times: dict[str, list[float]] = {name: [] for name in (*others, *ours)}
    for round_number in range(-1, rounds):  # the first warms up
        for name, work in (others | ours).items():
            torch.set_num_threads(threads if name in others else max(1, threads // 2))
            seconds = time_of(work, repeats)
            if round_number >= 0:
                times[name].append(seconds)
    return times


def summarise(times: dict[str, list[float]]) -> dict[str, Any]:
    """Milliseconds, and how many times the bound of DQN's operations that is."""
    bounds = [operations() * seconds / (2 * SIDE**3) for seconds in times["matrix product"]]
    summary: dict[str, Any] = {}
    for name, values in times.items():
        if name == "matrix product":
            continue
        ratios = [mine / bound for mine, bound in zip(values, bounds, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        summary[name] = {
            "milliseconds": round(1000 * statistics.median(values), 2),
            "times_the_bound": round(middle, 2),
            "quartiles": [round(low, 2), round(high, 2)],
        }
    return summary


def main() -> None:
    """Measure, print the table and write the results."""
    parser = argparse.ArgumentParser(description="One update of DQN against the sgemm bound")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=8, help="updates of each turn")
    options = parser.parse_args()
    times = measure(options.rounds, options.repeats)
    speed = 2 * SIDE**3 / statistics.median(times["matrix product"]) / 1e9
    report = {
        "machine": machine(),
        "rounds": options.rounds,
        "gflop_of_an_update": round(operations() / 1e9, 3),
        "gflop_per_second_of_a_matrix_product": round(speed, 1),
        "updates": summarise(times),
    }
    print(
        f"{operations() / 1e9:.2f} GFLOP at {speed:.0f} GFLOP/s: at least "
        f"{operations() / speed / 1e6:.1f} ms (of dqn; the dueling agents have more to do)"
    )
    for name, row in report["updates"].items():
        low, high = row["quartiles"]
        print(
            f"  {name:<20}{row['milliseconds']:>8.1f} ms {row['times_the_bound']:>6.2f} × the bound"
            f" (quartiles {low:.2f} to {high:.2f})"
        )
    keep(report, RESULTS, options.out, [])


if __name__ == "__main__":
    main()
