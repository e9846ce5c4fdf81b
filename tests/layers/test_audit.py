"""The audit passes for a right agent, and fails on each known way of being wrong."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisynet.layers import (
    Noise,
    NoiseReport,
    NoisyLinear,
    check_noise,
    held_noise,
    hold_noise,
    noise_off,
    resample_noise,
)

ACTING = "noisy while acting"
LEARNING = "noisy while learning"
MODE = "noise does not depend on train()/eval()"
FRESH = "fresh draws when due"
HELD = "held between draws"
BATCH = "one sample for a batch"
ROLES = "acting, online, target and selector draws independent"
LAYERS = "every layer has its own draw"
MOMENTS = "noise is zero-mean, of the right variance"
STRUCTURE = "factorised or independent as claimed"
SCALE = "bias noise scaled by inputs"
GRADIENT = "sigma receives gradient"
EVALUATION = "evaluation leaves training draws alone"
SAVED = "epsilon absent from saved state and target copies"


def networks(layer: Callable[..., nn.Module] = NoisyLinear, **options: Any) -> nn.Sequential:
    return nn.Sequential(layer(12, 10, **options), nn.ReLU(), layer(10, 6, **options))


class Agent:
    """A small noisy double-Q agent that keeps the contract; tests break one clause at a time."""

    def __init__(self, online: nn.Module) -> None:
        self.online, self.target = online, copy.deepcopy(online)
        self.evaluated = copy.deepcopy(online)
        self.optimiser = torch.optim.SGD(online.parameters(), lr=1e-3)
        self.streams = {
            role: torch.Generator().manual_seed(seed)
            for seed, role in enumerate(("act", "online", "target", "select", "eval"))
        }
        self.x = torch.randn(16, 12)

    def redraw(self, network: nn.Module, role: str) -> None:
        resample_noise(network, self.streams[role])

    def act(self) -> None:
        self.redraw(self.online, "act")
        self.online.eval()
        with torch.no_grad():
            self.online(self.x[:1])

    def select(self) -> Tensor:
        self.redraw(self.online, "select")
        with torch.no_grad():
            chosen: Tensor = self.online(self.x).argmax(1, keepdim=True)
        return chosen

    def value(self, chosen: Tensor) -> Tensor:
        self.redraw(self.target, "target")
        with torch.no_grad():
            bootstrapped: Tensor = 1 + self.target(self.x).gather(1, chosen)
        return bootstrapped

    def learn(self) -> None:
        self.online.train()
        target = self.value(self.select())
        self.redraw(self.online, "online")
        loss = (self.online(self.x)[:, :1] - target).square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def sync(self) -> None:
        self.target.load_state_dict(self.online.state_dict())

    def evaluate(self) -> None:
        self.evaluated.load_state_dict(self.online.state_dict())
        self.redraw(self.evaluated, "eval")
        with torch.no_grad():
            self.evaluated(self.x[:1])

    def audit(self, **options: Any) -> NoiseReport:
        training = {role: stream for role, stream in self.streams.items() if role != "eval"}
        parts: dict[str, Any] = {"target": self.target, "act": self.act, "learn": self.learn}
        parts |= {"evaluate": self.evaluate, "generators": training, "sync": self.sync}
        return check_noise(self.online, **(parts | options))


@pytest.mark.parametrize("noise", ["factorised", "independent"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_right_agent_passes_every_check(noise: Noise, bias: bool) -> None:
    report = Agent(networks(noise=noise, bias=bias)).audit()
    assert report.passed, str(report)
    expected = {SCALE} if not bias else set()  # nothing to compare without a bias
    assert {check.question for check in report.checks if check.passed is None} == expected


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_right_layers_pass_on_their_own(noise: Noise) -> None:
    report = check_noise(networks(noise=noise))
    assert report.passed, str(report)


def test_the_report_prints_as_a_table() -> None:
    text = str(check_noise(networks()))
    lines = text.splitlines()
    assert len(lines) == 15
    assert lines[2].startswith("pass  noise does not depend on train()/eval()")
    assert lines[-1] == "The noise contract is kept: all 9 questions asked passed."


# --- broken layers, one per bug class ------------------------------------------------------------


class Broken(nn.Module):
    """A usual third-party layer (ε in buffers, `reset_noise`); subclasses each break one thing."""

    bias_scale = "inputs"
    saved = False
    sigma_learns = True

    def __init__(self, p: int, q: int) -> None:
        super().__init__()
        self.p, self.q = p, q
        self.weight_mu = nn.Parameter(torch.empty(q, p).uniform_(-1, 1) / math.sqrt(p))
        self.weight_sigma = nn.Parameter(torch.full((q, p), 0.5 / math.sqrt(p)))
        self.bias_mu = nn.Parameter(torch.empty(q).uniform_(-1, 1) / math.sqrt(p))
        scale = p if self.bias_scale == "inputs" else q
        self.bias_sigma = nn.Parameter(torch.full((q,), 0.5 / math.sqrt(scale)))
        self.register_buffer("weight_epsilon", torch.zeros(q, p), persistent=self.saved)
        self.register_buffer("bias_epsilon", torch.zeros(q), persistent=self.saved)
        self.reset_noise()

    def shaped(self, size: int) -> Tensor:
        x = torch.randn(size)
        return x.sign() * x.abs().sqrt()

    def reset_noise(self) -> None:
        inputs, outputs = self.shaped(self.p), self.shaped(self.q)
        self.weight_epsilon = outputs.outer(inputs)
        self.bias_epsilon = outputs

    def is_noisy(self) -> bool:
        return True

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_noisy():
            return F.linear(x, self.weight_mu, self.bias_mu)
        weight_sigma: Tensor = self.weight_sigma
        bias_sigma: Tensor = self.bias_sigma
        if not self.sigma_learns:
            weight_sigma, bias_sigma = weight_sigma.detach(), bias_sigma.detach()
        weight = self.weight_mu + weight_sigma * self.weight_epsilon
        return F.linear(x, weight, self.bias_mu + bias_sigma * self.bias_epsilon)


class GatedByTraining(Broken):
    def is_noisy(self) -> bool:
        return self.training


class SigmaWithoutGradient(Broken):
    sigma_learns = False


class IndependentCalledFactorised(Broken):
    def reset_noise(self) -> None:
        self.weight_epsilon = self.shaped(self.q * self.p).reshape(self.q, self.p)
        self.bias_epsilon = self.shaped(self.q)


class BiasScaledByOutputs(Broken):
    bias_scale = "outputs"


class NeverRedrawn(Broken):
    drawn = False

    def reset_noise(self) -> None:
        if not self.drawn:
            super().reset_noise()
        self.drawn = True


class UniformNoise(Broken):
    def shaped(self, size: int) -> Tensor:
        return torch.rand(size)


class EpsilonSaved(Broken):
    saved = True


class EpsilonSavedAsParameter(Broken):
    """Parameters that take no gradient are saved and copied like any other."""

    def reset_noise(self) -> None:
        inputs, outputs = self.shaped(self.p), self.shaped(self.q)
        for name, value in (("weight", outputs.outer(inputs)), ("bias", outputs)):
            self._buffers.pop(f"{name}_epsilon", None)
            parameter = nn.Parameter(value, requires_grad=False)
            self.register_parameter(f"{name}_epsilon", parameter)


class OneGeneratorStateForAllLayers(Broken):
    """Each layer starts its own generator from the same seed and draws inputs, then outputs."""

    def shaped(self, size: int) -> Tensor:
        if not hasattr(self, "stream"):
            self.stream = torch.Generator().manual_seed(7)
        x = torch.randn(size, generator=self.stream)
        return x.sign() * x.abs().sqrt()


class OtherNoiseForTheBias(Broken):
    def reset_noise(self) -> None:
        super().reset_noise()
        self.bias_epsilon = self.shaped(self.q)


class NoisePerRow(Broken):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + self.bias_sigma * self.shaped(y.numel()).reshape(y.shape)


class BrokenAgent(Agent):
    def redraw(self, network: nn.Module, role: str) -> None:
        for layer in network.modules():
            if isinstance(layer, Broken):
                layer.reset_noise()


@pytest.mark.parametrize(
    ("layer", "question"),
    [
        (GatedByTraining, ACTING),
        (GatedByTraining, MODE),
        (SigmaWithoutGradient, GRADIENT),
        (IndependentCalledFactorised, STRUCTURE),
        (BiasScaledByOutputs, SCALE),
        (NeverRedrawn, FRESH),
        (UniformNoise, MOMENTS),
        (EpsilonSaved, SAVED),
        (EpsilonSavedAsParameter, SAVED),
        (OneGeneratorStateForAllLayers, LAYERS),
        (OtherNoiseForTheBias, STRUCTURE),
        (NoisePerRow, BATCH),
    ],
)
def test_a_broken_layer_fails_the_question_about_its_fault(
    layer: type[Broken], question: str
) -> None:
    report = BrokenAgent(networks(layer)).audit(noise="factorised")
    assert report[question].passed is False, str(report)


@pytest.mark.parametrize(
    ("layer", "question"),
    [
        (GatedByTraining, MODE),
        (IndependentCalledFactorised, STRUCTURE),
        (BiasScaledByOutputs, SCALE),
        (NeverRedrawn, FRESH),
        (UniformNoise, MOMENTS),
        (EpsilonSaved, SAVED),
        (OneGeneratorStateForAllLayers, LAYERS),
    ],
)
def test_faults_of_layers_show_without_an_agent(layer: type[Broken], question: str) -> None:
    report = check_noise(networks(layer), noise="factorised")
    assert report[question].passed is False, str(report)


def test_a_sound_foreign_layer_fails_nothing_but_evaluating_from_the_global_stream() -> None:
    report = BrokenAgent(networks(Broken)).audit(noise="factorised")
    assert report.failures == [EVALUATION], str(report)


# --- broken agents, one per clause of the contract -----------------------------------------------


class NoNoiseWhileActing(Agent):
    def act(self) -> None:
        with noise_off(self.online):
            super().act()


class ActsOnTheLastDraw(Agent):
    def act(self) -> None:
        with torch.no_grad():
            self.online(self.x[:1])


class RedrawsOnTheWay(Agent):
    def act(self) -> None:
        super().act()
        super().act()


class TargetSharesTheOnlineNoise(Agent):
    def value(self, chosen: Tensor) -> Tensor:
        self.streams["target"].set_state(self.streams["online"].get_state())
        return super().value(chosen)


class SelectorSharesTheOnlineNoise(Agent):
    def select(self) -> Tensor:
        self.streams["select"].set_state(self.streams["online"].get_state())
        return super().select()


class TargetSharesOneFactor(Agent):
    """Values are uncorrelated, but the input factors of the noise are the online network's."""

    def redraw(self, network: nn.Module, role: str) -> None:
        super().redraw(network, role)
        if role == "online":
            for mine, other in zip(self.online, self.target, strict=True):  # type: ignore[call-overload]
                if isinstance(mine, NoisyLinear):
                    mine.epsilon_in = other.epsilon_in


