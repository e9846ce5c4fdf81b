"""Replaces `noisynet train` by a run that learns nothing (not a test).

It writes its folder as a real run does: configuration, lock, status, metrics, an evaluation every
100 frames and a checkpoint every 50, from which it resumes. The nearer the learning rate is to
10⁻³, the higher are the scores. The JSON file STUB_ORDERS may have, by the run's name:
    config: as in config.json; otherwise from the arguments;
    hold_at: writes this frame to `<folder>.held` and waits until the file `open` exists;
    kill_at: kills itself at this frame, `kills` times;
    fail_at: ends with an error at this frame;
    refuse: ends with an error before anything is created.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from noisynet.config import build_config
from noisynet.experiments.run_process import exit_with_parent
from noisynet.runs import EXIT_LOCKED, MetricsLog, RunFolder, RunLocked

CHECKPOINT_FRAMES = 50
EVALUATION_FRAMES = 100


class StubRun:
    """A run in progress."""

    def __init__(self, folder: RunFolder, total: int, orders: dict[str, Any]) -> None:
        self.folder, self.total, self.orders = folder, total, orders
        self.stopped = False
        status = folder.read_status() or {}
        self.frames = int(status.get("frames", 0))
        self.metrics, self.timing = MetricsLog(folder.metrics_path), MetricsLog(folder.timing_path)
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopped = True

    def run(self) -> int:
        if self.frames < self.total:
            self.log("start")
        self.checkpoint("running")
        while self.frames < self.total:
            self.frames += 1
            self.obey()
            if self.frames % CHECKPOINT_FRAMES == 0:
                self.log("train")
                if self.frames % EVALUATION_FRAMES == 0:
                    self.evaluate()
                self.checkpoint("running")
            if self.stopped:
                self.checkpoint("interrupted")
                return 128 + signal.SIGTERM
        self.checkpoint("finished")
        return 0

    def log(self, kind: str) -> None:
        row = {"kind": kind, "frames": self.frames, "steps": self.frames, "updates": self.frames}
        self.metrics.append(row | {"pid": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"]})
        timed = {"seconds": 0.5, "steps_per_second": 20.0}
        self.timing.append({"kind": kind, "frames": self.frames, **timed})

    def evaluate(self) -> None:
        config = self.folder.read_config()
        distance = abs(math.log10(config["optimiser"]["learning_rate"]) + 3)
        score = self.frames / 100 * (10 - distance) + config["seed"]
        for noise, bonus in (("on", 0), ("off", 1000)):
            row = {"kind": "evaluation", "frames": self.frames, "noise": noise}
            self.metrics.append(row | {"score": score + bonus})

    def checkpoint(self, state: Any) -> None:
        self.folder.write_status(state, frames=self.frames, score=1.5)

    def obey(self) -> None:
        if self.frames == self.orders.get("hold_at"):
            Path(f"{self.folder.path}.held").write_text(str(self.frames))
            while not Path(self.orders["open"]).exists() and not self.stopped:
                time.sleep(0.01)
        if self.frames == self.orders.get("kill_at") and self.kills_left():
            os.kill(os.getpid(), signal.SIGKILL)
        if self.frames == self.orders.get("fail_at"):
            self.folder.write_status("failed", frames=self.frames, reason="not finite")
            leave("expected a finite loss, got nan\nlower the learning rate", 1)

    def kills_left(self) -> bool:
        counter = Path(f"{self.folder.path}.kills")
        before = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(before + 1))
        return before < int(self.orders.get("kills", 1))


def leave(message: str, code: int) -> NoReturn:
    for line in message.splitlines():
        sys.stderr.write(f"noisynet: {line}\n")
    sys.exit(code)


def main() -> None:
    """Run the stub."""
    exit_with_parent(int(sys.argv[1]))
    parser = argparse.ArgumentParser()
    for positional in ("train", "agent", "environment"):
        parser.add_argument(positional)
    for option in ("--frames", "--seed", "--out", "--name", "--device"):
        parser.add_argument(option, required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--preset")
    parser.add_argument("--no-tensorboard", action="store_true")
    given = parser.parse_args(sys.argv[2:])
    orders = json.loads(Path(os.environ["STUB_ORDERS"]).read_text()).get(given.name, {})
    if "refuse" in orders:
        leave(orders["refuse"], 2)
    stored = orders.get("config") or build_config(
        given.agent,
        given.environment,
        frames=int(given.frames),
        seed=int(given.seed),
        preset=given.preset,
        settings=given.set,
    ).model_dump(mode="json")
    identity = [key for key in stored if key != "frames"]
    path = Path(given.out) / given.name
    try:
        folder = RunFolder.create_or_open(path, stored, must_match=identity)
        with folder.lock():
            code = StubRun(folder, stored["frames"], orders).run()
    except RunLocked as error:
        leave(str(error), EXIT_LOCKED)
    sys.exit(code)


if __name__ == "__main__":
    main()
