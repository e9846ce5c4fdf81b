"""Sweeps of runs that train."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments.conftest import NAMES, Sweeps, has_ended, until
from noisynet.config import ActorCriticConfig, build_config
from noisynet.experiments import RunSpec, build_plan
from noisynet.layers import noisy_layers
from noisynet.loops import load_agent, open_run_folder, train
from noisynet.runs import read_metrics


def test_a_sweep_of_one_run(sweeps: Sweeps) -> None:
    sweep = sweeps.start("real", agents="noisynet-dqn", environments="deep_sea/4")
    summary, log = sweep.communicate()
    assert (sweep.returncode, "1 of 1 runs done" in summary) == (0, True), log
    status = sweeps.status(NAMES[1]) or {}
    assert (status["state"], status["frames"]) == ("finished", 400)
    assert "frame 150: score" in (sweeps.out / f"{NAMES[1]}.log").read_text()


def controls() -> list[Any]:
    """The variants of the plan `controls`; those of A3C start processes."""
    specs = build_plan("controls", out=Path(), environments="minatar/breakout", seeds=1).specs
    return [
        pytest.param(
            spec,
            id=spec.label,
            marks=[pytest.mark.slow] if "a3c" in spec.agent else [],
        )
        for spec in specs
    ]


@pytest.mark.parametrize("spec", controls())
def test_every_control_trains(spec: RunSpec, tmp_path: Path) -> None:
    """A short run: σ moves unless it is frozen, and the score is with noise if acting is."""
    short = ["network.hidden=[16]", "evaluation.period_frames=200", "evaluation.frames=100"]
    if isinstance(spec.config, ActorCriticConfig):
        short += ["workers=1", "envs_per_worker=2"]
    else:
        short += ["learning.starts_steps=100", "replay.capacity_steps=300"]
    settings = [*spec.settings, *short]
    config = build_config(spec.agent, spec.environment, frames=300, settings=settings)
    folder = open_run_folder(tmp_path / "run", config)
    with folder.lock():
        outcome = train(config, folder)
    assert outcome.finished
    scores = {
        row["noise"]: row["score"]
        for row in read_metrics(folder.metrics_path)
        if row["kind"] == "evaluation"
    }
    noisy = "noisynet" in spec.agent
    assert set(scores) == ({"on", "off"} if noisy else {"off"})
    by_acting = noisy and "learning-only" not in spec.label
    assert outcome.score == scores["on" if by_acting else "off"]
    agent, _ = load_agent(folder.path)
    layers = noisy_layers(agent.online)
    assert bool(layers) == noisy
    frozen = any(name in spec.label for name in ("acting-only", "frozen-sigma"))
    for layer in layers.values():
        initial = layer.sigma0 / (layer.in_features**0.5 if layer.noise == "factorised" else 1)
        moved = (layer.weight_sigma - initial).abs().max().item() > 1e-6 * initial
        assert moved != frozen


@pytest.mark.slow
def test_an_unregistered_environment_fails_its_run(sweeps: Sweeps) -> None:
    sweep = sweeps.start("real", agents="dqn", environments="gym/NoSuchGame-v0,deep_sea/4")
    summary, log = sweep.communicate()
    assert (sweep.returncode, "1 of 2 runs done, 1 failed" in summary) == (1, True), log
    assert "gym/NoSuchGame-v0/dqn/seed-0: expected gym/<id> with a registered" in summary


def finished(sweeps: Sweeps) -> list[str]:
    """The runs that are done and not locked."""
    return [
        name
        for name in NAMES
        if (sweeps.status(name) or {}).get("state") == "finished" and not sweeps.is_locked(name)
    ]


def frames_of_training(sweeps: Sweeps, name: str) -> list[int]:
    rows = read_metrics(sweeps.out / name / "metrics.jsonl")
    return [row["frames"] for row in rows if row["kind"] == "train"]


@pytest.mark.slow
def test_two_agents_on_two_environments_with_a_sweep_killed_twice(
    sweeps: Sweeps,
) -> None:
    seen: dict[str, tuple[int, int, int]] = {}
    for count in (1, 2):
        controller = sweeps.start("real", jobs=1)
        until(lambda count=count: len(finished(sweeps)) >= count)  # type: ignore[misc]
        until(lambda: any(sweeps.is_locked(name) for name in NAMES))
        until(lambda: any(sweeps.frames(name) and sweeps.is_locked(name) for name in NAMES))
        locked = next(name for name in NAMES if sweeps.is_locked(name))
        pid = sweeps.pid(locked)
        controller.kill()
        controller.wait()
        until(partial(has_ended, pid))
        seen |= {name: sweeps.metrics_stat(name) for name in finished(sweeps) if name not in seen}
        assert (sweeps.status(locked) or {})["state"] in ("interrupted", "finished")
    controller = sweeps.start("real")
    summary, log = controller.communicate()
    assert (controller.returncode, "4 of 4 runs done" in summary) == (0, True), log
    assert len(seen) >= 2
    assert {name: sweeps.metrics_stat(name) for name in seen} == seen
    for name in NAMES:  # no row twice, none missing
        assert frames_of_training(sweeps, name) == list(range(40, 401, 40))


@pytest.mark.slow
def test_a_killed_process_is_resumed_from_its_checkpoint(sweeps: Sweeps) -> None:
    sweep = sweeps.start("real", agents="noisynet-dqn", environments="deep_sea/4", frames="2k")
    until(lambda: sweeps.frames(NAMES[1]) >= 100 and sweeps.is_locked(NAMES[1]))
    os.kill(sweeps.pid(NAMES[1]), signal.SIGKILL)
    summary, log = sweep.communicate()
    assert (sweep.returncode, "1 of 1 runs done" in summary) == (0, True), log
    assert f"{NAMES[1]}: killed by SIGKILL; will resume from frame" in log
    assert "resuming from frame" in (sweeps.out / f"{NAMES[1]}.log").read_text()
    assert frames_of_training(sweeps, NAMES[1]) == list(range(40, 2001, 40))