class NoNoiseInTheTarget(Agent):
    def value(self, chosen: Tensor) -> Tensor:
        with noise_off(self.target):
            return super().value(chosen)


class LearnsOnTheLastDraw(Agent):
    def redraw(self, network: nn.Module, role: str) -> None:
        if role != "online":
            super().redraw(network, role)


class LearnsOnTheDrawOfAnEarlierAction(Agent):
    """The first action's sample is kept and put back for learning."""

    actions = 0

    def act(self) -> None:
        super().act()
        if self.actions % 4 == 0:
            self.kept = {name: value.clone() for name, value in held_noise(self.online).items()}
        self.actions += 1

    def redraw(self, network: nn.Module, role: str) -> None:
        super().redraw(network, role)
        if role == "online":
            hold_noise(network, self.kept)


class CopiesNoiseToTheTarget(Agent):
    def sync(self) -> None:
        super().sync()
        hold_noise(self.target, held_noise(self.online))


class EvaluatesOnTheTargetNetwork(Agent):
    def evaluate(self) -> None:
        self.redraw(self.target, "eval")


class EvaluatesWithOtherWeights(Agent):
    def evaluate(self) -> None:
        with torch.no_grad():
            next(self.online.parameters()).add_(1)


class EvaluatesFromNumPysGlobalStream(Agent):
    def evaluate(self) -> None:
        np.random.random()


