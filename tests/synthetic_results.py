"""Synthetic data of the studies in `results/`: a run for each run of their plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisynet.experiments import RunSpec, build_plan
from noisynet.reports.agents import STYLES

if TYPE_CHECKING:
    from studies import RunData

RESULTS = Path(__file__).parent.parent / "results"
LAYERS = {
    "noisynet-dqn": ("head.q.0", "head.q.2"),
    "noisynet-c51": ("head.logits.0", "head.logits.2"),
    "noisynet-a3c": ("hidden.0", "policy", "value"),
    "noisynet-a3c-factorised": ("hidden.0", "policy", "value"),
}
STREAMS = tuple(f"head.{stream}.{i}" for stream in ("value", "advantage") for i in (0, 2))


def synthetic_runs(study: str, **changes: Any) -> list[RunData]:
    """A run for each run of a plan, in the order in which `collect.py` writes them."""
    specs = build_plan(str(RESULTS / study / "plan.toml"), out=Path("runs")).specs
    environments = list(dict.fromkeys(spec.environment for spec in specs))
    labels = list(dict.fromkeys(spec.label for spec in specs))
    ordered = sorted(
        specs, key=lambda s: (environments.index(s.environment), labels.index(s.label), s.seed)
    )
    return [_run(spec, labels.index(spec.label), **changes) for spec in ordered]


def write_study(results: Path, study: str, runs: list[RunData]) -> None:
    """Write the files of a study as `collect.py` does."""
    from studies import plan_digest

    folder = results / study
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.jsonl").write_text("".join(f"{run.line()}\n" for run in runs))
    provenance = {
        "study": study,
        "plan": plan_digest(RESULTS / study / "plan.toml"),
        "planned": len(runs),
        "finished": sum(run.finished for run in runs),
        "unfinished": [],
        "missing": [],
        "collections": [
            {
                "runs": len(runs),
                "commit": "0123456789ab",
                "other_commits": {"ba9876543210": ["one", "another"]},
                "versions": {"python": "3.11.7", "torch": "2.13.0"},
                "machine": {"cpu": "CPU", "cores": 2, "system": "Linux"},
                "hours": {"training": 1.5, "evaluation": 0.25},
                "ended": "2026-01-01T00:00:00+00:00",
            }
        ],
    }
    (folder / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n")


def _run(spec: RunSpec, position: int, **changes: Any) -> RunData:
    from studies import RunData

    random = np.random.default_rng([spec.seed, position, len(spec.environment)])
    period = spec.config.evaluation.period_frames
    points = spec.frames // period
    if spec.environment.startswith("deep_sea"):
        size = int(spec.environment.split("/")[1])
        solved = int(random.exponential(2 ** (size / (2 + position)) / 4))
        off = np.where(np.arange(points) >= solved, 0.99, -0.005)
    else:
        off = (4 + position) * (1 - np.exp(-np.arange(1, points + 1) / 5))
        off = off + random.normal(0, 0.4, points)
    noisy = STYLES[spec.agent].noisy
    layers = LAYERS.get(spec.agent, STREAMS) if noisy else ()
    fall = np.linspace(1, 0.6, 21)
    given: dict[str, Any] = {
        "agent": spec.agent,
        "variant": spec.variant,
        "environment": spec.environment,
        "seed": spec.seed,
        "frames": spec.frames,
        "period_frames": period,
        "finished": True,
        "score_noise": "on" if noisy and spec.variant != "learning-only" else "off",
        "scores": {"on": off - 0.1, "off": off} if noisy else {"off": off},
        "training": off - 0.2 if spec.environment == "atari/pong" else np.empty(0),
        "sigma_frames": [round(x) for x in np.linspace(0, spec.frames, 21)] if noisy else [],
        "sigma": {
            layer: 0.02 * (1 + random.normal(0, 0.01, 21)) * course
            for layer in layers
            for course in [1 if layer.endswith("0") else 1 / fall if layer == "policy" else fall]
        },
    }
    return RunData(**given | changes)
