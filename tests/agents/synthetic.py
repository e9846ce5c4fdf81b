"""Agents on synthetic observations, transitions and roll-outs: no environment is needed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet.agents import ActorCriticAgent, Rollout, ValueAgent
from noisynet.config import ActorCriticConfig, Config, build_config
from noisynet.replay import TransitionBatch

NOISY_VALUE_AGENTS: Final = ("noisynet-dqn", "noisynet-dueling")
DISTRIBUTIONAL_AGENTS: Final = ("c51", "rainbow-without-noise", "noisynet-c51", "rainbow")
NOISY_DISTRIBUTIONAL_AGENTS: Final = ("noisynet-c51", "rainbow")
NOISY_A3C_AGENTS: Final = ("noisynet-a3c", "noisynet-a3c-factorised")
STARTS: Final = 32
"""The step at which value agents start learning."""
ROLLOUT_STEPS: Final = 5


@dataclass(frozen=True)
class Spec:
    """All that an agent must know about an environment."""

    name: str
    num_actions: int
    frame_shape: tuple[int, ...]
    frame_dtype: str
    stack: int
    pixel_scale: float


FLAT: Final = Spec("deep_sea/4", 5, (6,), "float32", 1, 1.0)
CHANNELS: Final = Spec("minatar/breakout", 6, (4, 10, 10), "uint8", 1, 1.0)
SCREEN: Final = Spec("atari/pong", 6, (84, 84), "uint8", 4, 1 / 255)


def observations(*lead: int, seed: int = 0, spec: Spec = FLAT) -> NDArray[Any]:
    """Random observations [*lead, stack, *frame]: normals, bits or grey levels."""
    rng, shape = np.random.default_rng(seed), (*lead, spec.stack, *spec.frame_shape)
    if spec.frame_dtype == "float32":
        return rng.standard_normal(shape, dtype=np.float32)
    levels = 2 if spec.pixel_scale == 1 else 256
    return rng.integers(levels, size=shape, dtype=np.uint8)


def parameters(network: nn.Module) -> dict[str, Tensor]:
    """Copies of a network's parameters by name."""
    return {name: value.detach().clone() for name, value in network.named_parameters()}


def perturb(network: nn.Module, seed: int = 9) -> None:
    """Add noise to every parameter, so that two networks differ."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Bit for bit."""
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different


# --- value agents --------------------------------------------------------------------------------


def make_value_agent(
    name: str, *settings: str, seed: int = 0, spec: Spec = FLAT, compute: str = "torch"
) -> ValueAgent:
    """A value agent with a small network."""
    fixed = ["network.hidden=[8]", f"learning.starts_steps={STARTS}", f"compute={compute}"]
    config = build_config(name, spec.name, seed=seed, settings=[*fixed, *settings])
    assert isinstance(config, Config)
    return ValueAgent(config, spec)


def make_batch(size: int = 32, seed: int = 0, spec: Spec = FLAT, **columns: Any) -> TransitionBatch:
    """Random transitions, a quarter of them terminal; `columns` replaces some of them."""
    rng = np.random.default_rng(seed)
    batch = TransitionBatch(
        x=observations(size, seed=2 * seed, spec=spec),
        action=rng.integers(spec.num_actions, size=size),
        reward=rng.standard_normal(size, dtype=np.float32) * 3,
        discount=np.where(np.arange(size) % 4 == 0, 0, 0.99).astype(np.float32),
        y=observations(size, seed=2 * seed + 1, spec=spec),
        weight=np.ones(size, np.float32),
        index=np.arange(size),
    )
    return dataclasses.replace(batch, **columns)


def play(agent: ValueAgent, rounds: int, start: int = 0, envs: int = 1) -> list[list[int]]:
    """In each round act four times and learn; episodes begin and the target is copied at times."""
    actions = []
    for number in range(start, start + rounds):
        for step in range(4):
            seen = observations(envs, seed=4 * number + step)
            actions.append(agent.act(seen, STARTS + 4 * number + step).tolist())
        agent.learn(make_batch(seed=number))
        if number % 3 == 0:
            agent.begin_episode()
        if number % 5 == 0:
            agent.sync_target()
    return actions


def snapshot(agent: ValueAgent) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The agent's state as it is after a file: contiguous tensors, and JSON."""
    tensors = {name: value.clone().contiguous() for name, value in agent.tensors().items()}
    return tensors, json.loads(json.dumps(agent.state()))


# --- actor-critic agents -------------------------------------------------------------------------


def make_actor_critic_agent(
    name: str = "noisynet-a3c",
    *settings: str,
    seed: int = 0,
    spec: Spec = FLAT,
    compute: str = "torch",
    **keywords: Any,
) -> ActorCriticAgent:
    """An actor-critic agent with a small network and, if not set otherwise, one environment."""
    fixed = ["network.hidden=[8]", "network.cells=4", "envs_per_worker=1", f"compute={compute}"]
    config = build_config(name, spec.name, seed=seed, settings=[*fixed, *settings])
    assert isinstance(config, ActorCriticConfig)
    return ActorCriticAgent(config, spec, **keywords)


def act_rollout(agent: ActorCriticAgent, seed: int = 0, *, begin: bool = True) -> Rollout:
    """A roll-out with the agent's own actions; environment 0 begins an episode at step 2."""
    steps, count, rng = ROLLOUT_STEPS, agent.num_envs, np.random.default_rng(seed)
    assert isinstance(agent.spec, Spec)
    observation = observations(steps + 1, count, seed=seed, spec=agent.spec)
    begins = np.zeros((steps + 1, count), bool)
    begins[2, 0] = True
    if begin:
        agent.begin_rollout()
    action = np.stack([agent.act(observation[t], begins[t]) for t in range(steps)])
    discount = np.full((steps, count), 0.99, np.float32)
    discount[1, 0] = 0
    reward = rng.standard_normal((steps, count), dtype=np.float32)
    return Rollout(observation, action, reward, discount, begins, np.zeros((steps, count), bool))
