"""What `make demo` runs: DQN and NoisyNet-DQN beside each other, in under five minutes.

Both agents learn Deep Sea 10 over five seeds and MinAtar Breakout for a short while, through the
same command that a user types, on all cores. A table compares their evaluation scores; a video of
the noisy agent's best game and a report with every table and figure are written to `demo/`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisynet.reports import write_report
from noisynet.runs import read_metrics

AGENTS = ("dqn", "noisynet-dqn")


@dataclass(frozen=True)
class Part:
    """One environment of the demo.

    Attributes:
        environment: its name.
        seeds: how many runs of each agent.
        frames: the budget of each run.
        settings: what `--set` is given.
        noisy_settings: more of it, for the agent that explores by noise.
        plain_settings: more of it, for the agent that explores by ε-greedy.
        solved: the score from which a run counts as solved, None where there is no such thing.
    """

    environment: str
    seeds: int
    frames: int
    settings: tuple[str, ...]
    noisy_settings: tuple[str, ...] = ()
    plain_settings: tuple[str, ...] = ()
    solved: float | None = None


PARTS = (
    Part(
        "deep_sea/10",
        seeds=5,
        frames=5_000,  # 500 episodes of 10 steps
        settings=(
            # One action is "right" everywhere, and punished: the trap for undirected exploration.
            "environment_options.randomise_actions=false",
            "evaluation.period_frames=500",
            "evaluation.frames=100",
        ),
        # A sample of the weights that is held for a whole episode is a policy of its own.
        noisy_settings=("exploration.redraw=episode",),
        solved=0.5,
    ),
    Part(
        "minatar/breakout",
        seeds=1,
        frames=25_000,
        settings=(
            "learning.starts_steps=2000",
            "evaluation.period_frames=5000",
            "evaluation.frames=2000",
        ),
        plain_settings=("exploration.anneal_steps=12500",),
    ),
)


def run_folder(out: Path, part: Part, agent: str, seed: int) -> Path:
    return out / part.environment / agent / f"seed-{seed}"


def settings(part: Part, agent: str) -> tuple[str, ...]:
    """What `--set` is given for an agent."""
    noisy = agent.startswith("noisynet")
    return part.settings + (part.noisy_settings if noisy else part.plain_settings)


def train(out: Path, part: Part, agent: str, seed: int) -> None:
    """One run in a process of its own, on one core."""
    command = [sys.executable, "-m", "noisynet", "train", agent, part.environment]
    command += ["--frames", str(part.frames), "--seed", str(seed), "--out", str(out)]
    for setting in settings(part, agent):
        command += ["--set", setting]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    print(f"  {part.environment:<18}{agent:<14}seed {seed}", flush=True)


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """The scores of a run: with noise where there is some."""
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == "evaluation"]
    noise = "on" if any(row["noise"] == "on" for row in rows) else "off"
    return [row for row in rows if row["noise"] == noise]


def compare(out: Path, parts: Sequence[Part]) -> str:
    """A table of final scores."""
    lines = [f"{'environment':<20}{'agent':<16}{'final score of each seed':<44}"]
    for part in parts:
        for agent in AGENTS:
            finals = [
                evaluations(run_folder(out, part, agent, seed))[-1]["score"]
                for seed in range(part.seeds)
            ]
            shown = "  ".join(f"{score:6.2f}" for score in finals)
            if part.solved is not None:
                solved = sum(score > part.solved for score in finals)
                shown += f"   solved in {solved} of {part.seeds}"
            lines.append(f"{part.environment:<20}{agent:<16}{shown}")
    return "\n".join(lines)


def main(out: Path = Path("demo"), parts: Sequence[Part] = PARTS) -> None:
    """Train, compare, render, report."""
    started = time.monotonic()
    jobs = [
        (part, agent, seed)
        for part in reversed(parts)  # the long ones first keep both cores busy to the end
        for agent in AGENTS
        for seed in range(part.seeds)
    ]
    print(f"{len(jobs)} runs on {os.cpu_count()} cores (run it again and finished ones are kept):")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: train(out, *job), jobs))
    video = out / "noisynet-dqn.mp4"
    best = run_folder(out, parts[-1], "noisynet-dqn", 0)
    command = [sys.executable, "-m", "noisynet", "watch", str(best), "-o", str(video)]
    subprocess.run(command, check=True, capture_output=True)
    print(f"\n{compare(out, parts)}\n")
    report = write_report([out], out / "report")
    print(f"video   {video}\nreport  {report.page}")
    print(f"{time.monotonic() - started:.0f} seconds. Next, the paper's own agent on Atari:")
    print("  .venv/bin/noisynet train noisynet-dqn atari/pong --preset pong-fast")


if __name__ == "__main__":
    main()
