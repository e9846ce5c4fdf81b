"""What `make demo` runs: how deep DQN and NoisyNet-DQN explore, a video, a report.

Deep Sea of size N has one treasure, N steps to the right, and every step to the right costs a
little. Each agent learns four sizes over four seeds, with the same budget and the settings of the
preset `classic`; then NoisyNet-DQN learns CartPole, for the video. Results are in `demo/`.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple

SIZES = (5, 10, 15, 20)
SEEDS = 4
FRAMES = 5_000
SOLVED = 0.5  # the treasure is worth 1, all steps to it cost 0.01


class Contender(NamedTuple):
    """An agent of the comparison: its title, its name and its settings."""

    title: str
    agent: str
    settings: tuple[str, ...] = ()


CONTENDERS = (
    Contender("DQN", "dqn"),
    Contender("NoisyNet-DQN", "noisynet-dqn"),
    Contender(
        "NoisyNet-DQN, a sample per episode", "noisynet-dqn", ("exploration.redraw=episode",)
    ),
)
SETTINGS = (
    # One action is "right" in every cell. With a random map for each cell, the default, neither
    # agent explores deeper than the other: docs/reproduction/value-agents.md.
    "environment_options.randomise_actions=false",
    "evaluation.period_frames=500",
    "evaluation.frames=100",
    f"replay.capacity_steps={FRAMES}",  # as many as there are, so that no more is written to disk
)


class Job(NamedTuple):
    """One run: its folder and the arguments of `noisynet`."""

    folder: Path
    arguments: list[str]


def deep_sea_run(out: Path, contender: Contender, size: int, seed: int) -> Path:
    name = contender.title.lower().replace(", ", "+").replace(" ", "-")
    return out / "deep_sea" / str(size) / name / f"seed-{seed}"


def video_run(out: Path) -> Path:
    return out / "gym" / "CartPole-v1" / "noisynet-dqn" / "seed-0"


def make_jobs(
    out: Path, sizes: Sequence[int] = SIZES, seeds: int = SEEDS, frames: int = FRAMES
) -> list[Job]:
    """Every run of the demo, the longest first."""
    jobs = [Job(video_run(out), ["train", "noisynet-dqn", "gym/CartPole-v1"])]
    for size in sorted(sizes, reverse=True):
        for contender in CONTENDERS:
            for seed in range(seeds):
                arguments = ["train", contender.agent, f"deep_sea/{size}", "--frames", str(frames)]
                for setting in (*SETTINGS, *contender.settings):
                    arguments += ["--set", setting]
                folder = deep_sea_run(out, contender, size, seed)
                jobs.append(Job(folder, [*arguments, "--seed", str(seed)]))
    return jobs


def train(jobs: Sequence[Job]) -> None:
    """Give each job to the command that a user types; one process for all saves its start."""
    from noisynet.cli import app

    for folder, arguments in jobs:
        said = io.StringIO()
        where = ["--out", str(folder.parent), "--name", folder.name, "--no-tensorboard"]
        with redirect_stderr(said):
            code = app([*arguments, *where], standalone_mode=False)
        if code:
            raise SystemExit(
                f"noisynet {' '.join(arguments)} ended with {code}:\n{said.getvalue()}"
            )
        print(f"  {folder}", flush=True)


def train_on_all_cores(out: Path, sizes: Sequence[int], seeds: int, frames: int) -> None:
    """Run this script once for each core; it trains every n-th run."""
    cores = os.cpu_count() or 1
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    numbers = [",".join(map(str, sizes)), str(seeds), str(frames)]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(out), f"{core}/{cores}", *numbers], env=environment
        )
        for core in range(cores)
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit("a run failed; see above")


def solved_seeds(out: Path, contender: Contender, size: int, seeds: int) -> int:
    """The number of runs whose last evaluation finds the treasure."""
    from noisynet.runs import read_metrics

    count = 0
    for seed in range(seeds):
        rows = read_metrics(deep_sea_run(out, contender, size, seed) / "metrics.jsonl")
        scores = [row["score"] for row in rows if row["kind"] == "evaluation"]
        # The last two rows of a noisy agent are with noise and with mean weights.
        count += scores[-2 if contender.agent.startswith("noisynet") else -1] > SOLVED
    return count


Counts = dict[str, list[int]]


def deepest(solved: Sequence[int], sizes: Sequence[int], seeds: int) -> str:
    """The largest size that most seeds solve."""
    found = [size for size, count in zip(sizes, solved, strict=True) if 2 * count > seeds]
    return f"size {max(found)}" if found else "no size"


def explain(counts: Counts, sizes: Sequence[int], seeds: int, frames: int) -> str:
    """What the table shows, and what it does not."""
    reached = [deepest(solved, sizes, seeds) for solved in counts.values()]
    return (
        f"A run is solved if its last evaluation, after {frames:,} frames, finds the treasure.\n"
        "Most seeds solve\n"
        f"  {reached[0]} with DQN's ε-greedy exploration,\n"
        f"  {reached[1]} with noise that is resampled at every action (Algorithm 1 of the paper),\n"
        f"  {reached[2]} with a noise sample that is held for an episode: one consistent policy.\n"
        "One action is right in every cell here. With a random map for each cell, neither agent\n"
        "explores deeper than the other: docs/reproduction/value-agents.md."
    )


def table(counts: Counts, sizes: Sequence[int], seeds: int) -> str:
    """Solved runs by agent and size."""
    lines = [f"{'solved runs':<36}" + "".join(f"{f'size {size}':>9}" for size in sizes)]
    for title, solved in counts.items():
        lines.append(f"{title:<36}" + "".join(f"{f'{count} of {seeds}':>9}" for count in solved))
    return "\n".join(lines)


def draw(counts: Counts, sizes: Sequence[int], seeds: int, path: Path) -> None:
    """The fraction of solved runs over the size of the sea."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    styles = (("#0072B2", "o-"), ("#D55E00", "s:"), ("#D55E00", "s-"))
    for (title, solved), (colour, style) in zip(counts.items(), styles, strict=True):
        shares = [100 * count / seeds for count in solved]
        axes.plot(sizes, shares, style, color=colour, label=title, clip_on=False)
    axes.set_xlabel("size of Deep Sea (steps to the treasure)")
    axes.set_ylabel(f"solved runs of {seeds} (%)")
    axes.set_xticks(sizes)
    axes.set_ylim(0, 100)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=1, frameon=False)
    figure.savefig(path, dpi=150)


