"""Whole training on atari/pong: agent steps per second, ours against stable-baselines3.

The workload is Nature DQN's: one environment, frame skip 4, batch 32, an update every 4 steps, a
replay of 20,000 steps that is already being learnt from. Each contestant is a process of its own,
and they take turns, a few hundred steps at a time, so that a busy machine slows all alike.

    python benchmarks/dqn.py --sb3 path/to/environment/bin/python

stable-baselines3 needs an environment of its own outside the repository: `pip install
torch==2.13.0`, then `pip install stable-baselines3 ale-py opencv-python-headless`. Only with it are
the results, which are cited, written over; `--out` writes whatever there is elsewhere.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "dqn.json"
WARM_UP_STEPS = 1_000  # learning starts after as many

SB3 = """
import sys, time
import ale_py, gymnasium, torch, stable_baselines3
from stable_baselines3 import DQN
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

gymnasium.register_envs(ale_py)
make = lambda: AtariWrapper(
    gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0),
    terminal_on_life_loss=False)
env = VecFrameStack(DummyVecEnv([make]), 4)
model = DQN("CnnPolicy", env, buffer_size=20_000, learning_starts={warm_up}, batch_size=32,
            train_freq=4, gradient_steps=1, target_update_interval=10_000, learning_rate=1e-4,
            exploration_fraction=0.001, exploration_final_eps=0.1, device="cpu", seed=0)

class TakeTurns(BaseCallback):
    def __init__(self):
        super().__init__()
        self.left, self.start = {warm_up} + 200, time.perf_counter()
    def _on_step(self):
        self.left -= 1
        if self.left == 0:
            print(time.perf_counter() - self.start, flush=True)
            order = sys.stdin.readline()
            if not order.strip():
                return False
            self.left, self.start = int(order), time.perf_counter()
        return True

model.learn(10**9, callback=TakeTurns())
"""

OURS = """
import sys, tempfile, time
from noisynet.config import build_config
from noisynet.loops import make_training
from noisynet.runs import RunFolder

settings = ["replay.capacity_steps=20000", "learning.starts_steps={warm_up}",
            "evaluation.period_frames=4000000000", "checkpoint_period_frames=40000"] + {settings}
if "{agent}" in ("dqn", "dueling"):
    settings.append("exploration.anneal_steps=1000")
config = build_config("{agent}", "atari/pong", frames=4 * 10**9, settings=settings)
with tempfile.TemporaryDirectory() as parent:
    stored = config.model_dump(mode="json")
    folder = RunFolder.create_or_open(parent + "/run", stored, must_match=[])
    with make_training(config, folder, "cpu", [], lambda: False) as training:
        left, start = {warm_up} + 200, time.perf_counter()
        for tick in training.loop.run():
            training.journal.note(tick)
            left -= 1
            if left == 0:
                print(time.perf_counter() - start, flush=True)
                order = sys.stdin.readline()
                if not order.strip():
                    break
                left, start = int(order), time.perf_counter()
"""


class Contestant:
    """A process that runs so many steps when told to, and says how long they took."""

    def __init__(self, python: str, code: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        self.read()  # the warm-up

    def read(self) -> float:
        """Wait for the time of the last turn."""
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"a contestant died with code {self.process.wait()}")
            try:
                return float(line)
            except ValueError:
                continue  # a library's greeting

    def run(self, steps: int) -> float:
        """Agent steps per second over `steps`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return steps / self.read()

    def stop(self) -> None:
        """Let the process end by itself, so that it clears up."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def contestants(sb3: str | None, update_period: int) -> dict[str, tuple[str, str]]:
    """What each process runs: its Python and its program."""
    settings = [f"learning.update_period_steps={update_period}"]
    found = {
        agent: (
            sys.executable,
            OURS.format(agent=agent, warm_up=WARM_UP_STEPS, settings=settings),
        )
        for agent in ("dqn", "noisynet-dqn", "dueling", "noisynet-dueling")
    }
    if sb3:
        code = SB3.format(warm_up=WARM_UP_STEPS)
        found["stable-baselines3 dqn"] = (
            sb3,
            code.replace("train_freq=4", f"train_freq={update_period}"),
        )
    return found


def summarise(speeds: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and ratios to our dqn in the same round with their quartiles."""
    summary = {}
    for name, values in speeds.items():
        ratios = [mine / ours for mine, ours in zip(values, speeds["dqn"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        summary[name] = {
            "steps_per_second": round(statistics.median(values), 1),
            "ratio_to_our_dqn": round(middle, 3),
            "ratio_quartiles": [round(low, 3), round(high, 3)],
        }
    return summary


def main() -> None:
    """Let the contestants take turns, print the table and, with the peer, write the results."""
    parser = argparse.ArgumentParser(description="Agent steps per second on atari/pong")
    parser.add_argument("--sb3", help="the Python of an environment with stable-baselines3")
    parser.add_argument("--out", type=Path, help="where the JSON goes, with or without --sb3")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200, help="steps of each turn")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "python": platform.python_version(),
        },
        "rounds": options.rounds,
        "steps": options.steps,
    }
    running = {
        name: Contestant(python, code)
        for name, (python, code) in contestants(options.sb3, 4).items()
    }
    speeds: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(options.rounds):
        for name, contestant in running.items():
            speeds[name].append(contestant.run(options.steps))
    for contestant in running.values():
        contestant.stop()
    report["update every 4 steps"] = summarise(speeds)
    for name, row in report["update every 4 steps"].items():
        low, high = row["ratio_quartiles"]
        print(
            f"{name:<24}{row['steps_per_second']:>8.1f} steps/s "
            f"{row['ratio_to_our_dqn']:>6.2f} × our dqn (quartiles {low:.2f} to {high:.2f})"
        )
    out = options.out or (RESULTS if options.sb3 else None)
    if out is None:
        print(
            f"not written: {RESULTS.name} is cited with stable-baselines3; give --sb3 PYTHON to "
            "measure it too, or --out PATH to keep these figures"
        )
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