class EvaluatesWithTrainingStreams(Agent):
    def evaluate(self) -> None:
        self.redraw(self.evaluated, "act")


class EvaluatesOnTheTrainingNetwork(Agent):
    def evaluate(self) -> None:
        self.redraw(self.online, "eval")


@pytest.mark.parametrize(
    ("agent", "question"),
    [
        (NoNoiseWhileActing, ACTING),
        (ActsOnTheLastDraw, FRESH),
        (RedrawsOnTheWay, HELD),
        (TargetSharesTheOnlineNoise, ROLES),
        (SelectorSharesTheOnlineNoise, ROLES),
        (LearnsOnTheLastDraw, ROLES),
        (NoNoiseInTheTarget, LEARNING),
        (LearnsOnTheDrawOfAnEarlierAction, FRESH),
        (CopiesNoiseToTheTarget, SAVED),
        (EvaluatesOnTheTargetNetwork, EVALUATION),
        (EvaluatesWithOtherWeights, EVALUATION),
        (EvaluatesFromNumPysGlobalStream, EVALUATION),
        (EvaluatesWithTrainingStreams, EVALUATION),
        (EvaluatesOnTheTrainingNetwork, EVALUATION),
    ],
)
def test_a_broken_agent_fails_the_question_about_its_clause(
    agent: type[Agent], question: str
) -> None:
    report = agent(networks()).audit()
    assert report[question].passed is False, str(report)


