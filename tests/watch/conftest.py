"""Short runs and small agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import pytest

from noisynet.agents import ActorCriticAgent
from noisynet.config import ActorCriticConfig, Config, build_config
from noisynet.envs import make_environment
from noisynet.loops import train
from noisynet.runs import RunFolder, Trace, list_traces, read_traces

SMALL: Final = (
    "network.hidden=[16]",
    "replay.capacity_steps=200",
    "learning.starts_steps=20",
    "learning.batch_size=8",
)
DEEP_SEA: Final = ("evaluation.period_frames=30", "evaluation.frames=15")
"""Evaluations of three complete episodes of 4 steps, and 3 steps of a fourth."""


NOISY_ACTOR_CRITICS: Final = ("noisynet-a3c", "noisynet-a3c-factorised")


def make_actor_critic(name: str, *settings: str) -> ActorCriticAgent:
    """A small actor-critic agent on deep_sea/4."""
    fixed = ["network.hidden=[16]", "network.cells=8"]
    fixed += [] if name == "a3c" else ["exploration.sigma0=0.5"]
    config = build_config(name, "deep_sea/4", settings=[*fixed, *settings])
    assert isinstance(config, ActorCriticConfig)
    with make_environment("deep_sea/4") as environment:
        return ActorCriticAgent(config, environment.spec)


def trained(path: Path, agent: str, environment: str, frames: int, settings: Sequence[str]) -> Path:
    """Train a short run; its folder."""
    config = build_config(agent, environment, frames=frames, settings=[*SMALL, *settings])
    assert isinstance(config, Config)
    folder = RunFolder.create_or_open(path, config.model_dump(mode="json"), must_match=["agent"])
    with folder.lock():
        train(config, folder)
    return path


@pytest.fixture(scope="session")
def noisy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a noisy agent."""
    path = tmp_path_factory.mktemp("noisy") / "run"
    return trained(path, "noisynet-dqn", "deep_sea/4", 60, DEEP_SEA)


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an agent without noise."""
    path = tmp_path_factory.mktemp("plain") / "run"
    return trained(path, "dueling", "deep_sea/4", 60, DEEP_SEA)


@pytest.fixture(scope="session")
def distributional_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a noisy agent that learns distributions."""
    path = tmp_path_factory.mktemp("distributional") / "run"
    return trained(path, "rainbow", "deep_sea/4", 60, (*DEEP_SEA, "network.atoms=11"))


def newest_traces(run: Path, noise: Literal["on", "off"]) -> list[Trace]:
    """The traces of a run's newest evaluation."""
    files = [file for file in list_traces(RunFolder(run).traces_path) if file.noise == noise]
    return read_traces(files[-1].path)