def main(
    out: Path = Path("demo"),
    sizes: Sequence[int] = SIZES,
    seeds: int = SEEDS,
    frames: int = FRAMES,
) -> None:
    """Train, compare, render, report."""
    started = time.monotonic()
    jobs = make_jobs(out, sizes, seeds, frames)
    print(f"{len(jobs)} runs on {os.cpu_count()} cores (run it again and finished ones are kept):")
    train_on_all_cores(out, sizes, seeds, frames)
    counts = {
        contender.title: [solved_seeds(out, contender, size, seeds) for size in sizes]
        for contender in CONTENDERS
    }
    print(f"\n{table(counts, sizes, seeds)}\n")
    print(f"{explain(counts, sizes, seeds, frames)}\n")
    figure, video = out / "deep-sea.png", out / "cartpole.mp4"
    draw(counts, sizes, seeds, figure)
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame asks for no screen
    from noisynet.reports import write_report
    from noisynet.watch import render_episode

    made = render_episode(video_run(out), video)
    report = write_report([out], out / "report")
    print(f"figure  {figure}: the table above, over the size")
    print(
        f"video   {video}: the best evaluation episode of NoisyNet-DQN on CartPole (return "
        f"{made.trace.score:.0f} of 500), and how far its values depend on the noise"
    )
    print(f"report  {report.page}: learning curves, tables and settings of all {report.runs} runs")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    print(f"\n{time.monotonic() - started:.0f} seconds, {size:.0f} MB. Next, on Atari:")
    print("  .venv/bin/noisynet train noisynet-dqn atari/pong --preset pong-fast")


if __name__ == "__main__":
    if sys.argv[2:]:
        folder, share, sizes, *counts = sys.argv[1:]
        core, cores = map(int, share.split("/"))
        chosen = [int(size) for size in sizes.split(",")]
        train(make_jobs(Path(folder), chosen, *map(int, counts))[core::cores])
    else:
        main(Path(sys.argv[1]) if sys.argv[1:] else Path("demo"))
