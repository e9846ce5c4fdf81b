from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from noisynet.audit import checks

pytest.importorskip("tianshou", reason="pip install 'noisynet[tianshou]'")

from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
from tianshou.env.atari.atari_network import RainbowNet

from noisynet.integrations.tianshou import NoisyC51Policy, NoisyQNetwork, audit, load

from .tianshou_agents import (
    ACTIONS,
    dqn,
    noisy_dqn,
    noisy_rainbow,
    plain,
    tianshou_dqn,
    tianshou_rainbow,
    train_recorded,
)

pytestmark = pytest.mark.usefixtures("uncompiled_tianshou")


@pytest.mark.parametrize("make", [noisy_dqn, noisy_rainbow])
def test_noisy_networks_pass(make: Callable[[], Any]) -> None:
    report = audit(make(), updates=40)
    assert report.passed, str(report)
    assert report[checks.ROWS].passed
    assert report[checks.ROLES].passed


def test_one_environment_and_independent_noise_pass() -> None:
    report = audit(noisy_dqn(noise="independent"), environments=1, updates=40)
    assert report.passed, str(report)


def test_faults_of_tianshous_layer_in_dqn() -> None:
    report = audit(tianshou_dqn(), updates=40)
    assert {*report.failures} == {
        checks.ACTING,
        checks.LEARNING,
        checks.MODE,
        checks.FRESH,
        checks.ROLES,
        checks.SAVED,
    }
    assert report[checks.ACTING].evidence.startswith("0 of ")
    assert report[checks.MODE].evidence == "no noise in eval mode"
    assert report[checks.FRESH].evidence.startswith("2 of ")  # those of the initialisation
    assert "eps_p" in report[checks.SAVED].evidence


def test_faults_of_tianshous_layer_in_rainbow() -> None:
    report = audit(tianshou_rainbow(), updates=60)
    assert {*report.failures} == {checks.ACTING, checks.MODE, checks.ROLES, checks.SAVED}
    assert report[checks.ACTING].evidence.startswith("0 of ")
    assert "online/selector" in report[checks.ROLES].evidence


def test_tianshous_policy_fails_for_testing_with_noise() -> None:
    policy = DiscreteQLearningPolicy(model=NoisyQNetwork(plain()), action_space=ACTIONS)
    report = audit(dqn(policy), updates=10)
    assert checks.EVALUATION in report.failures
    assert "torch's global stream" in report[checks.EVALUATION].evidence


def test_the_audit_changes_neither_the_agent_nor_its_schedulers() -> None:
    rates = AdamOptimizerFactory().with_lr_scheduler_factory(LRSchedulerFactoryLinear(2, 10, 1))
    algorithm: DQN[Any] = DQN(policy=noisy_dqn().policy, optim=rates, target_update_freq=10)
    before = copy.deepcopy(algorithm.policy.state_dict())
    audit(algorithm, updates=3)
    after = algorithm.policy.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert len(algorithm.lr_schedulers) == 1


def test_a_policy_is_audited_without_an_algorithm() -> None:
    report = audit(noisy_dqn().policy, updates=20)
    assert report.passed, str(report)
    assert report[checks.LEARNING].passed is None


def test_an_unknown_observation_space_raises() -> None:
    network = NoisyQNetwork(
        RainbowNet(c=4, h=84, w=84, action_shape=[2], num_atoms=5, is_noisy=False)
    )
    policy = NoisyC51Policy(model=network, action_space=ACTIONS, num_atoms=5)
    with pytest.raises(ValueError, match="got a Conv2d; pass observation_space"):
        audit(policy)
    space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert audit(policy, observation_space=space, updates=3).passed


def test_another_object_raises() -> None:
    class Other:
        pass

    with pytest.raises(TypeError, match=r"deep Q-learning.*got a Other"):
        audit(Other())


@pytest.mark.parametrize("kind", ["algorithm", "policy"])
def test_a_saved_agent_is_loaded_and_audited(kind: str, tmp_path: Path) -> None:
    algorithm = noisy_rainbow()
    train_recorded(algorithm, steps=5)
    torch.save(algorithm if kind == "algorithm" else algorithm.policy, tmp_path / "agent.pt")
    report = audit(load(tmp_path / "agent.pt"), updates=15)
    assert report.passed, str(report)


def test_another_file_raises_with_the_line_that_saves_an_agent(tmp_path: Path) -> None:
    path = tmp_path / "agent.pt"
    torch.save(noisy_dqn().state_dict(), path)
    with pytest.raises(ValueError, match=r"got a .*state_dict.*torch.save\(algorithm, path\)"):
        load(path)
    path.write_bytes(b"no pickle")
    with pytest.raises(ValueError, match=r"saved whole, in .*torch.save\(algorithm, path\)"):
        load(path)
