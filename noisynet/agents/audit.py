"""The audit of this package's agents: they act, learn and are evaluated on synthetic data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet.agents.actor_critic import ActorCriticAgent
from noisynet.agents.rollout import Rollout
from noisynet.agents.update import ObservationSpec
from noisynet.agents.value import ValueAgent
from noisynet.audit import Check, Contract, NoiseReport, SyntheticData, audit_network
from noisynet.optimisers import shared_rmsprop_
from noisynet.replay import TransitionBatch

_PARALLEL_ENVS: Final = 3


def audit_agent(agent: ValueAgent | ActorCriticAgent, updates: int = 100) -> NoiseReport:
    """Check that a noisy agent keeps the noise contract, over some updates of four actions each.

    The agent is trained on random data, so its weights are of no use afterwards.

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
    data, replayed = SyntheticData(), _Replayed(agent)
    step, learning = agent.config.learning.starts_steps, agent.config.learning

    def learn() -> None:
        replayed.learn(_batch(data, agent.spec, learning.batch_size, learning.discount))
        if agent.noisy and agent.noisy.redraw == "episode":
            agent.begin_episode()  # one episode per update, so that every resampling is due

    report = audit_network(
        agent.online,
        target=agent.target,
        selector=agent.selector if learning.double_q else None,
        acting=agent.acting,
        act=lambda: replayed.act(_observations(data, agent.spec, 1), step),
        learn=learn,
        evaluate=_evaluation(agent, data),
        sync=agent.sync_target,
        contract=contracts[agent.noisy.redraw],
        noise=agent.noisy.noise,
        distribution=agent.noisy.distribution,
        f=agent.noisy.f,
        generators=agent.streams,
        updates=updates,
    )
    return NoiseReport((*report.checks, replayed.check()))


class _Replayed:
    """Runs an agent and repeats each pass in plain PyTorch with the noise that its layers hold.

    Kernels and compiled code call no hooks, so the recorder sees the repeated passes. That these
    give the same values and TD errors shows that the agent's own code used the recorded noise.
    """

    def __init__(self, agent: ValueAgent) -> None:
        self.agent, self.compared, self.differing = agent, 0, 0

    def act(self, observation: NDArray[Any], step: int) -> None:
        """Take an action, and repeat its pass."""
        agent, update = self.agent, self.agent.update
        values: list[NDArray[np.float32]] = []

        class Observed:
            """The agent's own code, with its values noted."""

            resample, learn, reload = update.resample, update.learn, update.reload

            @staticmethod
            def q_values(observation: NDArray[Any]) -> NDArray[np.float32]:
                values.append(update.q_values(observation))
                return values[-1]

        agent.update = Observed()
        try:
            agent.act(observation, step)
        finally:
            agent.update = update
        with torch.no_grad():
            expected = agent.acting(agent.to_device(observation))
        self._compare(values[-1], expected)

    def learn(self, batch: TransitionBatch) -> None:
        """Make an update, and repeat its passes with the weights from before it."""
        agent = self.agent
        before, after = copy.deepcopy(agent.online.state_dict()), agent.online.state_dict()
        learnt = agent.learn(batch)
        now = {name: value.clone() for name, value in after.items()}
        agent.online.load_state_dict(before)
        _, error, _ = agent.plain.loss(*agent.plain.columns(batch))
        agent.online.load_state_dict(now)
        self._compare(learnt.error, error)

    def _compare(self, found: NDArray[np.float32], expected: Tensor) -> None:
        self.compared += 1
        same = np.allclose(found, expected.cpu().numpy(), rtol=1e-3, atol=1e-3)
        self.differing += not same

    def check(self) -> Check:
        """Whether every pass of the agent's own code used the recorded noise."""
        evidence = (
            f"{self.differing} of {self.compared} passes by {self.agent.compute} differ from plain "
            "PyTorch with the noise that the layers hold"
        )
        return Check("the code that trains uses the recorded noise", not self.differing, evidence)


def _audit_actor_critic(agent: ActorCriticAgent, updates: int) -> NoiseReport:
    """Algorithm 2: a roll-out of a few actions, its gradient and an update, repeatedly."""
    assert agent.noisy is not None
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
        shared_rmsprop_(agent.parameters, agent.gradient, square, *rates)
        observations.clear()
        actions.clear()

    return audit_network(
        agent.online,
        act=act,
        learn=learn,
        evaluate=_evaluation(agent, data),
        contract="rollout",
        noise=agent.noisy.noise,
        distribution=agent.noisy.distribution,
        f=agent.noisy.f,
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
