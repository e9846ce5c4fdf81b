"""The audit of value agents: it passes, and each fault fails the question about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from noisynet.agents import ValueAgent, ValuePolicy, audit_agent, torch_stream
from noisynet.agents import value as value_module
from noisynet.agents.fused import FusedUpdate
from noisynet.audit import checks
from noisynet.config import AGENT_SPECS, VALUE_AGENTS, Config, build_config
from noisynet.config.compute import cxx_compiler
from noisynet.envs import EnvironmentSpec
from noisynet.layers import (
    Distribution,
    NoiseFunction,
    held_noise,
    hold_noise,
    noise_off,
    noisy_layers,
    resample_noise,
)

SPEC = EnvironmentSpec("deep_sea/4", 3, (16,), "float32", 1, 1, 1.0)
IMAGES = EnvironmentSpec("minatar/breakout", 3, (4, 10, 10), "uint8", 1, 1, 1.0)
UPDATES = 20
MORE_UPDATES = 40  # enough for every statistical check
NOISY_AGENTS = [name for name in VALUE_AGENTS if AGENT_SPECS[name].noisy]
FEW_UPDATES = 6  # enough for faults that every update shows
NEEDS_COMPILER = pytest.mark.skipif(
    cxx_compiler() is None, reason="torch.compile needs a C++ compiler"
)


def make(
    agent: str = "noisynet-dueling",
    *settings: str,
    spec: EnvironmentSpec = SPEC,
) -> ValueAgent:
    fixed = ["network.hidden=[8]", "learning.starts_steps=32"]
    config = build_config(agent, spec.name, settings=[*fixed, *settings])
    assert isinstance(config, Config)
    return ValueAgent(config, spec)


@pytest.mark.parametrize("redraw", ["action", "update", "episode"])
@pytest.mark.parametrize("agent", NOISY_AGENTS)
def test_the_noisy_agents_keep_the_contract(agent: str, redraw: str) -> None:
    report = audit_agent(make(agent, f"exploration.redraw={redraw}"), MORE_UPDATES)
    assert report.passed, str(report)
    assert all(check.passed is not None for check in report.checks), str(report)


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        ("noisynet-dqn", ("exploration.noise=independent",)),
        ("noisynet-dqn", ("exploration.sigma0=0.1",)),
        (
            "noisynet-dqn",
            ("optimiser.kind=centred-rmsprop", "learning.loss=squared", "learning.double_q=true"),
        ),
        ("noisynet-c51", ("exploration.noise=independent", "learning.double_q=true")),
        ("rainbow", ("network.atoms=null",)),
        ("rainbow", ("network.dueling=false", "learning.double_q=false")),
    ],
    ids=str,
)
def test_other_settings_pass(agent: str, settings: tuple[str, ...]) -> None:
    report = audit_agent(make(agent, *settings), UPDATES)
    assert report.passed, str(report)


@pytest.mark.parametrize("agent", ["noisynet-dqn", "rainbow"])
def test_an_agent_with_image_observations_passes(agent: str) -> None:
    report = audit_agent(make(agent, spec=IMAGES), UPDATES)
    assert report.passed, str(report)


@pytest.mark.parametrize("agent", ["dqn", "dueling", "c51", "rainbow-without-noise"])
def test_an_agent_without_noise_raises(agent: str) -> None:
    with pytest.raises(ValueError, match=f"expected a noisy agent, got {agent}.*epsilon-greedy"):
        audit_agent(make(agent))


# --- one fault at a time --------------------------------------------------------------------------


def broken(
    fault: Callable[[ValueAgent], None], agent: str = "noisynet-dueling", *settings: str
) -> Callable[[], ValueAgent]:
    """Build an agent and put a fault into it."""

    def build() -> ValueAgent:
        made = make(agent, *settings)
        fault(made)
        return made

    return build


def never_resamples(role: str) -> Callable[[ValueAgent], None]:
    return lambda agent: agent.plain.noise.roles.discard(role)


def samples_act_at_every_action(agent: ValueAgent) -> None:
    act, rows = agent.act, 1

    def fault(observation: Any, step: int) -> Any:
        agent.update.resample(rows)
        return act(observation, step)

    agent.act = fault  # type: ignore[method-assign]


def two_layers_share_a_sample(agent: ValueAgent) -> None:
    resample = agent.plain.noise.resample

    def fault(role: str, rows: int | None = None) -> None:
        resample(role, rows)
        layers = noisy_layers(agent.networks.items()[role])
        first, second = layers["head.value.0"], layers["head.advantage.0"]
        second.epsilon_in, second.epsilon_out = first.epsilon_in, first.epsilon_out

    agent.plain.noise.resample = fault  # type: ignore[method-assign]


def same_seed(first: str, second: str) -> Callable[[ValueAgent], None]:
    """Two roles have streams with the same seed."""

    def fault(agent: ValueAgent) -> None:
        agent.streams[second] = torch_stream(agent.config.seed, first)

    return fault


def draws_from(distribution: Distribution) -> Callable[[ValueAgent], None]:
    """Layers draw from another distribution than the configuration says."""

    def fault(agent: ValueAgent) -> None:
        for network in agent.networks.items().values():
            for layer in noisy_layers(network).values():
                layer.distribution = distribution

    return fault


def shapes_by(f: NoiseFunction) -> Callable[[ValueAgent], None]:
    """Layers have another f than the configuration says."""

    def fault(agent: ValueAgent) -> None:
        for network in agent.networks.items().values():
            for layer in noisy_layers(network).values():
                layer.f = f

    return fault


FAULTS: dict[str, tuple[str, Callable[[], ValueAgent]]] = {
    "Gaussian noise instead of uniform noise": (
        checks.MOMENTS,
        broken(draws_from("gaussian"), "noisynet-dqn", "exploration.distribution=uniform"),
    ),
    "signs instead of Gaussian noise": (
        checks.MOMENTS,
        broken(draws_from("rademacher"), "noisynet-dqn", "compute=torch"),
    ),
    "Gaussian noise instead of signs": (
        checks.MOMENTS,
        broken(draws_from("gaussian"), "rainbow", "exploration.distribution=rademacher"),
    ),
    "another f": (checks.MOMENTS, broken(shapes_by("identity"), "noisynet-dqn", "compute=torch")),
    "no noise in acting, by configuration": (
        checks.ACTING,
        lambda: make("noisynet-dqn", "exploration.used_in=learning"),
    ),
    "no noise in learning, by configuration": (
        checks.LEARNING,
        lambda: make("noisynet-dqn", "exploration.used_in=acting"),
    ),
    "acting is never resampled": (checks.FRESH, broken(never_resamples("act"))),
    "online is not resampled": (checks.FRESH, broken(never_resamples("online"), "noisynet-dqn")),
    "target is not resampled": (checks.FRESH, broken(never_resamples("target"))),
    "the selector is not resampled": (checks.FRESH, broken(never_resamples("select"))),
    "acting is resampled between updates": (
        checks.HELD,
        broken(samples_act_at_every_action, "noisynet-dqn", "exploration.redraw=update"),
    ),
    "two layers share a sample": (
        checks.LAYERS,
        broken(two_layers_share_a_sample, "noisynet-dueling", "compute=torch"),
    ),
    "the target shares the online stream": (checks.ROLES, broken(same_seed("online", "target"))),
    "the selector shares the online stream": (checks.ROLES, broken(same_seed("online", "select"))),
    "the selector shares the target's stream": (
        checks.ROLES,
        broken(same_seed("target", "select")),
    ),
    "σ is frozen": (
        checks.GRADIENT,
        lambda: make("noisynet-dqn", "exploration.learn_sigma=false"),
    ),
}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("noisynet-dqn", ("exploration.distribution=uniform",)),
        ("noisynet-dueling", ("exploration.distribution=rademacher",)),
        ("rainbow", ("exploration.distribution=uniform", "exploration.f=identity")),
        ("noisynet-c51", ("exploration.f=identity",)),
        ("noisynet-dqn", ("exploration.noise=independent", "exploration.distribution=rademacher")),
    ],
    ids=str,
)
def test_noise_beyond_the_gaussian_keeps_the_contract(name: str, settings: tuple[str, ...]) -> None:
    report = audit_agent(make(name, *settings), MORE_UPDATES)
    assert report.passed, str(report)
    assert report[checks.MOMENTS].passed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_question(fault: str) -> None:
    question, build = FAULTS[fault]
    statistical = question in (checks.ROLES, checks.LAYERS, checks.MOMENTS)
    report = audit_agent(build(), MORE_UPDATES if statistical else UPDATES)
    assert not report.passed
    assert question in report.failures, str(report)


def set_to_zero(role: str) -> Callable[[ValueAgent], None]:
    """The network of a role has mean weights."""

    def fault(agent: ValueAgent) -> None:
        agent.plain.noise.roles.discard(role)
        network = agent.networks.items()[role]
        hold_noise(network, {name: 0 * value for name, value in held_noise(network).items()})

    return fault


def selects_with_the_online_sample(agent: ValueAgent) -> None:
    """ξ″ = ξ."""
    resample = agent.plain.noise.resample

    def fault(role: str, rows: int | None = None) -> None:
        resample(role, rows)
        if role == "select":
            hold_noise(agent.selector, held_noise(agent.online))

    agent.plain.noise.resample = fault  # type: ignore[method-assign]


DISTRIBUTIONAL_FAULTS: dict[str, tuple[str, Callable[[], ValueAgent]]] = {
    f"{agent}: {name}": (question, broken(fault, agent, "network.atoms=5", *settings))
    for agent in ("noisynet-c51", "rainbow")
    for name, question, fault, *settings in (
        ("acting without noise", checks.ACTING, set_to_zero("act")),
        ("online without noise", checks.LEARNING, set_to_zero("online")),
        ("target without noise", checks.LEARNING, set_to_zero("target")),
        ("acting is never resampled", checks.FRESH, never_resamples("act")),
        ("online is not resampled", checks.FRESH, never_resamples("online")),
        ("target is not resampled", checks.FRESH, never_resamples("target")),
        (
            "acting is resampled between updates",
            checks.HELD,
            samples_act_at_every_action,
            "exploration.redraw=update",
        ),
        ("the target shares the online stream", checks.ROLES, same_seed("online", "target")),
        ("σ is frozen", checks.GRADIENT, lambda agent: None, "exploration.learn_sigma=false"),
    )
} | {
    "rainbow: the selector without noise": (
        checks.LEARNING,
        broken(set_to_zero("select"), "rainbow", "network.atoms=5"),
    ),
    "rainbow: the selector is not resampled": (
        checks.FRESH,
        broken(never_resamples("select"), "rainbow", "network.atoms=5"),
    ),
    "rainbow: the selector uses the online sample": (
        checks.ROLES,
        broken(selects_with_the_online_sample, "rainbow", "network.atoms=5", "compute=torch"),
    ),
    "rainbow: the selector shares the target's stream": (
        checks.ROLES,
        broken(same_seed("target", "select"), "rainbow", "network.atoms=5"),
    ),
    "rainbow: two layers share a sample": (
        checks.LAYERS,
        broken(two_layers_share_a_sample, "rainbow", "network.atoms=5", "compute=torch"),
    ),
}


@pytest.mark.parametrize("fault", DISTRIBUTIONAL_FAULTS)
def test_a_fault_of_a_distributional_agent_fails_its_question(fault: str) -> None:
    question, build = DISTRIBUTIONAL_FAULTS[fault]
    statistical = question in (checks.ROLES, checks.LAYERS)
    report = audit_agent(build(), MORE_UPDATES if statistical else FEW_UPDATES)
    assert not report.passed
    assert question in report.failures, str(report)


def test_acting_from_the_online_stream_fails() -> None:
    """With one action per update, both would use the same samples."""
    agent = make("noisynet-dqn", "exploration.redraw=update")
    agent.streams["act"] = torch_stream(agent.config.seed, "online")
    report = audit_agent(agent, MORE_UPDATES)
    assert report.failures == [checks.ROLES], str(report)


# --- faults in the code that trains, whatever that is ---------------------------------------------


def reuses_online_noise_for_the_target(agent: ValueAgent) -> None:
    """ξ′ = ξ."""
    if isinstance(agent.update, FusedUpdate):
        agent.update._noise["target"] = agent.update._noise["online"]
        return
    resample = agent.plain.noise.resample

    def fault(role: str, rows: int | None = None) -> None:
        resample(role, rows)
        if role != "act":
            hold_noise(agent.target, held_noise(agent.online))

    agent.plain.noise.resample = fault  # type: ignore[method-assign]


def acts_without_noise(agent: ValueAgent) -> None:
    if isinstance(agent.update, FusedUpdate):
        noise = agent.update._noise["act"]
        noise.rows = lambda count: np.zeros((count, noise.array.shape[-1]), np.float32)  # type: ignore[method-assign]
        return
    values = agent.plain.q_values

    def fault(observation: NDArray[Any]) -> NDArray[np.float32]:
        with noise_off(agent.acting):
            return values(observation)

    agent.plain.q_values = fault  # type: ignore[method-assign]


def learns_without_noise(agent: ValueAgent) -> None:
    if isinstance(agent.update, FusedUpdate):
        agent.update._noise["online"].array = np.zeros_like(agent.update._noise["online"].array)
        return
    loss = agent.plain._loss

    def fault(*columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with noise_off(agent.online):
            return loss(*columns)

    agent.plain._loss = fault  # type: ignore[assignment]


SABOTAGE: dict[str, Callable[[ValueAgent], None]] = {
    "never resamples": never_resamples("online"),
    "reuses ξ for ξ′": reuses_online_noise_for_the_target,
    "acts without noise": acts_without_noise,
    "learns without noise": learns_without_noise,
}


@pytest.mark.parametrize("fault", SABOTAGE)
@pytest.mark.parametrize(
    ("agent", "compute"),
    [
        ("noisynet-dqn", "torch"),
        ("noisynet-dqn", "auto"),
        pytest.param("noisynet-dqn", "compile", marks=NEEDS_COMPILER),
        ("rainbow", "torch"),
        ("rainbow", "auto"),
    ],
)
def test_a_fault_in_the_code_that_trains_is_found(agent: str, compute: str, fault: str) -> None:
    made = make(agent, f"compute={compute}")
    SABOTAGE[fault](made)
    report = audit_agent(made, FEW_UPDATES)
    assert not report.passed, str(report)


@pytest.mark.parametrize("agent", ["noisynet-dueling", "rainbow"])
def test_selecting_with_the_online_sample_is_found_in_the_compiled_update(agent: str) -> None:
    made = make(agent, "compute=auto")
    assert isinstance(made.update, FusedUpdate)
    made.update._noise["select"] = made.update._noise["online"]
    report = audit_agent(made, FEW_UPDATES)
    assert "the code that trains uses the recorded noise" in report.failures, str(report)


@pytest.mark.parametrize(
    ("agent", "compute"),
    [
        ("noisynet-dqn", "torch"),
        ("noisynet-dqn", "auto"),
        pytest.param("noisynet-dqn", "compile", marks=NEEDS_COMPILER),
        ("rainbow", "torch"),
        ("rainbow", "auto"),
        pytest.param("rainbow", "compile", marks=[NEEDS_COMPILER, pytest.mark.slow]),
    ],
)
def test_the_code_that_trains_passes(agent: str, compute: str) -> None:
    report = audit_agent(make(agent, f"compute={compute}"), FEW_UPDATES)
    assert report.passed, str(report)
    used = "kernels" if compute == "auto" else compute
    assert f"0 of {5 * FEW_UPDATES} passes by {used} differ" in str(report)


# --- evaluation -----------------------------------------------------------------------------------


class EvaluatesFromATrainingStream(ValuePolicy):
    def __init__(self, agent: ValueAgent, noise: Any, role: str) -> None:
        super().__init__(agent, noise, role)
        self.stream = agent.streams["act"]


class EvaluatesFromTheGlobalStream(ValuePolicy):
    def act(self, observation: Any) -> Any:
        resample_noise(self.network)
        return super().act(observation)


class EvaluatesWithTheOnlineNetwork(ValuePolicy):
    def __init__(self, agent: ValueAgent, noise: Any, role: str) -> None:
        super().__init__(agent, noise, role)
        self.network = agent.online


class EvaluatesWithTheActingNetwork(ValuePolicy):
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
    policy: type[ValuePolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_module, "ValuePolicy", policy)
    report = audit_agent(make("noisynet-dqn"), UPDATES)
    assert report.failures == [checks.EVALUATION], str(report)
