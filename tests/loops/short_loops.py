"""Short off-policy loops in this process (not a test)."""

from __future__ import annotations

from pathlib import Path

from noisynet.agents import ValueAgent
from noisynet.config import Config, build_config
from noisynet.envs import Environment
from noisynet.evaluation import make_configured_environment
from noisynet.loops import OffPolicyLoop
from noisynet.replay import FrameStore


def configure(*settings: str, agent: str = "noisynet-dqn", name: str = "deep_sea/4") -> Config:
    fixed = ["network.hidden=[8]", "learning.batch_size=4", "learning.starts_steps=20"]
    config = build_config(agent, name, settings=[*fixed, *settings])
    assert isinstance(config, Config)
    return config


def make_store(
    config: Config, environment: Environment, folder: Path | None = None, capacity: int = 4_000
) -> FrameStore:
    spec = environment.spec
    return FrameStore(
        capacity,
        spec.frame_shape,
        frame_dtype=spec.frame_dtype,
        num_actions=spec.num_actions,
        num_envs=environment.num_envs,
        stack=spec.stack,
        n_step=config.learning.n_step,
        slack_rows=45,
        folder=folder,
    )


def make_loop(config: Config, folder: Path) -> OffPolicyLoop:
    environment = make_configured_environment(config, config.num_envs)
    agent = ValueAgent(config, environment.spec)
    # Fewer rows than steps, so that the window moves and the ring wraps.
    store = make_store(config, environment, folder, capacity=20 * config.num_envs)
    return OffPolicyLoop(config, agent, environment, store)
