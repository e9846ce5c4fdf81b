"""Each known fault of a layer or an agent fails the question about it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisynet.audit import audit_network, checks
from noisynet.layers import NoisyLinear, held_noise, hold_noise, noise_off

from .double_q_agent import DoubleQAgent, SelectorViewAgent, q_network

# --- faulty layers --------------------------------------------------------------------------------


class SoundLayer(nn.Module):
    """A typical third-party layer: ε in buffers, `reset_noise`. Each subclass has one fault."""

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


class GatedByTraining(SoundLayer):
    def is_noisy(self) -> bool:
        return self.training


class SigmaWithoutGradient(SoundLayer):
    sigma_learns = False


class IndependentDeclaredFactorised(SoundLayer):
    def reset_noise(self) -> None:
        self.weight_epsilon = self.shaped(self.q * self.p).reshape(self.q, self.p)
        self.bias_epsilon = self.shaped(self.q)


class BiasScaledByOutputs(SoundLayer):
    bias_scale = "outputs"


class NeverResampled(SoundLayer):
    sampled = False

    def reset_noise(self) -> None:
        if not self.sampled:
            super().reset_noise()
        self.sampled = True


class UniformNoise(SoundLayer):
    def shaped(self, size: int) -> Tensor:
        return torch.rand(size)


class EpsilonSaved(SoundLayer):
    saved = True


class EpsilonSavedAsParameter(SoundLayer):
    """Parameters without gradient are in the state_dict like any other."""

    def reset_noise(self) -> None:
        inputs, outputs = self.shaped(self.p), self.shaped(self.q)
        for name, value in (("weight", outputs.outer(inputs)), ("bias", outputs)):
            self._buffers.pop(f"{name}_epsilon", None)
            parameter = nn.Parameter(value, requires_grad=False)
            self.register_parameter(f"{name}_epsilon", parameter)


class SameSeedForAllLayers(SoundLayer):
    """Each layer seeds its own generator alike and draws noise of inputs, then of outputs."""

    def shaped(self, size: int) -> Tensor:
        if not hasattr(self, "stream"):
            self.stream = torch.Generator().manual_seed(7)
        x = torch.randn(size, generator=self.stream)
        return x.sign() * x.abs().sqrt()


class SeparateBiasNoise(SoundLayer):
    def reset_noise(self) -> None:
        super().reset_noise()
        self.bias_epsilon = self.shaped(self.q)


class NoisePerRow(SoundLayer):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + self.bias_sigma * self.shaped(y.numel()).reshape(y.shape)


class ThirdPartyAgent(DoubleQAgent):
    def resample(self, network: nn.Module, role: str) -> None:
        for layer in network.modules():
            if isinstance(layer, SoundLayer):
                layer.reset_noise()


@pytest.mark.parametrize(
    ("layer", "question"),
    [
        (GatedByTraining, checks.ACTING),
        (GatedByTraining, checks.MODE),
        (SigmaWithoutGradient, checks.GRADIENT),
        (IndependentDeclaredFactorised, checks.STRUCTURE),
        (BiasScaledByOutputs, checks.SCALE),
        (NeverResampled, checks.FRESH),
        (UniformNoise, checks.MOMENTS),
        (EpsilonSaved, checks.SAVED),
        (EpsilonSavedAsParameter, checks.SAVED),
        (SameSeedForAllLayers, checks.LAYERS),
        (SeparateBiasNoise, checks.STRUCTURE),
        (NoisePerRow, checks.BATCH),
    ],
)
def test_a_faulty_layer_fails_the_question_about_its_fault(
    layer: type[SoundLayer], question: str
) -> None:
    report = ThirdPartyAgent(q_network(layer)).audit(noise="factorised")
    assert report[question].passed is False, str(report)


@pytest.mark.parametrize(
    ("layer", "question"),
    [
        (GatedByTraining, checks.MODE),
        (IndependentDeclaredFactorised, checks.STRUCTURE),
        (BiasScaledByOutputs, checks.SCALE),
        (NeverResampled, checks.FRESH),
        (UniformNoise, checks.MOMENTS),
        (EpsilonSaved, checks.SAVED),
        (SameSeedForAllLayers, checks.LAYERS),
    ],
)
def test_faulty_layers_fail_without_an_agent(layer: type[SoundLayer], question: str) -> None:
    report = audit_network(q_network(layer), noise="factorised", updates=40)
    assert report[question].passed is False, str(report)


def test_a_sound_third_party_layer_only_fails_for_evaluating_from_the_global_stream() -> None:
    report = ThirdPartyAgent(q_network(SoundLayer)).audit(noise="factorised")
    assert report.failures == [checks.EVALUATION], str(report)


# --- faulty agents --------------------------------------------------------------------------------


class NoNoiseWhileActing(DoubleQAgent):
    def act(self) -> None:
        with noise_off(self.online):
            super().act()


class ActsWithTheLastSample(DoubleQAgent):
    def act(self) -> None:
        with torch.no_grad():
            self.online(self.x[:1])


class ResamplesTwicePerAction(DoubleQAgent):
    def act(self) -> None:
        super().act()
        super().act()


class TargetSharesTheOnlineNoise(DoubleQAgent):
    def bootstrap(self, chosen: Tensor) -> Tensor:
        self.streams["target"].set_state(self.streams["online"].get_state())
        return super().bootstrap(chosen)


class SelectorSharesTheOnlineNoise(DoubleQAgent):
    def select(self) -> Tensor:
        self.streams["select"].set_state(self.streams["online"].get_state())
        return super().select()


class SelectorViewSharesTheOnlineNoise(SelectorViewAgent):
    def select(self) -> Tensor:
        self.streams["select"].set_state(self.streams["online"].get_state())
        return super().select()


class SelectorViewSharesTheTargetNoise(SelectorViewAgent):
    def resample(self, network: nn.Module, role: str) -> None:
        super().resample(network, role)
        if role == "target":
            hold_noise(self.target, held_noise(self.selector))


class SelectorViewSharesTheActingNoise(SelectorViewAgent):
    def resample(self, network: nn.Module, role: str) -> None:
        super().resample(network, role)
        if role == "select":
            hold_noise(self.selector, held_noise(self.online))


class SelectorViewNeverResampled(SelectorViewAgent):
    def resample(self, network: nn.Module, role: str) -> None:
        if role != "select":
            super().resample(network, role)


class SelectorViewWithoutNoise(SelectorViewAgent):
    def select(self) -> Tensor:
        with noise_off(self.selector):
            return super().select()


class TargetSharesOneFactor(DoubleQAgent):
    """Values are uncorrelated, but both networks share the input factor of the noise."""

    def resample(self, network: nn.Module, role: str) -> None:
        super().resample(network, role)
        if role == "online":
            for mine, other in zip(self.online, self.target, strict=True):  # type: ignore[call-overload]
                if isinstance(mine, NoisyLinear):
                    mine.epsilon_in = other.epsilon_in


class NoNoiseInTheTarget(DoubleQAgent):
    def bootstrap(self, chosen: Tensor) -> Tensor:
        with noise_off(self.target):
            return super().bootstrap(chosen)


class LearnsWithTheLastSample(DoubleQAgent):
    def resample(self, network: nn.Module, role: str) -> None:
        if role != "online":
            super().resample(network, role)


class LearnsWithAnEarlierActionsSample(DoubleQAgent):
    actions = 0

    def act(self) -> None:
        super().act()
        if self.actions % 4 == 0:
            self.first_sample = {
                name: value.clone() for name, value in held_noise(self.online).items()
            }
        self.actions += 1

    def resample(self, network: nn.Module, role: str) -> None:
        super().resample(network, role)
        if role == "online":
            hold_noise(network, self.first_sample)


class CopiesNoiseToTheTarget(DoubleQAgent):
    def sync(self) -> None:
        super().sync()
        hold_noise(self.target, held_noise(self.online))


class EvaluatesWithTheTargetNetwork(DoubleQAgent):
    def evaluate(self) -> None:
        self.resample(self.target, "eval")


class EvaluationChangesWeights(DoubleQAgent):
    def evaluate(self) -> None:
        with torch.no_grad():
            next(self.online.parameters()).add_(1)


class EvaluatesFromNumPyGlobalStream(DoubleQAgent):
    def evaluate(self) -> None:
        np.random.random()


class EvaluatesFromATrainingStream(DoubleQAgent):
    def evaluate(self) -> None:
        self.resample(self.evaluated, "act")


class EvaluatesWithTheOnlineNetwork(DoubleQAgent):
    def evaluate(self) -> None:
        self.resample(self.online, "eval")


@pytest.mark.parametrize(
    ("agent", "question"),
    [
        (NoNoiseWhileActing, checks.ACTING),
        (ActsWithTheLastSample, checks.FRESH),
        (ResamplesTwicePerAction, checks.HELD),
        (TargetSharesTheOnlineNoise, checks.ROLES),
        (SelectorSharesTheOnlineNoise, checks.ROLES),
        (SelectorViewSharesTheOnlineNoise, checks.ROLES),
        (SelectorViewSharesTheTargetNoise, checks.ROLES),
        (SelectorViewSharesTheActingNoise, checks.ROLES),
        (SelectorViewNeverResampled, checks.FRESH),
        (SelectorViewWithoutNoise, checks.LEARNING),
        (LearnsWithTheLastSample, checks.ROLES),
        (NoNoiseInTheTarget, checks.LEARNING),
        (LearnsWithAnEarlierActionsSample, checks.FRESH),
        (CopiesNoiseToTheTarget, checks.SAVED),
        (EvaluatesWithTheTargetNetwork, checks.EVALUATION),
        (EvaluationChangesWeights, checks.EVALUATION),
        (EvaluatesFromNumPyGlobalStream, checks.EVALUATION),
        (EvaluatesFromATrainingStream, checks.EVALUATION),
        (EvaluatesWithTheOnlineNetwork, checks.EVALUATION),
    ],
)
def test_a_faulty_agent_fails_the_question_about_its_fault(
    agent: type[DoubleQAgent], question: str
) -> None:
    report = agent(q_network()).audit()
    assert report[question].passed is False, str(report)


@pytest.mark.parametrize("bias", [True, False])
def test_sharing_one_factor_of_the_noise_fails(bias: bool) -> None:
    report = TargetSharesOneFactor(q_network(bias=bias)).audit(updates=60)
    assert report[checks.ROLES].passed is False, str(report)


def test_passes_without_noise_are_not_fresh() -> None:
    network = nn.Sequential(NoisyLinear(16, 16))

    def act() -> None:
        with noise_off(network):
            network(torch.zeros(1, 16))

    answer = audit_network(network, act=act)[checks.FRESH]
    assert answer.passed is False
    assert answer.evidence.startswith("0 of 0 samples fresh")
