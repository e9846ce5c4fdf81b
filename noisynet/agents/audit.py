"""The audit of this package's agents: they act, learn and are evaluated on synthetic data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noisynet.agents.actor_critic import ActorCriticAgent
from noisynet.agents.rollout import Rollout
from noisynet.agents.value import ObservationSpec, ValueAgent
from noisynet.audit import Check, Contract, NoiseReport, SyntheticData, audit_network
from noisynet.optimisers import shared_rmsprop_step
from noisynet.replay import TransitionBatch

_PARALLEL_ENVS: Final = 3


def audit_agent(agent: ValueAgent | ActorCriticAgent, updates: int = 100) -> NoiseReport:
    """Check that a noisy agent keeps the noise contract.

    The agent is trained on random data, so its weights are of no use afterwards.

    Args:
        agent: a noisy agent.
        updates: how many updates to run, with four actions before each.

    Raises:
        ValueError: the agent has no noisy layers.
    """
    if agent.noisy is None:
        raise ValueError(
            f"expected a noisy agent, got {agent.config.agent}, which explores by "
            f"{agent.config.exploration.kind}: it has no noise to audit"
        )
    if isinstance(agent, ValueAgent):
        return _audit_value_agent(agent, updates)
    report = _audit_actor_critic(agent, updates)
    if agent.num_envs > 1:
        return report
    # Per-row noise needs several environments, so such an agent is audited as well.
    parallel = type(agent)(agent.config, agent.spec, agent.device, num_envs=_PARALLEL_ENVS)
    return _merge(report, _audit_actor_critic(parallel, updates))


def _audit_value_agent(agent: ValueAgent, updates: int) -> NoiseReport:
    """Algorithm 1."""
    assert agent.noisy is not None
    contracts: dict[str, Contract] = {"action": "action", "update": "update", "episode": "update"}
    data = SyntheticData()
    step, learning = agent.config.learning.starts_steps, agent.config.learning

    def learn() -> None:
        agent.learn(_batch(data, agent.spec, learning.batch_size, learning.discount))
        if agent.noisy and agent.noisy.redraw == "episode":
            agent.begin_episode()  # one episode per update, so that every resampling is due

    return audit_network(
        agent.online,
        target=agent.target,
        selector=getattr(agent, "selector", None),
        acting=agent.acting,
        act=lambda: agent.act(_observations(data, agent.spec, 1), step),
        learn=learn,
        evaluate=_evaluation(agent, data),
        sync=agent.sync_target,
        contract=contracts[agent.noisy.redraw],
        generators=agent.streams,
        updates=updates,
    )


def _audit_actor_critic(agent: ActorCriticAgent, updates: int) -> NoiseReport:
    """Algorithm 2: a roll-out of a few actions, its gradient and an update, repeatedly."""
    data, square = SyntheticData(), agent.parameters.new_zeros(len(agent.parameters))
    observations: list[NDArray[Any]] = []
    actions: list[NDArray[np.int64]] = []

    def act() -> None:
        if not actions:
            agent.begin_rollout()
        observations.append(_observations(data, agent.spec, agent.num_envs))
        actions.append(agent.act(observations[-1], np.zeros(agent.num_envs, np.bool_)))

    def learn() -> None:
        last = _observations(data, agent.spec, agent.num_envs)
        observed = np.stack([*observations, last])
        agent.learn(_rollout(data, observed, np.stack(actions), agent.config.learning.discount))
        optimiser = agent.config.optimiser
        rates = optimiser.learning_rate, optimiser.decay, optimiser.epsilon
        shared_rmsprop_step(agent.parameters, square, agent.gradient, *rates)
        observations.clear()
        actions.clear()

    return audit_network(
        agent.online,
        act=act,
        learn=learn,
        evaluate=_evaluation(agent, data),
        contract="rollout",
        generators=agent.streams,
        updates=updates,
    )


def _evaluation(agent: ValueAgent | ActorCriticAgent, data: SyntheticData) -> Callable[[], None]:
    def evaluate() -> None:
        policy = agent.evaluation_policy("on", "eval 0")
        policy.begin_episode()
        for _ in range(5):
            policy.act(_observations(data, agent.spec, 1))

    return evaluate


def _merge(single: NoiseReport, parallel: NoiseReport) -> NoiseReport:
    """Combine the reports of an agent with one environment and with several."""
    checks = []
    for first, second in zip(single.checks, parallel.checks, strict=True):
        unanswered = first.passed is None and second.passed is not None
        if unanswered or (first.passed and second.passed is False):
            evidence = f"with {_PARALLEL_ENVS} parallel environments: {second.evidence}"
            checks.append(Check(second.question, second.passed, evidence))
        else:
            checks.append(first)
    return NoiseReport(tuple(checks))


def _observations(data: SyntheticData, spec: ObservationSpec, count: int) -> NDArray[Any]:
    return data.array((count, spec.stack, *spec.frame_shape), spec.frame_dtype)


def _batch(
    data: SyntheticData, spec: ObservationSpec, size: int, discount: float
) -> TransitionBatch:
    return TransitionBatch(
        x=_observations(data, spec, size),
        action=data.actions(size, spec.num_actions),
        reward=data.rewards(size),
        discount=np.full(size, discount, np.float32),
        y=_observations(data, spec, size),
        weight=np.ones(size, np.float32),
        index=np.arange(size),
    )


def _rollout(
    data: SyntheticData, observed: NDArray[Any], actions: NDArray[np.int64], discount: float
) -> Rollout:
    """A roll-out that bootstraps from its last observation, with one truncated episode in it."""
    steps, count = actions.shape
    begins, truncated = np.zeros((steps + 1, count), bool), np.zeros((steps, count), bool)
    truncated[0, 0] = begins[1, 0] = True
    return Rollout(
        observation=observed,
        action=actions,
        reward=data.rewards(steps, count),
        discount=np.full((steps, count), discount, np.float32),
        begins=begins,
        cut=truncated,
        final={0: data.array(observed.shape[1:], observed.dtype)},
    )
