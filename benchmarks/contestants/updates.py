"""Updates of an agent: updates.py AGENT ENVIRONMENT [--actions N] [--save FILE] [SETTING ...].

A step is an update, always from the same batch of random observations. `--save` writes the weights
before and after the 10 updates of the warm-up.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import torch
from turn import Turns

from noisynet.agents import ValueAgent
from noisynet.config import Config, build_config, has_large_convolutions
from noisynet.envs import EnvironmentSpec, make_environment
from noisynet.loops.process import prepare_process
from noisynet.replay import TransitionBatch

WARM_UP = 10


def random_batch(spec: EnvironmentSpec, size: int) -> TransitionBatch:
    """Observations, actions and rewards without any meaning."""
    rng = np.random.default_rng(0)
    shape = (2, size, spec.stack, *spec.frame_shape)
    if spec.frame_dtype == "uint8":
        largest = round(1 / spec.pixel_scale)
        x, y = rng.integers(largest + 1, size=shape, dtype=np.uint8)
    else:
        x, y = rng.standard_normal(shape, dtype=np.float32)
    return TransitionBatch(
        x=x,
        action=rng.integers(spec.num_actions, size=size),
        reward=rng.standard_normal(size, dtype=np.float32),
        discount=np.full(size, 0.99, np.float32),
        y=y,
        weight=np.ones(size, np.float32),
        index=np.arange(size),
    )


def make_agent(
    name: str, environment: str, settings: list[str], actions: int | None = None
) -> tuple[ValueAgent, TransitionBatch]:
    """An agent in a process as a run prepares it, and a batch for it."""
    config = build_config(name, environment, settings=settings)
    assert isinstance(config, Config)
    prepare_process()
    if config.threads or not has_large_convolutions(config):
        torch.set_num_threads(config.threads or 1)
    with make_environment(environment) as made:
        spec = made.spec
    if actions is not None:
        spec = dataclasses.replace(spec, num_actions=actions)
    return ValueAgent(config, spec), random_batch(spec, config.learning.batch_size)


def weights(agent: ValueAgent) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """All weights of the online network as one vector."""
    parameters = [parameter.detach().flatten() for parameter in agent.online.parameters()]
    vector: np.ndarray[tuple[int], np.dtype[np.float32]] = torch.cat(parameters).numpy()
    return vector


def main() -> None:
    """Learn in turns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("agent")
    parser.add_argument("environment")
    parser.add_argument("--actions", type=int)
    parser.add_argument("--save", type=Path)
    options, settings = parser.parse_known_args()
    agent, batch = make_agent(options.agent, options.environment, settings, options.actions)
    initial, turns = weights(agent).copy(), Turns(WARM_UP)
    while True:
        agent.learn(batch)
        if options.save and agent.updates == WARM_UP:
            np.save(options.save, np.stack([initial, weights(agent)]))
        if not turns.step():
            break


if __name__ == "__main__":
    main()
