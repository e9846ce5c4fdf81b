"""How long runs take, from what runs like them have logged, or from the benchmarks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from noisynet.experiments.plan import RunSpec
from noisynet.experiments.progress import tail_rows
from noisynet.runs import RunError, RunFolder

_RESULTS: Final = Path(__file__).parents[2] / "benchmarks" / "results"
# For each family, files of the benchmarks with the table in each that has the agents' speeds.
_TABLES: Final[dict[str, dict[str, str]]] = {
    "atari": {"dqn.json": "update every 4 steps", "a3c.json": "two workers"},
    "minatar": {"minatar.json": "update every step", "paces.json": "minatar"},
    "gym": {"paces.json": "gym"},
    "deep_sea": {"paces.json": "deep_sea"},
}
_ATARI_FRAMES_PER_STEP: Final = 4


@dataclass(frozen=True)
class Pace:
    """How fast runs of a kind go.

    Attributes:
        steps_per_second: of training, updates and checkpoints included.
        frames_per_step: of the environment.
        evaluation_frames_per_second: None if no evaluation was timed; then as fast as training.
        source: where this was measured.
    """

    steps_per_second: float
    frames_per_step: float
    evaluation_frames_per_second: float | None
    source: str

    def seconds(self, spec: RunSpec, frames_done: int) -> float:
        """How long a run still takes that has come so far."""
        frames_per_second = self.steps_per_second * self.frames_per_step
        rest, protocol = max(0, spec.frames - frames_done), spec.config.evaluation
        evaluations = spec.frames // protocol.period_frames - frames_done // protocol.period_frames
        played = max(0, evaluations) * protocol.frames * _modes(spec.agent)
        speed = self.evaluation_frames_per_second or frames_per_second
        return rest / frames_per_second + played / speed


def measure(folder: RunFolder, config: dict[str, Any]) -> Pace | None:
    """The pace of one run, from the last rows that it has logged; None before the first."""
    rows = tail_rows(folder.timing_path)
    training = [row for row in rows if row.get("kind") == "train"]
    counted = [row for row in tail_rows(folder.metrics_path) if row.get("kind") == "train"]
    try:
        seconds = sum(row["seconds"] for row in training)
        steps = sum(row["seconds"] * row["steps_per_second"] for row in training)
        frames_per_step = counted[-1]["frames"] / counted[-1]["steps"]
        evaluations = [row["seconds"] for row in rows if row.get("kind") == "evaluation"]
        played = config["evaluation"]["frames"] * _modes(config["agent"])
        if not (seconds > 0 and steps > 0 and frames_per_step > 0):
            return None
        speed = played * len(evaluations) / sum(evaluations) if evaluations else None
    except (KeyError, IndexError, TypeError, ZeroDivisionError):
        return None  # rows of another version, or none yet
    return Pace(steps / seconds, frames_per_step, speed, "its own log")


def paces_below(out: Path) -> dict[tuple[str, str], Pace]:
    """The pace of each agent in each family of environments: the median of the runs below."""
    found: dict[tuple[str, str], list[Pace]] = {}
    for path in _run_folders(out):
        folder = RunFolder(path)
        with suppress(RunError, KeyError, AttributeError):  # of no use here; others complain of it
            config = folder.read_config()
            kind = (config["agent"], config["environment"].partition("/")[0])
            pace = measure(folder, config)
            if pace is not None:
                found.setdefault(kind, []).append(pace)
    return {kind: _middle(paces, out) for kind, paces in found.items()}


def benchmark_pace(spec: RunSpec, results: Path = _RESULTS) -> Pace | None:
    """The pace of the benchmarks, for the agents and the games that they have; else None.

    Args:
        spec: a run.
        results: the folder of the benchmarks' results, which stands beside the package's source.
    """
    frames_per_step = _ATARI_FRAMES_PER_STEP if spec.family == "atari" else 1
    for file, table in _TABLES.get(spec.family, {}).items():
        with suppress(OSError, ValueError, KeyError, TypeError):  # not there, or not of this agent
            measured = json.loads((results / file).read_text())[table]
            speed = float(measured[spec.agent]["steps_per_second"])
            return Pace(speed, frames_per_step, None, f"benchmarks/results/{file}")
    return None


def _middle(paces: list[Pace], out: Path) -> Pace:
    evaluated = [
        pace.evaluation_frames_per_second
        for pace in paces
        if pace.evaluation_frames_per_second is not None
    ]
    return Pace(
        median(pace.steps_per_second for pace in paces),
        median(pace.frames_per_step for pace in paces),
        median(evaluated) if evaluated else None,
        f"{len(paces)} run{'s' if paces[1:] else ''} below {out}",
    )


def _run_folders(out: Path) -> Iterable[Path]:
    """Every run folder below; what lies within one is not searched."""
    for here, folders, files in os.walk(out):
        if "config.json" in files:
            folders.clear()
            yield Path(here)


def _modes(agent: str) -> int:
    """A noisy agent is evaluated with its noise and again without."""
    return 2 if agent.startswith("noisynet") else 1
