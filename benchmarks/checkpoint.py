"""The cost of a checkpoint when the replay of an Atari run is full: the sync, and the rest.

    python benchmarks/checkpoint.py    # 1M rows, 7.2 GB in a temporary folder

The replay is filled with random frames; then a run's checkpoint is written after each period of new
rows, as in training. It takes about 2 minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from turns import machine

from noisynet.config import build_config
from noisynet.loops import open_run
from noisynet.loops.off_policy_trainer import OffPolicyTrainer
from noisynet.replay import FrameStore
from noisynet.runs import RunFolder

RESULTS = Path(__file__).parent / "results" / "checkpoint.json"
EPISODE_STEPS = 2_000


def fill(store: FrameStore, rows: int, frames: np.ndarray[Any, Any]) -> None:
    """Append so many steps, one episode after the other."""
    for step in range(rows):
        frame = frames[step % len(frames)]
        if not store.running[0]:
            store.begin(0, frame)
        store.append(0, step % 6, 0.0, 0.99, frame, step % EPISODE_STEPS == EPISODE_STEPS - 1)


def timed_checkpoint(store: FrameStore, checkpoint: Callable[[], object]) -> dict[str, float]:
    """Seconds of one checkpoint: of syncing the replay's files, and of everything else."""
    flush, synced = store.flush, [0.0]

    def timed_flush() -> None:
        synced[0] = seconds_of(flush)

    with mock.patch.object(store, "flush", timed_flush):
        whole = seconds_of(checkpoint)
    return {"sync_seconds": round(synced[0], 3), "beyond_sync_seconds": round(whole - synced[0], 3)}


def seconds_of(work: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Fill, checkpoint a few times, print and write the results file."""
    parser = argparse.ArgumentParser(description="Checkpoints of a run with a full replay")
    parser.add_argument("--rows", type=int, default=1_000_000, help="capacity in rows")
    parser.add_argument("--checkpoints", type=int, default=5)
    parser.add_argument("--folder", help="parent of the files (default: temporary)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="write the results to this file")
    options = parser.parse_args()
    settings = [f"replay.capacity_steps={options.rows}"]
    config = build_config("noisynet-dqn", "atari/pong", settings=settings)
    frames = np.random.default_rng(0).integers(256, size=(64, 84, 84), dtype=np.uint8)
    period = config.checkpoint_period_frames // 4
    with tempfile.TemporaryDirectory(dir=options.folder) as parent:
        folder = RunFolder.create_or_open(
            parent + "/run", config.model_dump(mode="json"), must_match=[]
        )
        with open_run(config, folder) as run:
            assert isinstance(run.trainer, OffPolicyTrainer)
            store = run.trainer.store
            fill(store, options.rows, frames)
            first = timed_checkpoint(store, run.checkpoint)
            later = []
            for number in range(1, options.checkpoints + 1):
                fill(store, period, frames)
                run.trainer.loop.steps = number  # names the checkpoint
                later.append(timed_checkpoint(store, run.checkpoint))
            files = [path for path in folder.replay_path.iterdir() if path.is_file()]
            report = {
                "machine": machine(),
                "rows": options.rows,
                "rows_between_checkpoints": period,
                "replay_bytes": sum(path.stat().st_size for path in files),
                "first": first,
                "later": later,
                "beyond_sync_seconds": statistics.median(
                    row["beyond_sync_seconds"] for row in later
                ),
            }
    print(json.dumps(report, indent=2))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
