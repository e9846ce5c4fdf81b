"""Writes run folders as training does, with synthetic curves.

Imported by the tests' conftest.py and by benchmarks/report.py through its path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noisynet.config import build_config
from noisynet.reports.agents import AGENTS, STYLES
from noisynet.reports.published import atari_references, published_scores

LAYERS = {
    "noisynet-dqn": ("head.q.0", "head.q.2"),
    "noisynet-dueling": tuple(
        f"head.{stream}.{i}" for stream in ("value", "advantage") for i in (0, 2)
    ),
    "noisynet-c51": ("head.logits.0", "head.logits.2"),
    "rainbow": tuple(f"head.{part}.{i}" for part in ("value", "advantage") for i in (0, 2)),
    "noisynet-a3c": ("hidden.0", "policy", "value"),
    "noisynet-a3c-factorised": ("hidden.0", "policy", "value"),
}


def write_run(
    folder: Path,
    agent: str,
    environment: str,
    seed: int,
    scores: Iterable[float],
    *,
    scores_off: Iterable[float] | None = None,
    settings: Mapping[str, Any] | None = None,
    state: str = "finished",
    sigma: bool = True,
) -> Path:
    """Write one run folder.

    Args:
        folder: to create.
        agent: its name.
        environment: its name.
        seed: of the run.
        scores: of its evaluations, one for each period; noise on for a noisy agent.
        scores_off: the scores with noise off; `scores` by default.
        settings: override the configuration, by dotted key.
        state: for status.json.
        sigma: whether to write training rows.
    """
    config = configuration(agent, environment, seed, settings or {})
    period, scores = config["evaluation"]["period_frames"], list(scores)
    off = scores if scores_off is None else list(scores_off)
    rows: list[dict[str, Any]] = []
    timing: list[dict[str, Any]] = []
    for number, score in enumerate(scores, start=1):
        frames = number * period
        if sigma:
            rows.append(_training_row(agent, number, frames, seed))
        modes = {"on": score, "off": off[number - 1]} if STYLES[agent].noisy else {"off": score}
        for noise, value in modes.items():
            common = {"kind": "evaluation", "frames": frames, "noise": noise, "score": value}
            rows.append({**common, "completed": True, "episodes": 10, "frames_played": 500_000})
        speed = 100.0 + 10 * seed
        timing.append(
            {"kind": "train", "frames": frames, "seconds": 36.0, "steps_per_second": speed}
        )
        timing.append({"kind": "evaluation", "frames": frames, "seconds": 4.0})
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    _write_rows(folder / "metrics.jsonl", rows)
    _write_rows(folder / "timing.jsonl", timing)
    last = {"frames": len(scores) * period, "score": scores[-1] if scores else None}
    (folder / "status.json").write_text(json.dumps({"state": state, **last}))
    return folder


def configuration(
    agent: str, environment: str, seed: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The contents of config.json."""
    config = _default(agent, environment)
    config |= {"environment": environment, "seed": seed}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        config[section] = {**config[section], name: value} if name else value
    return config


_DEFAULTS: dict[tuple[str, str], dict[str, Any]] = {}


def _default(agent: str, environment: str) -> dict[str, Any]:
    family = environment.split("/")[0]
    if (agent, family) not in _DEFAULTS:
        named = {"atari": "atari/pong", "gym": "gym/CartPole-v1", "minatar": "minatar/breakout"}
        built = build_config(agent, named.get(family, environment))
        _DEFAULTS[agent, family] = built.model_dump(mode="json")
    return dict(_DEFAULTS[agent, family])


def _training_row(agent: str, number: int, frames: int, seed: int) -> dict[str, Any]:
    sigma = {
        layer: 0.01 * (1 + index) * (1 + 0.3 * seed * np.exp(-number / 50))
        for index, layer in enumerate(LAYERS.get(agent, ()))
    }
    counts = {"kind": "train", "frames": frames, "steps": frames // 4, "updates": frames // 16}
    return {**counts, "episodes": number, "loss": 0.1, "sigma": sigma}


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def write_full_study(out: Path, seeds: int = 3, games: Iterable[str] | None = None) -> int:
    """Write 57 games, 7 agents and 3 seeds, with 200 evaluations of each run, 320 for A3C.

    The maximal scores scatter around the published ones. Returns the number of runs.
    """
    generator, written = np.random.default_rng(0), 0
    references = atari_references("source")
    for game in references if games is None else games:
        random = references[game].low
        for agent in (name for name in AGENTS if STYLES[name].in_paper):
            known = agent.removesuffix("-factorised")
            target = published_scores()[known][game].mean
            points = 320 if STYLES[agent].kind == "actor-critic" else 200
            for seed in range(seeds):
                level = target + 0.15 * abs(target) * generator.standard_normal()
                rise = 1 - np.exp(
                    -np.arange(1, points + 1) / (points * generator.uniform(0.1, 0.4))
                )
                shape = random + (level - random) * rise / rise[-1]
                noise = 0.05 * abs(level) * generator.standard_normal((2, points))
                folder = out / "atari" / game / agent / f"seed-{seed}"
                curves = np.minimum(shape + noise, max(level, random))
                write_run(folder, agent, f"atari/{game}", seed, curves[0], scores_off=curves[1])
                written += 1
    return written
