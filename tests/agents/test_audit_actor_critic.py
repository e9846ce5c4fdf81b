"""The audit of actor-critic agents: it passes, and each fault fails the question about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from noisynet.agents import (
    ActorCriticAgent,
    ActorCriticPolicy,
    Rollout,
    RolloutLearnt,
    audit_agent,
)
from noisynet.agents import actor_critic as agent_module
from noisynet.audit import checks
from noisynet.config import ActorCriticConfig, build_config
from noisynet.envs import EnvironmentSpec
from noisynet.layers import held_noise, hold_noise, noise_off, noisy_layers, resample_noise

SPEC = EnvironmentSpec("deep_sea/4", 3, (16,), "float32", 1, 1, 1.0)
IMAGES = EnvironmentSpec("minatar/breakout", 3, (4, 10, 10), "uint8", 1, 1, 1.0)
UPDATES = 52  # for statistics
FEW = 8  # for what shows at once


def make(
    name: str = "noisynet-a3c",
    *settings: str,
    kind: type[ActorCriticAgent] = ActorCriticAgent,
    spec: EnvironmentSpec = SPEC,
) -> ActorCriticAgent:
    fixed = ["network.hidden=[8]", "network.cells=8", "envs_per_worker=1"]
    config = build_config(name, spec.name, settings=[*fixed, *settings])
    assert isinstance(config, ActorCriticConfig)
    return kind(config, spec)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("noisynet-a3c", ()),
        ("noisynet-a3c", ("recurrent=true", "noisy_lstm=true")),
        ("noisynet-a3c", ("exploration.layers=heads",)),
        ("noisynet-a3c-factorised", ()),
        ("noisynet-a3c-factorised", ("envs_per_worker=4",)),
        ("noisynet-a3c", ("exploration.distribution=uniform",)),
        ("noisynet-a3c-factorised", ("exploration.f=identity",)),
    ],
    ids=str,
)
def test_the_noisy_agents_keep_the_contract(name: str, settings: tuple[str, ...]) -> None:
    report = audit_agent(make(name, *settings), UPDATES)
    assert report.passed, str(report)
    # All roles share one sample, by contract. With per-row noise, no batch has a shared sample.
    allowed = {checks.ROLES} | ({checks.BATCH} if "envs_per_worker=4" in settings else set())
    assert {check.question for check in report.checks if check.passed is None} <= allowed


def test_an_agent_with_image_observations_passes() -> None:
    report = audit_agent(make(spec=IMAGES), UPDATES)
    assert report.passed, str(report)


def test_an_agent_without_noise_raises() -> None:
    with pytest.raises(ValueError, match=r"expected a noisy agent, got a3c.*entropy-bonus"):
        audit_agent(make("a3c"))


# --- one fault at a time --------------------------------------------------------------------------


class ActsWithMeanWeights(ActorCriticAgent):
    def act(self, *arguments: Any) -> Any:
        with noise_off(self.online):
            return super().act(*arguments)


class LearnsWithMeanWeights(ActorCriticAgent):
    def learn(self, rollout: Rollout) -> RolloutLearnt:
        held = {name: value.clone() for name, value in held_noise(self.online).items()}
        hold_noise(self.online, {name: value * 0 for name, value in held.items()})
        learnt = super().learn(rollout)
        hold_noise(self.online, held)
        return learnt


class BootstrapsWithMeanWeights(ActorCriticAgent):
    def _returns(self, *arguments: Any) -> Tensor:
        with noise_off(self.online):
            return super()._returns(*arguments)


class ResamplesAtEveryAction(ActorCriticAgent):
    def act(self, *arguments: Any) -> Any:
        self._draw()
        return super().act(*arguments)


class ResamplesBeforeLearning(ActorCriticAgent):
    def learn(self, rollout: Rollout) -> RolloutLearnt:
        self._draw()
        return super().learn(rollout)


class ResamplesBeforeTheBootstrap(ActorCriticAgent):
    def _returns(self, *arguments: Any) -> Tensor:
        self._draw()
        return super()._returns(*arguments)


class ValuesWithAnotherSample(ActorCriticAgent):
    """log π with the roll-out's noise, V with another sample."""

    def _cache_weights(self) -> None:
        super()._cache_weights()
        resample_noise(self.online.value, self.streams["rollout"], self._rows())

    def _rows(self) -> int | None:
        return self.num_envs if self.num_envs > 1 else None


