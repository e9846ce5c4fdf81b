"""The audit of a real agent: it acts, learns and is evaluated on made-up observations."""

from __future__ import annotations

import numpy as np

from noisynet.agents.value import EvaluationPolicy, ValueAgent
from noisynet.layers import Contract, NoiseReport, check_noise
from noisynet.replay import TransitionBatch


def audit_agent(agent: ValueAgent, updates: int = 100) -> NoiseReport:
    """Check that a noisy agent keeps the noise contract; it learns nonsense on the way.

    Args:
        agent: a noisy agent that may be thrown away afterwards.
        updates: how many updates to watch, with four actions before each.
    """
    if agent.noisy is None:
        raise ValueError(
            f"expected a noisy agent, got {agent.config.agent}, which explores by "
            f"{agent.config.exploration.kind}: it has no noise to audit"
        )
    contracts: dict[str, Contract] = {"action": "action", "update": "update", "episode": "update"}
    made_up = _MadeUp(agent)
    step = agent.config.learning.starts_steps
    evaluations = iter(range(updates))

    def evaluate() -> None:
        policy = EvaluationPolicy(agent, "on", f"eval {next(evaluations)}")
        for _ in range(5):
            policy.act(made_up.observation(1))

    def learn() -> None:
        agent.learn(made_up.batch())
        if agent.noisy and agent.noisy.redraw == "episode":
            agent.begin_episode()  # an episode for each update, to see every redraw that is due

    return check_noise(
        agent.online,
        target=agent.target,
        acting=agent.acting,
        act=lambda: agent.act(made_up.observation(1), step),
        learn=learn,
        evaluate=evaluate,
        sync=agent.sync_target,
        contract=contracts[agent.noisy.redraw],
        generators=agent.streams,
        updates=updates,
    )


class _MadeUp:
    """Random observations and transitions of the shapes that the agent expects."""

    def __init__(self, agent: ValueAgent) -> None:
        self.agent, self.rng = agent, np.random.default_rng(0)
        self.shape = (agent.spec.stack, *agent.spec.frame_shape)

    def observation(self, count: int) -> np.ndarray:
        shape = (count, *self.shape)
        if self.agent.spec.frame_dtype == "uint8":
            return self.rng.integers(256, size=shape, dtype=np.uint8)
        return self.rng.standard_normal(shape, dtype=np.float32)

    def batch(self) -> TransitionBatch:
        size = self.agent.config.learning.batch_size
        return TransitionBatch(
            x=self.observation(size),
            action=self.rng.integers(self.agent.spec.num_actions, size=size),
            reward=self.rng.standard_normal(size, dtype=np.float32),
            discount=np.full(size, self.agent.config.learning.discount, np.float32),
            y=self.observation(size),
            weight=np.ones(size, np.float32),
            index=np.arange(size),
        )
