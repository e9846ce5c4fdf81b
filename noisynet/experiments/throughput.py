"""Throughput of training, and the time that runs will take: from logs, or as shipped.

`throughput.json` is written by benchmarks/throughput.py.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Final

from noisynet.config import ActorCriticConfig, Config, ConfigError, load_config
from noisynet.envs import parse_environment
from noisynet.experiments.plan import RunSpec
from noisynet.experiments.progress import read_last_rows
from noisynet.runs import RunError, RunFolder
from noisynet.runs.store import find_run_folders

FILE: Final = "throughput.json"
"""Throughputs measured on a machine with two cores, by environment family and agent."""


@dataclass(frozen=True)
class Throughput:
    """How fast an agent trains in a family of environments, updates and checkpoints included.

    Without a timed evaluation, evaluations are taken to be as fast as training.
    """

    steps_per_second: float
    frames_per_step: float
    evaluation_frames_per_second: float | None
    source: str

    def seconds_left(self, spec: RunSpec, frames_done: int) -> float:
        """The remaining time of a run after `frames_done`, evaluations included."""
        frames_per_second = self.steps_per_second * self.frames_per_step
        frames_left, protocol = max(0, spec.frames - frames_done), spec.config.evaluation
        evaluations = spec.frames // protocol.period_frames - frames_done // protocol.period_frames
        evaluation_frames = max(0, evaluations) * _frames_per_evaluation(spec.config)
        evaluation_speed = self.evaluation_frames_per_second or frames_per_second
        return frames_left / frames_per_second + evaluation_frames / evaluation_speed


def measure_throughput(folder: RunFolder, config: Config | ActorCriticConfig) -> Throughput | None:
    """The throughput of one run, from the last rows of its logs; None before it learns.

    Only rows after the first update count: without updates an agent is several times as fast.
    """
    rows = read_last_rows(folder.timing_path)
    try:
        counts = [row for row in read_last_rows(folder.metrics_path) if row["kind"] == "train"]
        begun = min(row["frames"] for row in counts if row["updates"] > 0)
        training = [row for row in rows if row["kind"] == "train" and row["frames"] > begun]
        seconds = sum(row["seconds"] for row in training)
        steps = sum(row["seconds"] * row["steps_per_second"] for row in training)
        frames_per_step = counts[-1]["frames"] / counts[-1]["steps"]
        evaluations = [row["seconds"] for row in rows if row["kind"] == "evaluation"]
        evaluation_frames = _frames_per_evaluation(config) * len(evaluations)
        speed = evaluation_frames / sum(evaluations) if evaluations else None
        found = Throughput(steps / seconds, frames_per_step, speed, "its own log")
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        return None  # rows of another version, or none yet
    return found if steps > 0 else None


def measure_throughputs(out: Path) -> dict[tuple[str, str], Throughput]:
    """The median throughput of the runs below `out`, by agent and environment family."""
    found: dict[tuple[str, str], list[Throughput]] = {}
    for path in find_run_folders(out):
        folder = RunFolder(path)
        with suppress(RunError, ConfigError):  # reported where the run is used
            config = load_config(folder.read_config())
            measured = measure_throughput(folder, config)
            if measured is not None:
                family, _ = parse_environment(config.environment)
                found.setdefault((config.agent, family), []).append(measured)
    return {key: _median(throughputs, out) for key, throughputs in found.items()}


def shipped_throughput(agent: str, family: str) -> Throughput | None:
    """The throughput measured by noisynet's developers; None if they have not measured it."""
    text = resources.files(__package__).joinpath(FILE).read_text("utf-8")
    measured = json.loads(text)["families"].get(family, {}).get(agent)
    if measured is None:
        return None
    speeds = (measured["steps_per_second"], measured["frames_per_step"])
    return Throughput(*speeds, None, "shipped with noisynet")


def _median(throughputs: list[Throughput], out: Path) -> Throughput:
    evaluated = [
        speed for one in throughputs if (speed := one.evaluation_frames_per_second) is not None
    ]
    return Throughput(
        median(one.steps_per_second for one in throughputs),
        median(one.frames_per_step for one in throughputs),
        median(evaluated) if evaluated else None,
        f"{len(throughputs)} run{'s' if throughputs[1:] else ''} below {out}",
    )


def _frames_per_evaluation(config: Config | ActorCriticConfig) -> int:
    """Noisy agents are evaluated twice: with noise and with mean weights."""
    modes = 2 if config.exploration.kind == "noisy-weights" else 1
    return modes * config.evaluation.frames