@pytest.mark.parametrize("bias", [True, False])
def test_sharing_only_one_factor_of_the_noise_is_noticed(bias: bool) -> None:
    report = TargetSharesOneFactor(networks(bias=bias)).audit()
    assert report[ROLES].passed is False, str(report)


# --- the other two contracts ---------------------------------------------------------------------


class ActsByUpdate(Agent):
    """Acting noise is redrawn after each update and held between."""

    def act(self) -> None:
        self.evaluated.load_state_dict(self.online.state_dict())
        with torch.no_grad():
            self.online(self.x[:1])

    def learn(self) -> None:
        super().learn()
        self.redraw(self.online, "act")

    def evaluate(self) -> None:
        pass


def test_acting_noise_redrawn_by_update_passes_its_own_contract_only() -> None:
    assert ActsByUpdate(networks()).audit(contract="update").passed
    assert ActsByUpdate(networks()).audit(contract="action")[FRESH].passed is False
    assert Agent(networks()).audit(contract="update")[HELD].passed is False


class RollOut(Agent):
    """Algorithm 2: one sample for acting, values and the loss; redrawn after the update."""

    redraw_before_loss = False

    def act(self) -> None:
        with torch.no_grad():
            self.online(self.x[:1])

    def learn(self) -> None:
        if self.redraw_before_loss:
            self.redraw(self.online, "online")
        loss = self.online(self.x).square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.redraw(self.online, "act")


class LossOfAnotherSample(RollOut):
    redraw_before_loss = True


def test_one_sample_for_a_roll_out_and_its_loss() -> None:
    report = RollOut(networks()).audit(contract="rollout", target=None)
    assert report.passed, str(report)
    broken = LossOfAnotherSample(networks()).audit(contract="rollout", target=None)
    assert broken[HELD].passed is False, str(broken)
    fresh_each_step = Agent(networks()).audit(contract="rollout", target=None)
    assert fresh_each_step[HELD].passed is False


class LearnsFunctionally(Agent):
    """As some libraries' losses do: the network is called with tensors in its parameters' place."""

    def learn(self) -> None:
        target = self.value(self.select())
        self.redraw(self.online, "online")
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


def test_an_agent_that_learns_through_functional_calls_is_audited() -> None:
    report = LearnsFunctionally(networks()).audit()
    assert report.passed, str(report)
    assert report[GRADIENT].passed


def test_vanishing_deviations_of_a_trained_layer_are_no_fault() -> None:
    online = networks()
    first = online[0]
    assert isinstance(first, NoisyLinear)
    assert first.bias_sigma is not None
    with torch.no_grad():
        first.weight_sigma[0] = 0
        first.weight_sigma[3, 5] = 1e-9
        first.weight_sigma[:, 7] = 1e-8
        first.bias_sigma[0] = 0
        first.weight_sigma.mul_(torch.rand(10, 12) + 0.5)
    report = Agent(online).audit()
    assert report.failures == [], str(report)


@pytest.mark.parametrize("seed", range(4))
def test_a_right_agent_does_not_fail_by_chance(seed: int) -> None:
    torch.manual_seed(1000 + seed)
    agent = Agent(networks())
    for role, stream in enumerate(agent.streams.values()):
        stream.manual_seed(100 * seed + role + 7)
    report = agent.audit()
    assert report.passed, str(report)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contract": "acton"}, "contract expected one of .* did you mean 'action'"),
        ({"noise": "factorized"}, "did you mean 'factorised'"),
        ({"updates": 0}, "updates expected a positive integer, got 0"),
        ({"updates": -1}, "updates expected a positive integer, got -1"),
    ],
)
def test_bad_arguments_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_noise(networks(), **options)


def test_a_module_without_noisy_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="got a Sequential without any"):
        check_noise(nn.Sequential(nn.Linear(2, 2)))


def test_an_unknown_question_names_those_that_were_asked() -> None:
    with pytest.raises(KeyError, match="noisy while acting"):
        check_noise(networks(), updates=10)["is it noisy?"]
