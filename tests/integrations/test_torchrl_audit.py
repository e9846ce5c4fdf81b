from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from noisynet.audit import checks

pytest.importorskip("torchrl", reason="pip install 'noisynet[torchrl]'")

from torchrl import modules
from torchrl.objectives import DistributionalDQNLoss, SoftUpdate

from noisynet.integrations.torchrl import NoisyNetwork, audit, load

from .torchrl_training import (
    ACTIONS,
    INPUTS,
    cart_pole,
    make_loss,
    network,
    torchrl_network,
    transitions,
)


@pytest.mark.parametrize("options", [{}, {"double_dqn": True}, {"delay_value": False}], ids=str)
def test_noisy_networks_pass(options: dict[str, bool]) -> None:
    report = audit(make_loss(network(), **options), environments=3, updates=40)
    assert report.passed, str(report)
    assert all(check.passed is not None for check in report.checks), str(report)


def test_faults_of_torchrls_layer() -> None:
    report = audit(make_loss(torchrl_network()), noise="factorised", updates=20)
    assert not report.passed
    assert report[checks.ACTING].passed
    assert report[checks.LEARNING].evidence == "0 of 80 passes noisy"
    assert report[checks.FRESH].evidence.startswith("2 of 160 samples fresh")
    assert report[checks.GRADIENT].evidence.startswith("none for ")
    assert "weight_epsilon" in report[checks.SAVED].evidence
    assert "σb is" in report[checks.SCALE].evidence
    assert set(report.failures) == {
        checks.LEARNING,
        checks.MODE,
        checks.FRESH,
        checks.SCALE,
        checks.GRADIENT,
        checks.SAVED,
    }


class Atoms(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (11, ACTIONS)).log_softmax(-2)


def test_a_distributional_loss_passes() -> None:
    module = NoisyNetwork(nn.Sequential(nn.Linear(INPUTS, 11 * ACTIONS), Atoms()))
    actor = modules.DistributionalQValueActor(
        module,
        in_keys=["observation"],
        support=torch.linspace(-1, 1, 11),
        action_space="categorical",
    )
    report = audit(DistributionalDQNLoss(actor, gamma=0.9), updates=40)
    assert report.passed, str(report)


def test_the_audit_restores_the_loss() -> None:
    loss = make_loss(network())
    SoftUpdate(loss, tau=0.5)
    loss(transitions())
    before = copy.deepcopy(loss.state_dict())
    audit(loss, updates=5)
    after = loss.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.grad is None for parameter in loss.parameters())


def test_a_deep_copy_of_a_loss_fails() -> None:
    report = audit(copy.deepcopy(make_loss(network())), updates=5)
    assert report.failures == [checks.GRADIENT]


def test_a_separate_policy_is_audited() -> None:
    loss, frozen = make_loss(network()), make_loss(torchrl_network()).value_network
    assert audit(loss, loss.value_network, updates=40).passed
    report = audit(loss, frozen, noise="factorised", updates=20)
    assert checks.FRESH in report.failures


def test_observations_follow_the_specification() -> None:
    environment = cart_pole()
    loss = make_loss(network(4, 2))
    assert audit(loss, observation_spec=environment.observation_spec, updates=40).passed
    images = NoisyNetwork(nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(-2), nn.Linear(8, 2)))
    with pytest.raises(ValueError, match=r"pass env\.observation_spec"):
        audit(make_loss(images))


def test_a_saved_loss_is_loaded_and_audited(tmp_path: Path) -> None:
    torch.save(make_loss(network()), tmp_path / "loss.pt")
    report = audit(load(tmp_path / "loss.pt"), updates=40)
    assert report.passed, str(report)
    torch.save(nn.Linear(2, 2), tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"other\.pt, got a Linear; save it with torch\.save"):
        load(tmp_path / "other.pt")


def test_a_loss_without_noise_and_another_object_raise() -> None:
    with pytest.raises(ValueError, match="without any; build it from NoisyNetwork"):
        audit(make_loss(nn.Linear(INPUTS, ACTIONS)))
    with pytest.raises(TypeError, match=r"check_noise expected a DQNLoss .* got a NoisyNetwork"):
        audit(network())