class NeverResamples(ActorCriticAgent):
    def _draw(self) -> None:
        if not self._drawn:
            super()._draw()


class ResamplesEverySecondRollout(ActorCriticAgent):
    rollouts = 0

    def begin_rollout(self) -> None:
        self.rollouts += 1
        if self.rollouts % 2:
            super().begin_rollout()


class ResamplesOnlyTheHeads(ActorCriticAgent):
    def _draw(self) -> None:
        before = [value.clone() for _, value in self.online.hidden.named_buffers()]
        first = not self._drawn
        super()._draw()
        if not first:
            layer = noisy_layers(self.online)["hidden.0"]
            names = [name for name, _ in layer.named_buffers()]
            layer.hold_noise(dict(zip(names, before, strict=True)))


class RepeatsItsSamples(ActorCriticAgent):
    """The stream is seeded again every fifth roll-out."""

    rollouts = 0

    def begin_rollout(self) -> None:
        if self.rollouts % 5 == 0:
            self.streams["rollout"].manual_seed(0)
        self.rollouts += 1
        super().begin_rollout()


class OneSampleForAllRows(ActorCriticAgent):
    def _draw(self) -> None:
        super()._draw()
        for layer in noisy_layers(self.online).values():
            if layer.rows is not None:
                held = {n: v[:1].expand_as(v).contiguous() for n, v in layer.named_buffers()}
                layer.hold_noise(held)


class OneRowWithoutNoise(ActorCriticAgent):
    def _draw(self) -> None:
        super()._draw()
        for layer in noisy_layers(self.online).values():
            if layer.rows is not None:
                for _, value in layer.named_buffers():
                    value[-1] = 0


class OneRowResampledAtEveryAction(ActorCriticAgent):
    def act(self, *arguments: Any) -> Any:
        for layer in noisy_layers(self.online).values():
            if layer.rows is not None:
                for _, value in layer.named_buffers():
                    value[-1].normal_(generator=self.streams["rollout"])
        self._drop_cached_weights()
        return super().act(*arguments)


class OneSampleForBothHeads(ActorCriticAgent):
    def _draw(self) -> None:
        super()._draw()
        layers = noisy_layers(self.online)
        policy, value = layers["policy"], layers["value"]
        value.epsilon_weight = policy.epsilon_weight[..., :1, :].clone()  # type: ignore[index]
        value.epsilon_bias = policy.epsilon_bias[..., :1].clone()  # type: ignore[index]


class ScalesItsNoise(ActorCriticAgent):
    def _draw(self) -> None:
        super()._draw()
        for layer in noisy_layers(self.online).values():
            for _, value in layer.named_buffers():
                value.mul_(2)


class SavesItsNoise(ActorCriticAgent):
    def _draw(self) -> None:
        super()._draw()
        noisy_layers(self.online)["policy"]._non_persistent_buffers_set.clear()


class DrawsGaussians(ActorCriticAgent):
    """Whatever the configuration says."""

    def begin_rollout(self) -> None:
        for layer in noisy_layers(self.online).values():
            layer.distribution = "gaussian"
        super().begin_rollout()


