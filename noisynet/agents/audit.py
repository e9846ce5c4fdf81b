"""The audit of a real agent: it acts, learns and is evaluated on made-up observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noisynet.agents.actor_critic import ActorCriticAgent
from noisynet.agents.rollout import Rollout
from noisynet.agents.value import ObservationSpec, ValueAgent
from noisynet.layers import Check, Contract, NoiseReport, check_noise
from noisynet.optimisers import shared_rmsprop_
from noisynet.replay import TransitionBatch

_SIDE_BY_SIDE: Final = 3


def audit_agent(agent: ValueAgent | ActorCriticAgent, updates: int = 100) -> NoiseReport:
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
    if isinstance(agent, ValueAgent):
        return _audit_values(agent, updates)
    report = _audit_rollouts(agent, updates)
    if agent.num_envs > 1:
        return report
    # A worker that plays one game has no rows to ask about: its like with several answers.
    several = type(agent)(agent.config, agent.spec, agent.device, num_envs=_SIDE_BY_SIDE)
    return _both(report, _audit_rollouts(several, updates))


def _audit_values(agent: ValueAgent, updates: int) -> NoiseReport:
    """Algorithm 1."""
    assert agent.noisy is not None
    contracts: dict[str, Contract] = {"action": "action", "update": "update", "episode": "update"}
    made_up = _MadeUp(agent.spec)
    step, learning = agent.config.learning.starts_steps, agent.config.learning

    def learn() -> None:
        agent.learn(made_up.batch(learning.batch_size, learning.discount))
        if agent.noisy and agent.noisy.redraw == "episode":
            agent.begin_episode()  # an episode for each update, to see every redraw that is due

    return check_noise(
        agent.online,
        target=agent.target,
        acting=agent.acting,
        act=lambda: agent.act(made_up.observation(1), step),
        learn=learn,
        evaluate=_evaluation(agent, made_up),
        sync=agent.sync_target,
        contract=contracts[agent.noisy.redraw],
        generators=agent.streams,
        updates=updates,
    )


def _audit_rollouts(agent: ActorCriticAgent, updates: int) -> NoiseReport:
    """Algorithm 2: a roll-out of a few actions, its gradient, an update, and the next."""
    made_up, square = _MadeUp(agent.spec), agent.parameters.new_zeros(len(agent.parameters))
    observations: list[NDArray[Any]] = []
    actions: list[NDArray[np.int64]] = []

    def act() -> None:
        if not actions:
            agent.begin_rollout()
        observations.append(made_up.observation(agent.num_envs))
        actions.append(agent.act(observations[-1], np.zeros(agent.num_envs, np.bool_)))

    def learn() -> None:
        agent.learn(made_up.rollout(observations, actions, agent.config.learning.discount))
        optimiser = agent.config.optimiser
        rates = optimiser.learning_rate, optimiser.decay, optimiser.epsilon
        shared_rmsprop_(agent.parameters, agent.gradient, square, *rates)
        observations.clear()
        actions.clear()

    return check_noise(
        agent.online,
        act=act,
        learn=learn,
        evaluate=_evaluation(agent, made_up),
        contract="rollout",
        generators=agent.streams,
        updates=updates,
    )


def _evaluation(agent: ValueAgent | ActorCriticAgent, made_up: _MadeUp) -> Callable[[], None]:
    def evaluate() -> None:
        policy = agent.evaluation_policy("on", "eval 0")
        policy.begin_episode()
        for _ in range(5):
            policy.act(made_up.observation(1))

    return evaluate


def _both(one: NoiseReport, several: NoiseReport) -> NoiseReport:
    """One report of an agent and of its like with environments side by side."""
    checks = []
    for first, second in zip(one.checks, several.checks, strict=True):
        unanswered = first.passed is None and second.passed is not None
        if unanswered or (first.passed and second.passed is False):
            evidence = f"with {_SIDE_BY_SIDE} environments at once: {second.evidence}"
            checks.append(Check(second.question, second.passed, evidence))
        else:
            checks.append(first)
    return NoiseReport(tuple(checks))


class _MadeUp:
    """Random observations, transitions and roll-outs of the shapes that an agent expects."""

    def __init__(self, spec: ObservationSpec) -> None:
        self.spec, self.rng = spec, np.random.default_rng(0)
        self.shape = (spec.stack, *spec.frame_shape)

    def observation(self, count: int) -> NDArray[Any]:
        shape = (count, *self.shape)
        if self.spec.frame_dtype == "uint8":
            return self.rng.integers(256, size=shape, dtype=np.uint8)
        return self.rng.standard_normal(shape, dtype=np.float32)

    def batch(self, size: int, discount: float) -> TransitionBatch:
        return TransitionBatch(
            x=self.observation(size),
            action=self.rng.integers(self.spec.num_actions, size=size),
            reward=self.rng.standard_normal(size, dtype=np.float32),
            discount=np.full(size, discount, np.float32),
            y=self.observation(size),
            weight=np.ones(size, np.float32),
            index=np.arange(size),
        )

    def rollout(
        self, observed: list[NDArray[Any]], actions: list[NDArray[np.int64]], discount: float
    ) -> Rollout:
        """What was acted on, one episode of it cut, and one more observation to bootstrap from."""
        steps, count = len(actions), len(actions[0])
        begins, cut = np.zeros((steps + 1, count), bool), np.zeros((steps, count), bool)
        cut[0, 0] = begins[1, 0] = True
        return Rollout(
            observation=np.stack([*observed, self.observation(count)]),
            action=np.stack(actions),
            reward=self.rng.standard_normal((steps, count), dtype=np.float32),
            discount=np.full((steps, count), discount, np.float32),
            begins=begins,
            cut=cut,
            final={0: self.observation(count)},
        )
