"""The audit of value agents: it passes, and each fault fails the question about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from noisynet.agents import EvaluationPolicy, ValueAgent, audit_agent, torch_stream
from noisynet.agents import value as value_module
from noisynet.audit import checks
from noisynet.config import Config, build_config
from noisynet.envs import EnvironmentSpec
from noisynet.layers import noisy_layers, resample_noise
from noisynet.networks import ValueNetwork

SPEC = EnvironmentSpec("deep_sea/4", 3, (16,), "float32", 1, 1, 1.0)
IMAGES = EnvironmentSpec("minatar/breakout", 3, (4, 10, 10), "uint8", 1, 1, 1.0)
UPDATES = 40


def make(
    agent: str = "noisynet-dueling",
    *settings: str,
    kind: type[ValueAgent] = ValueAgent,
    spec: EnvironmentSpec = SPEC,
) -> ValueAgent:
    fixed = ["network.hidden=[8]", "learning.starts_steps=32"]
    config = build_config(agent, spec.name, settings=[*fixed, *settings])
    assert isinstance(config, Config)
    return kind(config, spec)


@pytest.mark.parametrize("redraw", ["action", "update", "episode"])
@pytest.mark.parametrize("agent", ["noisynet-dqn", "noisynet-dueling"])
def test_the_noisy_agents_keep_the_contract(agent: str, redraw: str) -> None:
    report = audit_agent(make(agent, f"exploration.redraw={redraw}"), UPDATES)
    assert report.passed, str(report)
    assert all(check.passed is not None for check in report.checks), str(report)


@pytest.mark.parametrize(
    "settings",
    [
        ("exploration.noise=independent",),
        ("exploration.sigma0=0.1",),
        ("optimiser.kind=centred-rmsprop", "learning.loss=squared", "learning.double_q=true"),
    ],
    ids=str,
)
def test_other_settings_pass(settings: tuple[str, ...]) -> None:
    report = audit_agent(make("noisynet-dqn", *settings), UPDATES)
    assert report.passed, str(report)


def test_an_agent_with_image_observations_passes() -> None:
    report = audit_agent(make("noisynet-dqn", spec=IMAGES), UPDATES)
    assert report.passed, str(report)


@pytest.mark.parametrize("agent", ["dqn", "dueling"])
def test_an_agent_without_noise_raises(agent: str) -> None:
    with pytest.raises(ValueError, match=f"expected a noisy agent, got {agent}.*epsilon-greedy"):
        audit_agent(make(agent))


# --- one fault at a time --------------------------------------------------------------------------


class ActsWithMeanWeights(ValueAgent):
    def _noise_in(self, use: Literal["acting", "learning"]) -> bool:
        return use == "learning"


class LearnsWithMeanWeights(ValueAgent):
    def _noise_in(self, use: Literal["acting", "learning"]) -> bool:
        return use == "acting"


class NeverResamplesActing(ValueAgent):
    @property
    def _redraw_at_every_action(self) -> bool:
        return False


class Omits(ValueAgent):
    """Does not resample the noise of one role."""

    omitted: str

    def _redraw(self, network: ValueNetwork, role: str) -> None:
        if role != self.omitted:
            super()._redraw(network, role)


class NeverResamplesOnline(Omits):
    omitted = "online"


class NeverResamplesTarget(Omits):
    omitted = "target"


class SelectsWithTheLastSample(Omits):
    omitted = "select"


class ResamplesTooOften(ValueAgent):
    @property
    def _redraw_at_every_action(self) -> bool:
        return True


class OneSampleForTwoLayers(ValueAgent):
    def _redraw(self, network: ValueNetwork, role: str) -> None:
        super()._redraw(network, role)
        layers = noisy_layers(network)
        first, second = layers["head.value.0"], layers["head.advantage.0"]
        second.epsilon_in, second.epsilon_out = first.epsilon_in, first.epsilon_out


def same_seed(first: str, second: str) -> Callable[[], ValueAgent]:
    """Build an agent with two roles whose streams have the same seed."""

    def build() -> ValueAgent:
        agent = make()
        agent.streams[second] = torch_stream(agent.config.seed, first)
        return agent

    return build


FAULTS: dict[str, tuple[str, Callable[[], ValueAgent]]] = {
    "no noise in acting": (checks.ACTING, lambda: make(kind=ActsWithMeanWeights)),
    "no noise in acting, by configuration": (
        checks.ACTING,
        lambda: make("noisynet-dqn", "exploration.used_in=learning"),
    ),
    "no noise in learning": (checks.LEARNING, lambda: make(kind=LearnsWithMeanWeights)),
    "no noise in learning, by configuration": (
        checks.LEARNING,
        lambda: make("noisynet-dqn", "exploration.used_in=acting"),
    ),
    "acting is never resampled": (checks.FRESH, lambda: make(kind=NeverResamplesActing)),
    "online is not resampled": (
        checks.FRESH,
        lambda: make("noisynet-dqn", kind=NeverResamplesOnline),
    ),
    "target is not resampled": (checks.FRESH, lambda: make(kind=NeverResamplesTarget)),
    "the selector is not resampled": (checks.FRESH, lambda: make(kind=SelectsWithTheLastSample)),
    "the online pass uses the selector's sample": (
        checks.ROLES,
        lambda: make(kind=NeverResamplesOnline),
    ),
    "acting is resampled between updates": (
        checks.HELD,
        lambda: make("noisynet-dqn", "exploration.redraw=update", kind=ResamplesTooOften),
    ),
    "two layers share a sample": (checks.LAYERS, lambda: make(kind=OneSampleForTwoLayers)),
    "the target shares the online stream": (checks.ROLES, same_seed("online", "target")),
    "the selector shares the online stream": (checks.ROLES, same_seed("online", "select")),
    "the selector shares the target's stream": (checks.ROLES, same_seed("target", "select")),
    "σ is frozen": (
        checks.GRADIENT,
        lambda: make("noisynet-dqn", "exploration.learn_sigma=false"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_question(fault: str) -> None:
    question, build = FAULTS[fault]
    report = audit_agent(build(), UPDATES)
    assert not report.passed
    assert question in report.failures, str(report)


def test_acting_from_the_online_stream_fails() -> None:
    """With one action per update, both would use the same samples."""
    agent = make("noisynet-dqn", "exploration.redraw=update")
    agent.streams["act"] = torch_stream(agent.config.seed, "online")
    report = audit_agent(agent, UPDATES)
    assert report.failures == [checks.ROLES], str(report)


class EvaluatesFromATrainingStream(EvaluationPolicy):
    def __init__(self, agent: ValueAgent, noise: Any, role: str) -> None:
        super().__init__(agent, noise, role)
        self.stream = agent.streams["act"]


class EvaluatesFromTheGlobalStream(EvaluationPolicy):
    def act(self, observation: Any) -> Any:
        resample_noise(self.network)
        return super().act(observation)


class EvaluatesWithTheOnlineNetwork(EvaluationPolicy):
    def __init__(self, agent: ValueAgent, noise: Any, role: str) -> None:
        super().__init__(agent, noise, role)
        self.network = agent.online


class EvaluatesWithTheActingNetwork(EvaluationPolicy):
    def __init__(self, agent: ValueAgent, noise: Any, role: str) -> None:
        super().__init__(agent, noise, role)
        self.network = agent.acting


@pytest.mark.parametrize(
    "policy",
    [
        EvaluatesFromATrainingStream,
        EvaluatesFromTheGlobalStream,
        EvaluatesWithTheOnlineNetwork,
        EvaluatesWithTheActingNetwork,
    ],
)
def test_an_evaluation_that_disturbs_training_fails_its_question(
    policy: type[EvaluationPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_module, "EvaluationPolicy", policy)
    report = audit_agent(make("noisynet-dqn"), UPDATES)
    assert report.failures == [checks.EVALUATION], str(report)
