"""How long a replay of Atari frames takes to sample and to append, and how much it stores.

    python benchmarks/replay.py                     # 1M rows, 7.1 GB in a temporary folder
    python benchmarks/replay.py --rows 100000 --folder /data/tmp

It takes about 3 minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from turns import machine

from noisynet.replay import FrameStore, PrioritisedReplay, UniformReplay

RESULTS = Path(__file__).parent / "results" / "replay.json"
BATCH_SIZE = 32
LIMIT_BYTES = 7.2e9  # of file, for 1M agent steps of Atari
ROUNDING_BYTES = 64 * 1024  # partly used blocks, and layout.json
EPISODE_STEPS = 2_000


def main() -> None:
    """Fill a store, time it, print a table and write `benchmarks/results/replay.json`."""
    parser = argparse.ArgumentParser(description="Benchmark of noisynet.replay")
    parser.add_argument("--rows", type=int, default=1_000_000, help="capacity in rows")
    parser.add_argument("--folder", type=Path, help="parent of the files (default: temporary)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="write the results to this file")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="noisynet-replay-", dir=arguments.folder))
    try:
        measured = measure(folder, arguments.rows)
    finally:
        shutil.rmtree(folder)
    report = {"machine": machine(), "rows": arguments.rows, "batch_size": BATCH_SIZE} | measured
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    show(report)


def measure(folder: Path, rows: int) -> dict[str, Any]:
    """All figures of a store with `rows` rows of capacity under `folder`."""
    rng = np.random.default_rng(0)
    frames = rng.integers(256, size=(64, 84, 84), dtype=np.uint8)
    append_us = np.full(
        2 * rows, np.nan
    )  # written to now, so that it is not counted as the store's
    resident = resident_bytes()
    store = atari_store(folder, rows)
    for t in range(store.ring_rows):
        append_us[t] = time_append(store, frames, t)
    flush_seconds = seconds(store.flush)
    append_full_us = [time_append(store, frames, t) for t in range(2_000)]  # rows overwritten
    uniform, prioritised = UniformReplay(store), PrioritisedReplay(store)
    index = uniform.sample(BATCH_SIZE, rng).index
    timings = {
        "append, filling": spread(append_us[: store.ring_rows]),
        "append, full ring": spread(append_full_us),
        # The first batches touch pages of the mapping for the first time.
        "uniform, first batches": timed(lambda: uniform.sample(BATCH_SIZE, rng), 200, warm_up=0),
        "uniform": timed(lambda: uniform.sample(BATCH_SIZE, rng), 3_000),
        "prioritised": timed(lambda: prioritised.sample(BATCH_SIZE, rng, beta=0.4), 2_000),
        "update_priorities": timed(
            lambda: prioritised.update_priorities(index, rng.normal(size=BATCH_SIZE)), 2_000
        ),
        "count": timed(store.count, 50),
        "state": timed(store.state, 50),
    }
    files = list(folder.iterdir())
    return {
        "timings": timings,
        "flush_seconds": flush_seconds,  # after filling the ring without any flush
        "digest_seconds": seconds(store.digest),
        "file_bytes": sum(path.stat().st_size for path in files),
        "disk_bytes": sum(path.stat().st_blocks * 512 for path in files),
        "file_bytes_limit": int(LIMIT_BYTES * rows / 1_000_000),
        # Mapped pages of the files count as shared: they are page cache, given back when needed.
        "private_memory_bytes": resident_bytes() - resident,
    }


def atari_store(folder: Path, rows: int) -> FrameStore:
    """A store with as much slack as the limit on the size of its files allows."""
    small = FrameStore(100, (84, 84), num_actions=18)
    limit = LIMIT_BYTES * rows / 1_000_000 - ROUNDING_BYTES
    slack = int(limit // small.layout.nbytes) - rows - 4 - 1
    return FrameStore(rows, (84, 84), num_actions=18, slack_rows=slack, folder=folder)


def time_append(store: FrameStore, frames: npt.NDArray[np.uint8], step: int) -> float:
    """Microseconds of one append, and of `begin` after the end of an episode."""
    frame, over = frames[step % len(frames)], step % EPISODE_STEPS == EPISODE_STEPS - 1
    began = time.perf_counter()
    if not store.running[0]:
        store.begin(0, frame)
    store.append(0, step % 18, 1.0, 0.99, frame, over)
    return (time.perf_counter() - began) * 1e6


def timed(work: Callable[[], object], repeats: int, warm_up: int = 2_000) -> dict[str, float]:
    """Spread of the microseconds that `work` takes."""
    for _ in range(min(warm_up, repeats)):
        work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e6)
    return spread(times)


def seconds(work: Callable[[], object]) -> float:
    """Seconds that `work` takes, once."""
    began = time.perf_counter()
    work()
    return round(time.perf_counter() - began, 3)


def spread(times_us: list[float] | npt.NDArray[np.float64]) -> dict[str, float]:
    """Median, 5th and 95th percentiles and mean, in microseconds."""
    low, median, high = np.percentile(times_us, [5, 50, 95])
    values = {"median_us": median, "p5_us": low, "p95_us": high, "mean_us": np.mean(times_us)}
    return {name: round(float(value), 2) for name, value in values.items()}


def resident_bytes() -> int:
    """Private memory of this process on Linux; 0 elsewhere."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def show(report: dict[str, Any]) -> None:
    """Print the report as a table."""
    print(f"{report['rows']:,} rows, batches of {report['batch_size']}, {report['machine']['cpu']}")
    print(f"{'':24}{'median µs':>12}{'5 %':>12}{'95 %':>12}{'mean':>12}")
    for name, times in report["timings"].items():
        values = "".join(f"{value:12,.2f}" for value in times.values())
        print(f"{name:24}{values}")
    for name in ("file_bytes", "disk_bytes", "file_bytes_limit", "private_memory_bytes"):
        print(f"{name:24}{report[name]:16,}")
    for name in ("flush_seconds", "digest_seconds"):
        print(f"{name:24}{report[name]:16,.2f}")


if __name__ == "__main__":
    main()
