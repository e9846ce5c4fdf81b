"""Convolutions and large layers by tiles, against torch's own on the same core.

    python benchmarks/tiles.py

A batch of 32 Atari observations goes through the convolutions of Nature DQN and back, and its
features through the layer that follows, in one thread: once by tiles, once as torch does it (oneDNN
and MKL on most processors). The two take turns. Speeds are also given as a share of what a loop of
multiplications and additions reaches that never leaves the registers.
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

from noisynet import NoisyLinear
from noisynet.compiled import compiled
from noisynet.loops.process import prepare_process
from noisynet.networks import Torso
from noisynet.networks.large import dense_by_tiles
from noisynet.networks.tiles import COLUMNS, ROWS, add_tile, six_from

RESULTS = Path(__file__).parent / "results" / "tiles.json"
BATCH: Final = 32
CONVOLUTIONS: Final = 20**2 * 32 * 256 + 9**2 * 64 * 512 + 7**2 * 64 * 576  # multiplications
FIRST: Final = 20**2 * 32 * 256
LAYER: Final = 3136 * 512

Pair = tuple[Callable[[], Any], Callable[[], Any], int]
"""By tiles, by torch, and how many multiplications that is."""


def through_the_convolutions() -> dict[str, Pair]:
    """Forward, and back to the weights."""
    torso = Torso("nature", (4, 84, 84), 1 / 255)
    seen = torch.randint(256, (BATCH, 4, 84, 84), dtype=torch.uint8)
    gradient, convolutions = torch.randn(BATCH, torso.features), torso.convolutions
    numbers, parameters = range(len(convolutions.layers)), list(torso.parameters())

    def forward() -> Any:
        way = convolutions.begin(seen, keep=True)
        convolutions.forward(way, convolutions.packed(), slice(None))
        return way

    def backward() -> None:
        found = [convolutions.backward(way, gradient, slice(None))]
        for number in numbers:
            convolutions.keep(found, number)

    def by_autograd() -> torch.Tensor:
        with torch.enable_grad():
            features: torch.Tensor = torso.layers(torso.prepared(seen))
        return features

    def back_by_autograd() -> None:
        torch.autograd.grad(features, parameters, gradient, retain_graph=True)

    way, features = forward(), by_autograd()
    return {
        "convolutions, forward": (forward, by_autograd, BATCH * CONVOLUTIONS),
        "convolutions, backward": (
            backward,
            back_by_autograd,
            BATCH * (2 * CONVOLUTIONS - FIRST),
        ),
    }


def through_the_layer() -> dict[str, Pair]:
    """From 3136 features to 512 hidden units, plain and noisy."""
    x, plain, noisy = torch.randn(BATCH, 3136), nn.Linear(3136, 512), NoisyLinear(3136, 512)
    return {
        "3136 → 512": (
            lambda: dense_by_tiles(x, plain, True, False),
            lambda: F.relu(plain(x)),
            BATCH * LAYER,
        ),
        "3136 → 512, noisy": (
            lambda: dense_by_tiles(x, noisy, True, False),
            lambda: F.relu(noisy(x)),
            BATCH * LAYER,
        ),
    }


@compiled
def _in_registers(out: Any, x: Any, w: Any, lines: Any) -> None:
    # All factors are in the innermost cache, and always the same.
    add_tile(out, six_from(0, COLUMNS), x, six_from(0, 1), lines, 64, w, 0, 0)


def fastest() -> tuple[Callable[[], Any], int]:
    """A tile that is as long as it gets, and how many multiplications it has."""
    out, lines = np.zeros((ROWS, COLUMNS), np.float32), np.zeros(100_000, np.int64)
    x, w = np.full(128, 1e-3, np.float32), np.full(COLUMNS, 1e-3, np.float32)
    return lambda: _in_registers(out, x, w, lines), ROWS * COLUMNS * 64 * len(lines)


def seconds_of(work: Callable[[], Any]) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@torch.no_grad()
def measure(rounds: int) -> dict[str, Any]:
    """Milliseconds, speeds and ratios."""
    prepare_process()
    torch.set_num_threads(1)
    pairs = through_the_convolutions() | through_the_layer()
    peak, multiplications = fastest()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in pairs}
    peaks = []
    for number in range(-2, rounds):  # the first ones warm up
        peaks.append(2 * multiplications / seconds_of(peak) / 1e9)
        for name, (ours, torchs, _) in pairs.items():
            pair = seconds_of(ours), seconds_of(torchs)
            if number >= 0:
                times[name].append(pair)
    report: dict[str, Any] = {"gflop_per_second_at_most": round(statistics.median(peaks), 1)}
    for name, values in times.items():
        low, middle, high = statistics.quantiles([theirs / mine for mine, theirs in values], n=4)
        mine, theirs = (statistics.median(column) for column in zip(*values, strict=True))
        gflop = 2 * pairs[name][2] / 1e9
        report[name] = {
            "milliseconds": round(1000 * mine, 2),
            "gflop_per_second": round(gflop / mine, 1),
            "torch_milliseconds": round(1000 * theirs, 2),
            "torch_gflop_per_second": round(gflop / theirs, 1),
            "times_as_fast": round(middle, 2),
            "quartiles": [round(low, 2), round(high, 2)],
        }
    return report


def main() -> None:
    """Measure, print the table and write the results."""
    parser = argparse.ArgumentParser(description="Tiles against torch, on one core")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    report = measure(options.rounds)
    print(f"at most {report['gflop_per_second_at_most']:.0f} GFLOP/s on one core")
    for name, row in report.items():
        if not isinstance(row, dict):
            continue
        low, high = row["quartiles"]
        print(
            f"  {name:<24}{row['milliseconds']:>7.2f} ms ({row['gflop_per_second']:.0f} GFLOP/s), "
            f"torch {row['torch_milliseconds']:.2f} ms ({row['torch_gflop_per_second']:.0f}): "
            f"{row['times_as_fast']:.2f} times as fast (quartiles {low:.2f} to {high:.2f})"
        )
    keep({"machine": machine(), "rounds": options.rounds, **report}, RESULTS, options.out, [])


if __name__ == "__main__":
    main()
