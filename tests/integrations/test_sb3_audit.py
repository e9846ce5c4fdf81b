from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from noisynet import check_noise, record_noise
from noisynet.audit import checks
from noisynet.cli import app
from noisynet.layers import held_noise

pytest.importorskip("sb3_contrib", reason="pip install 'noisynet[sb3]'")

from sb3_contrib import QRDQN, TRPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv

from noisynet.integrations.sb3_audit import audit, load

from .sb3_models import (
    POLICIES,
    Dictionaries,
    GatedPolicy,
    GatedTD3Policy,
    SmallImages,
    make,
    networks,
    passes,
)


@pytest.mark.parametrize(("algorithm", "policy"), POLICIES)
def test_noisy_policies_pass(algorithm: Any, policy: str) -> None:
    report = check_noise(make(algorithm, policy), updates=20)
    assert report.passed, str(report)


@pytest.mark.parametrize(("algorithm", "policy"), POLICIES)
def test_the_audit_changes_neither_the_model_nor_a_random_stream(
    algorithm: Any, policy: str
) -> None:
    model = make(algorithm, policy)
    model.learn(64)
    weights = {key: value.clone() for key, value in model.policy.state_dict().items()}
    noise, torch_stream = held_noise(model.policy), torch.get_rng_state()
    numpy_stream = repr(np.random.get_state())
    audit(model, updates=2)
    after = model.policy.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in weights.items())
    assert all(torch.equal(value, held_noise(model.policy)[key]) for key, value in noise.items())
    assert torch.equal(torch_stream, torch.get_rng_state())
    assert repr(np.random.get_state()) == numpy_stream


@pytest.mark.parametrize("env", [SmallImages, Dictionaries])
@pytest.mark.parametrize(
    ("algorithm", "policy"), [(DQN, "NoisyDuelingMlpPolicy"), (A2C, "NoisyMultiInputPolicy")]
)
def test_small_images_and_dictionaries_are_observations_too(
    algorithm: Any, policy: str, env: Any
) -> None:
    model = make(algorithm, policy, DummyVecEnv([env] * 2))
    model.learn(40)
    assert audit(model, updates=10)[checks.ACTING].passed


def test_another_object_raises() -> None:
    with pytest.raises(TypeError, match="of DQN, QRDQN, A2C, PPO, TRPO, DDPG, TD3, got a Linear"):
        audit(nn.Linear(2, 2))


def test_a_layer_gated_by_training_acts_and_bootstraps_without_noise() -> None:
    model = make(DQN, GatedPolicy)
    with record_noise(networks(model)) as log:
        model.learn(120)
    acting = log.select(network="online", with_gradient=False)
    assert acting
    assert not any(event.noisy for event in acting)
    assert passes(log, network="online", with_gradient=True) == (25, 25, 25)
    assert passes(log, network="target") == (25, 0, 0)
    with record_noise(model.policy.q_net) as log:
        model.predict(model.observation_space.sample(), deterministic=True)
    assert passes(log) == (1, 0, 0)


def test_the_audit_finds_a_layer_gated_by_training() -> None:
    report = audit(make(DQN, GatedPolicy), updates=20)
    assert report.failures == [checks.ACTING, checks.LEARNING, checks.MODE]
    assert report[checks.MODE].evidence == "no noise in eval mode"


@pytest.mark.parametrize("algorithm", [DDPG, TD3])
def test_the_audit_finds_an_actor_gated_by_training(algorithm: Any) -> None:
    report = audit(make(algorithm, GatedTD3Policy), updates=20)
    assert report.failures == [checks.ACTING, checks.LEARNING, checks.MODE]


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_noisy_critics_are_audited_too(noise: str) -> None:
    asked = {"noisy_critics": True, "noise": noise}
    model = make(TD3, "NoisyMlpPolicy", policy_kwargs=asked)
    report = audit(model, updates=60)
    assert report.passed, str(report)
    assert "critic.qf1.0" in report[checks.MOMENTS].evidence


def test_the_command_line_audits_a_file_only_if_it_is_trusted(tmp_path: Path) -> None:
    make(DQN, "NoisyMlpPolicy").save(tmp_path / "model.zip")
    file = f"sb3:{tmp_path / 'model.zip'}"
    refused = CliRunner().invoke(app, ["audit", file])
    assert refused.exit_code == 2
    assert "--trust" in refused.output
    allowed = CliRunner().invoke(app, ["audit", file, "--trust"])
    assert allowed.exit_code == 0, allowed.output
    assert "FAIL" not in allowed.output


def test_the_command_line_exits_with_1_for_a_faulty_agent(tmp_path: Path) -> None:
    make(DQN, GatedPolicy).save(tmp_path / "model.zip")
    result = CliRunner().invoke(app, ["audit", f"sb3:{tmp_path / 'model.zip'}", "--trust"])
    assert result.exit_code == 1, result.output
    assert "0 of 1200 passes noisy" in result.output


@pytest.mark.parametrize("policy", ["NoisyMlpPolicy", "MlpPolicy"])
@pytest.mark.parametrize("algorithm", [DQN, QRDQN, A2C, PPO, TRPO, DDPG, TD3])
def test_the_algorithm_of_a_file_is_inferred(algorithm: Any, policy: str, tmp_path: Path) -> None:
    make(algorithm, policy).save(tmp_path / "model.zip")
    assert type(load(tmp_path / "model.zip")) is algorithm


def test_a_file_of_another_algorithm_raises(tmp_path: Path) -> None:
    SAC("MlpPolicy", "Pendulum-v1", buffer_size=10).save(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=r"TRPO, DDPG, TD3 in .*model\.zip, got another algorithm"):
        load(tmp_path / "model.zip")


@pytest.mark.parametrize("algorithm", [TRPO, TD3])
def test_the_command_line_audits_files_of_the_other_algorithms(
    algorithm: Any, tmp_path: Path
) -> None:
    make(algorithm, "NoisyMlpPolicy").save(tmp_path / "model.zip")
    result = CliRunner().invoke(app, ["audit", f"sb3:{tmp_path / 'model.zip'}", "--trust"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("write", [lambda p: p.write_text("no zip"), lambda p: p.touch()])
def test_another_file_raises(write: Callable[[Path], Any], tmp_path: Path) -> None:
    write(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=r"expected a file that model\.save wrote"):
        load(tmp_path / "model.zip")
    result = CliRunner().invoke(app, ["audit", f"sb3:{tmp_path / 'model.zip'}", "--trust"])
    assert result.exit_code == 2
    assert "expected a file that model.save wrote" in " ".join(result.output.split())
