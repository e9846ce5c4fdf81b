"""The audit passes for agents that keep the contract, and rejects invalid arguments."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from noisynet.audit import audit_network, checks
from noisynet.layers import Distribution, Noise, NoiseFunction, NoisyLinear

from .double_q_agent import DoubleQAgent, SelectorViewAgent, q_network

OPTIONS: list[tuple[Noise, NoiseFunction]] = [
    ("factorised", "signed_sqrt"),
    ("factorised", "identity"),
    ("independent", "signed_sqrt"),
]


@pytest.mark.parametrize("agent", [DoubleQAgent, SelectorViewAgent])
@pytest.mark.parametrize("noise", ["factorised", "independent"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_correct_agent_passes_every_check(
    agent: type[DoubleQAgent], noise: Noise, bias: bool
) -> None:
    report = agent(q_network(noise=noise, bias=bias)).audit()
    assert report.passed, str(report)
    expected = {checks.SCALE} if not bias else set()  # without a bias there is no σb
    assert {check.question for check in report.checks if check.passed is None} == expected


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_correct_layers_pass_without_an_agent(noise: Noise) -> None:
    report = audit_network(q_network(noise=noise))
    assert report.passed, str(report)


@pytest.mark.parametrize("distribution", ["uniform", "rademacher"])
@pytest.mark.parametrize(("noise", "f"), OPTIONS)
def test_noise_beyond_the_gaussian_passes(
    noise: Noise, f: NoiseFunction, distribution: Distribution
) -> None:
    network = q_network(noise=noise, distribution=distribution, f=f)
    report = DoubleQAgent(network).audit()
    assert report.passed, str(report)
    if distribution == "rademacher":
        assert "samples of few signs repeat by chance" in report[checks.FRESH].evidence
    else:
        assert report[checks.FRESH].passed


def test_the_gaussian_without_f_passes() -> None:
    report = DoubleQAgent(q_network(f="identity")).audit()
    assert report.passed, str(report)


@pytest.mark.parametrize("declared", ["gaussian", "uniform", "rademacher"])
@pytest.mark.parametrize("drawn", ["gaussian", "uniform", "rademacher"])
def test_another_distribution_than_declared_is_found(
    drawn: Distribution, declared: Distribution
) -> None:
    report = audit_network(q_network(distribution=drawn), distribution=declared, updates=40)
    assert report[checks.MOMENTS].passed is (drawn == declared), str(report)


@pytest.mark.parametrize("distribution", ["gaussian", "uniform"])
def test_another_f_than_declared_is_found(distribution: Distribution) -> None:
    network = q_network(distribution=distribution)
    assert audit_network(network).passed
    assert checks.MOMENTS in audit_network(network, f="identity").failures


def test_samples_of_few_signs_are_not_taken_for_repeated_ones() -> None:
    """A layer of 3 inputs and 2 outputs has 32 samples of signs; a wide one has enough to tell."""
    narrow = audit_network(nn.Sequential(NoisyLinear(3, 2, distribution="rademacher")))
    assert narrow[checks.FRESH].passed is None
    wide = audit_network(nn.Sequential(NoisyLinear(40, 30, distribution="rademacher")))
    assert wide[checks.FRESH].passed
    layer = NoisyLinear(40, 30, distribution="rademacher")
    layer.resample_noise = lambda *_: None  # type: ignore[method-assign]
    assert audit_network(nn.Sequential(layer))[checks.FRESH].passed is False


def test_the_evidence_names_every_pair_of_roles() -> None:
    evidence = SelectorViewAgent(q_network()).audit()[checks.ROLES].evidence
    assert [pair.split(" ")[0] for pair in evidence.split(", ")] == [
        "acting/online",
        "acting/selector",
        "acting/target",
        "online/selector",
        "online/target",
        "selector/target",
    ]


class ActsByUpdate(DoubleQAgent):
    """The acting noise is resampled after each update and held until the next."""

    def act(self) -> None:
        self.evaluated.load_state_dict(self.online.state_dict())
        with torch.no_grad():
            self.online(self.x[:1])

    def learn(self) -> None:
        super().learn()
        self.resample(self.online, "act")

    def evaluate(self) -> None:
        pass


def test_resampling_by_update_passes_only_its_own_contract() -> None:
    assert ActsByUpdate(q_network()).audit(contract="update").passed
    assert ActsByUpdate(q_network()).audit(contract="action")[checks.FRESH].passed is False
    assert DoubleQAgent(q_network()).audit(contract="update")[checks.HELD].passed is False


class RolloutAgent(DoubleQAgent):
    """Algorithm 2: one sample for acting, values and the loss; resampled after the update."""

    resample_before_loss = False

    def act(self) -> None:
        with torch.no_grad():
            self.online(self.x[:1])

    def learn(self) -> None:
        if self.resample_before_loss:
            self.resample(self.online, "online")
        loss = self.online(self.x).square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.resample(self.online, "act")


class LossOfAnotherSample(RolloutAgent):
    resample_before_loss = True


def test_one_sample_for_a_rollout_and_its_loss() -> None:
    report = RolloutAgent(q_network()).audit(contract="rollout", target=None)
    assert report.passed, str(report)
    broken = LossOfAnotherSample(q_network()).audit(contract="rollout", target=None)
    assert broken[checks.HELD].passed is False, str(broken)
    fresh_each_step = DoubleQAgent(q_network()).audit(contract="rollout", target=None)
    assert fresh_each_step[checks.HELD].passed is False


class LearnsFunctionally(DoubleQAgent):
    """Runs the network by `functional_call`, as the losses of some libraries do."""

    def learn(self) -> None:
        target = self.bootstrap(self.select())
        self.resample(self.online, "online")
        copies = {
            name: parameter.detach().clone().requires_grad_()
            for name, parameter in self.online.named_parameters()
        }
        values = torch.func.functional_call(self.online, copies, (self.x,))
        (values[:, :1] - target).square().mean().backward()
        with torch.no_grad():
            for name, parameter in self.online.named_parameters():
                gradient = copies[name].grad
                assert gradient is not None
                parameter.sub_(1e-3 * gradient)


def test_an_agent_that_learns_through_functional_calls_passes() -> None:
    report = LearnsFunctionally(q_network()).audit()
    assert report.passed, str(report)
    assert report[checks.GRADIENT].passed


def test_a_compiled_acting_network_is_not_mistaken_for_a_noisy_one() -> None:
    """Compiled passes are not recorded, so the audit fails instead of passing unseen code."""
    agent = DoubleQAgent(q_network())
    compiled = torch.compile(agent.online, backend="eager")

    def act() -> None:
        with torch.no_grad():
            compiled(agent.x[:1])

    report = agent.audit(act=act, updates=2)
    assert report[checks.ACTING].passed is False
    assert report[checks.ACTING].evidence == "no pass went through a noisy layer"


def test_almost_zero_sigmas_of_a_trained_layer_do_not_fail() -> None:
    online = q_network()
    first = online[0]
    assert isinstance(first, NoisyLinear)
    assert first.bias_sigma is not None
    with torch.no_grad():
        first.weight_sigma[0] = 0
        first.weight_sigma[3, 5] = 1e-9
        first.weight_sigma[:, 7] = 1e-8
        first.bias_sigma[0] = 0
        first.weight_sigma.mul_(torch.rand(10, 12) + 0.5)
    report = DoubleQAgent(online).audit()
    assert report.failures == [], str(report)


@pytest.mark.parametrize("seed", range(4))
def test_a_correct_agent_does_not_fail_by_chance(seed: int) -> None:
    torch.manual_seed(1000 + seed)
    agent = DoubleQAgent(q_network())
    for role, stream in enumerate(agent.streams.values()):
        stream.manual_seed(100 * seed + role + 7)
    report = agent.audit()
    assert report.passed, str(report)


def test_the_mode_of_every_submodule_is_restored() -> None:
    network = q_network()
    network[0].eval()
    before = [layer.training for layer in network.modules()]
    audit_network(network, updates=1)
    assert [layer.training for layer in network.modules()] == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"contract": "acton"},
            "contract expected 'action', 'update' or 'rollout', got 'acton'; did you mean 'action'",
        ),
        ({"noise": "factorized"}, "did you mean 'factorised'"),
        ({"distribution": "gausian"}, "did you mean 'gaussian'"),
        ({"f": "sqrt"}, "f expected 'signed_sqrt' or 'identity', got 'sqrt'"),
        ({"updates": 0}, "updates expected a positive integer, got 0"),
        ({"updates": -1}, "updates expected a positive integer, got -1"),
    ],
)
def test_invalid_arguments_raise(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit_network(q_network(), **options)


@pytest.mark.parametrize("role", ["module", "target", "selector", "acting"])
def test_a_network_without_noisy_layers_raises(role: str) -> None:
    plain = nn.Sequential(nn.Linear(2, 2))
    networks: dict[str, Any] = {"module": copy.deepcopy(q_network()), role: plain}
    with pytest.raises(ValueError, match="got a Sequential without any"):
        audit_network(networks.pop("module"), **networks)