FAULTS: dict[str, tuple[str, Callable[[], ActorCriticAgent]]] = {
    "no noise in acting": (checks.ACTING, lambda: make(kind=ActsWithMeanWeights)),
    "no noise in learning": (checks.LEARNING, lambda: make(kind=LearnsWithMeanWeights)),
    "no noise in the bootstrap": (checks.LEARNING, lambda: make(kind=BootstrapsWithMeanWeights)),
    "resampled at every action": (checks.HELD, lambda: make(kind=ResamplesAtEveryAction)),
    "resampled before learning": (checks.HELD, lambda: make(kind=ResamplesBeforeLearning)),
    "resampled before the bootstrap": (checks.HELD, lambda: make(kind=ResamplesBeforeTheBootstrap)),
    "values with another sample": (checks.HELD, lambda: make(kind=ValuesWithAnotherSample)),
    "never resampled": (checks.FRESH, lambda: make(kind=NeverResamples)),
    "not resampled after each update": (
        checks.FRESH,
        lambda: make(kind=ResamplesEverySecondRollout),
    ),
    "one layer is not resampled": (checks.FRESH, lambda: make(kind=ResamplesOnlyTheHeads)),
    "samples are repeated": (checks.FRESH, lambda: make(kind=RepeatsItsSamples)),
    "rows share a sample": (
        checks.ROWS,
        lambda: make("noisynet-a3c", "envs_per_worker=2", kind=OneSampleForAllRows),
    ),
    "rows share a sample, factorised": (
        checks.ROWS,
        lambda: make("noisynet-a3c-factorised", "envs_per_worker=2", kind=OneSampleForAllRows),
    ),
    "a row without noise": (checks.ACTING, lambda: make(kind=OneRowWithoutNoise)),
    "one row is resampled at every action": (
        checks.HELD,
        lambda: make(kind=OneRowResampledAtEveryAction),
    ),
    "two layers share a sample": (
        checks.LAYERS,
        lambda: make("noisynet-a3c", "envs_per_worker=2", kind=OneSampleForBothHeads),
    ),
    "noise is too large": (
        checks.MOMENTS,
        lambda: make("noisynet-a3c", "envs_per_worker=2", kind=ScalesItsNoise),
    ),
    "Gaussian noise instead of signs": (
        checks.MOMENTS,
        lambda: make(
            "noisynet-a3c",
            "envs_per_worker=2",
            "exploration.distribution=rademacher",
            kind=DrawsGaussians,
        ),
    ),
    "no noise in acting, by configuration": (
        checks.ACTING,
        lambda: make("noisynet-a3c", "exploration.used_in=learning"),
    ),
    "no noise in learning, by configuration": (
        checks.LEARNING,
        lambda: make("noisynet-a3c", "exploration.used_in=acting"),
    ),
    "noise is in the state_dict": (checks.SAVED, lambda: make(kind=SavesItsNoise)),
    "σ is frozen": (checks.GRADIENT, lambda: make("noisynet-a3c", "exploration.learn_sigma=false")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_question(fault: str) -> None:
    question, build = FAULTS[fault]
    statistical = question in (checks.ROWS, checks.LAYERS, checks.MOMENTS)
    report = audit_agent(build(), UPDATES if statistical else FEW)
    assert not report.passed
    assert question in report.failures, str(report)


class EvaluatesFromATrainingStream(ActorCriticPolicy):
    def __init__(self, agent: ActorCriticAgent, noise: Any, role: str) -> None:
        super().__init__(agent, noise, role)
        self.stream = agent.streams["rollout"]


class EvaluatesFromTheGlobalStream(ActorCriticPolicy):
    def act(self, observation: Any) -> Any:
        resample_noise(self.network)
        return super().act(observation)


class EvaluatesWithTheOnlineNetwork(ActorCriticPolicy):
    def __init__(self, agent: ActorCriticAgent, noise: Any, role: str) -> None:
        super().__init__(agent, noise, role)
        self.network = agent.online


class EvaluationChangesWeights(ActorCriticPolicy):
    @torch.no_grad()
    def act(self, observation: Any) -> Any:
        assert isinstance(self.agent, ActorCriticAgent)
        self.agent.parameters.mul_(0.9)
        return super().act(observation)


@pytest.mark.parametrize(
    "policy",
    [
        EvaluatesFromATrainingStream,
        EvaluatesFromTheGlobalStream,
        EvaluatesWithTheOnlineNetwork,
        EvaluationChangesWeights,
    ],
)
def test_an_evaluation_that_disturbs_training_fails_its_question(
    policy: type[ActorCriticPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "ActorCriticPolicy", policy)
    report = audit_agent(make(), FEW)
    assert report.failures == [checks.EVALUATION], str(report)


def test_the_report_says_which_answers_come_from_parallel_environments() -> None:
    report = audit_agent(make(kind=OneRowWithoutNoise), FEW)
    assert report[checks.ACTING].evidence.startswith("with 3 parallel environments: 0 of ")
