"""Our value agents: ours.py AGENT ENVIRONMENT UPDATE_PERIOD WARM_UP [SETTING ...].

The loop, the agent, the environment and the replay files of a run, without its log and checkpoints.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from turn import Turns

from noisynet.agents import ValueAgent
from noisynet.config import AGENT_SPECS, Config, build_config, has_large_convolutions
from noisynet.evaluation import make_configured_environment
from noisynet.loops.off_policy import OffPolicyLoop
from noisynet.loops.process import prepare_process
from noisynet.replay import FrameStore


def configuration(
    agent: str, environment: str, update_period: str, warm_up: str, *settings: str
) -> Config:
    """The agent's preset, with the workload that all contestants share."""
    shared = [
        "replay.capacity_steps=20000",
        f"learning.starts_steps={warm_up}",
        f"learning.update_period_steps={update_period}",
    ]
    if not AGENT_SPECS[agent].noisy:
        shared += ["exploration.anneal_steps=100", "exploration.final=0.1"]
    config = build_config(
        agent,
        environment,
        frames=4 * 10**9,
        preset="classic" if environment.startswith("gym/") else None,  # as its peers
        settings=[*shared, *settings],
    )
    assert isinstance(config, Config)
    return config


def main() -> None:
    """Train in turns."""
    config = configuration(*sys.argv[1:])
    prepare_process()
    if config.threads or not has_large_convolutions(config):  # as in a run
        torch.set_num_threads(config.threads or 1)
    turns = Turns(config.learning.starts_steps + 200)
    with (
        tempfile.TemporaryDirectory() as folder,
        make_configured_environment(config, config.num_envs) as environment,
    ):
        spec = environment.spec
        store = FrameStore(
            config.replay.capacity_steps,
            spec.frame_shape,
            frame_dtype=spec.frame_dtype,
            num_actions=spec.num_actions,
            num_envs=config.num_envs,
            stack=spec.stack,
            n_step=config.learning.n_step,
            folder=folder,
        )
        loop = OffPolicyLoop(config, ValueAgent(config, spec), environment, store)
        for _ in loop.run():
            if not turns.step(config.num_envs):
                break


if __name__ == "__main__":
    main()
