"""The audit of real agents: it passes, and each clause broken on purpose fails its question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from noisynet.agents import EvaluationPolicy, ValueAgent, audit_agent, torch_stream
from noisynet.agents import value as value_module
from noisynet.config import Config, build_config
from noisynet.envs import EnvironmentSpec
from noisynet.layers import checks, noisy_layers, resample_noise
from noisynet.networks import ValueNetwork

SPEC = EnvironmentSpec("deep_sea/4", 3, (16,), "float32", 1, 1, 1.0)
PLANES = EnvironmentSpec("minatar/breakout", 3, (4, 10, 10), "uint8", 1, 1, 1.0)
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
def test_options_that_the_contract_allows_pass(settings: tuple[str, ...]) -> None:
    report = audit_agent(make("noisynet-dqn", *settings), UPDATES)
    assert report.passed, str(report)


def test_agents_that_see_bytes_are_audited_too() -> None:
    report = audit_agent(make("noisynet-dqn", spec=PLANES), UPDATES)
    assert report.passed, str(report)


@pytest.mark.parametrize("agent", ["dqn", "dueling"])
def test_a_plain_agent_has_nothing_to_audit(agent: str) -> None:
    with pytest.raises(ValueError, match=f"expected a noisy agent, got {agent}.*epsilon-greedy"):
        audit_agent(make(agent))


# --- one clause broken at a time -----------------------------------------------------------------


class ActsWithMeanWeights(ValueAgent):
    def _noise_in(self, use: Literal["acting", "learning"]) -> bool:
        return use == "learning"


class LearnsWithMeanWeights(ValueAgent):
    def _noise_in(self, use: Literal["acting", "learning"]) -> bool:
        return use == "acting"


class NeverRedrawsActing(ValueAgent):
    @property
    def _redraw_at_every_action(self) -> bool:
        return False


class Omits(ValueAgent):
    """Leaves out the redraw of one role of learning."""

    omitted: str

    def _redraw(self, network: ValueNetwork, role: str) -> None:
        if role != self.omitted:
            super()._redraw(network, role)


class NeverRedrawsOnline(Omits):
    omitted = "online"


class NeverRedrawsTarget(Omits):
    omitted = "target"


class SelectsWithTheLastSample(Omits):
    omitted = "select"


class RedrawsTooOften(ValueAgent):
    @property
    def _redraw_at_every_action(self) -> bool:
        return True


class OneDrawForAllLayers(ValueAgent):
    def _redraw(self, network: ValueNetwork, role: str) -> None:
        super()._redraw(network, role)
        layers = noisy_layers(network)
        first, second = layers["head.value.0"], layers["head.advantage.0"]
        second.epsilon_in, second.epsilon_out = first.epsilon_in, first.epsilon_out


def seeded_alike(first: str, second: str) -> Callable[[], ValueAgent]:
    """Two roles whose streams give the same numbers."""

    def build() -> ValueAgent:
        agent = make()
        agent.streams[second] = torch_stream(agent.config.seed, first)
        return agent

    return build


BREACHES: dict[str, tuple[str, Callable[[], ValueAgent]]] = {
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
    "acting is never redrawn": (checks.FRESH, lambda: make(kind=NeverRedrawsActing)),
    "online is not redrawn": (
        checks.FRESH,
        lambda: make("noisynet-dqn", kind=NeverRedrawsOnline),
    ),
    "target is not redrawn": (checks.FRESH, lambda: make(kind=NeverRedrawsTarget)),
    "the selector is not redrawn": (checks.FRESH, lambda: make(kind=SelectsWithTheLastSample)),
    "the selector's sample learns": (
        checks.ROLES,
        lambda: make(kind=NeverRedrawsOnline),
    ),
    "acting is redrawn between updates": (
        checks.HELD,
        lambda: make("noisynet-dqn", "exploration.redraw=update", kind=RedrawsTooOften),
    ),
    "two layers share a draw": (checks.LAYERS, lambda: make(kind=OneDrawForAllLayers)),
    "the target shares the online stream": (checks.ROLES, seeded_alike("online", "target")),
    "the selector shares the online stream": (checks.ROLES, seeded_alike("online", "select")),
    "the selector shares the target's stream": (checks.ROLES, seeded_alike("target", "select")),
    "σ is frozen": (
        checks.GRADIENT,
        lambda: make("noisynet-dqn", "exploration.learn_sigma=false"),
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_broken_clause_fails_its_question(breach: str) -> None:
    question, build = BREACHES[breach]
    report = audit_agent(build(), UPDATES)
    assert not report.passed
    assert question in report.failures, str(report)


def test_acting_from_the_online_stream_fails_the_roles() -> None:
    """With one action for each update the two would use the very same numbers."""
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


class EvaluatesInTheOnlineNetwork(EvaluationPolicy):
    def __init__(self, agent: ValueAgent, noise: Any, role: str) -> None:
        super().__init__(agent, noise, role)
        self.network = agent.online


class EvaluatesInTheActingNetwork(EvaluationPolicy):
    def __init__(self, agent: ValueAgent, noise: Any, role: str) -> None:
        super().__init__(agent, noise, role)
        self.network = agent.acting


@pytest.mark.parametrize(
    "policy",
    [
        EvaluatesFromATrainingStream,
        EvaluatesFromTheGlobalStream,
        EvaluatesInTheOnlineNetwork,
        pytest.param(
            EvaluatesInTheActingNetwork,
        ),
    ],
)
def test_an_evaluation_that_disturbs_training_fails_its_question(
    policy: type[EvaluationPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_module, "EvaluationPolicy", policy)
    report = audit_agent(make("noisynet-dqn"), UPDATES)
    assert report.failures == [checks.EVALUATION], str(report)
