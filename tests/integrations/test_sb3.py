"""What importing `noisynet.integrations.sb3` does to Stable-Baselines3's algorithms."""

from __future__ import annotations

import copy
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from noisynet import record_noise
from noisynet.layers import held_noise, noisy_layers

pytest.importorskip("sb3_contrib", reason='pip install "noisynet[sb3]"')

from sb3_contrib import QRDQN, TRPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from noisynet.integrations.sb3 import NoisyActorCriticPolicy, NoisyDQNPolicy

from .sb3_models import POLICIES, Images, Signs, make, parallel


@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_another_epsilon_is_set_to_0_with_a_warning(algorithm: Any) -> None:
    with pytest.warns(UserWarning, match=r"exploration_final_eps=0\.2 is ignored and set to 0"):
        model = make(algorithm, "NoisyMlpPolicy", exploration_final_eps=0.2)
    model.learn(40)
    assert model.exploration_rate == 0


class DerivedDQN(DQN):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)


def test_epsilon_of_a_subclass_of_dqn_is_0() -> None:
    model = make(DerivedDQN, NoisyDQNPolicy, buffer_size=100)
    model.learn(40)
    assert model.exploration_rate == 0


@pytest.mark.parametrize("algorithm", [DDPG, TD3])
def test_action_noise_is_set_to_none_with_a_warning(algorithm: Any, tmp_path: Path) -> None:
    action_noise = NormalActionNoise(np.zeros(1), np.ones(1))
    ignored = (
        r"action_noise=NormalActionNoise\(.*\) is ignored and set to None: .* Omit action_noise"
    )
    with pytest.warns(UserWarning, match=ignored):
        model = make(algorithm, "NoisyMlpPolicy", action_noise=action_noise)
    assert model.action_noise is None
    model.learn(40)
    assert model.action_noise is None
    model.save(tmp_path / "model")
    with pytest.warns(UserWarning, match=ignored):
        assert algorithm.load(tmp_path / "model", action_noise=action_noise).action_noise is None


def test_models_with_other_policies_are_not_affected() -> None:
    model = make(DQN, "MlpPolicy", exploration_final_eps=0.2)
    model.learn(40)
    assert model.exploration_rate > 0
    buffer = make(A2C, "MlpPolicy").rollout_buffer
    assert not {"reset", "get", "_get_samples"} & vars(buffer).keys()
    action_noise = NormalActionNoise(np.zeros(1), np.ones(1))
    assert make(TD3, "MlpPolicy", action_noise=action_noise).action_noise is action_noise


class AnotherAlgorithm(OnPolicyAlgorithm):
    policy_aliases = A2C.policy_aliases


def test_other_on_policy_algorithms_raise() -> None:
    settings = {"gamma": 0.9, "gae_lambda": 1.0, "ent_coef": 0.0, "vf_coef": 0.5}
    settings |= {"learning_rate": 1e-3, "n_steps": 5, "max_grad_norm": 0.5, "use_sde": False}
    with pytest.raises(TypeError, match="expected A2C, PPO or TRPO, got AnotherAlgorithm"):
        AnotherAlgorithm(NoisyActorCriticPolicy, "CartPole-v1", sde_sample_freq=-1, **settings)


@pytest.mark.parametrize("algorithm", [A2C, PPO, TRPO])
def test_a_gpu_is_advised_against_for_small_networks_only(algorithm: Any) -> None:
    small, images = make(algorithm, "NoisyMlpPolicy"), make(algorithm, "NoisyCnnPolicy", Images())
    for model in (small, images):
        model.device = torch.device("cuda")  # as if there were one
    with pytest.warns(UserWarning, match=f"trying to run {algorithm.__name__} on the GPU"):
        small._maybe_recommend_cpu()
    images._maybe_recommend_cpu()  # warnings are errors


@pytest.mark.parametrize("count", [1, 3])
def test_a_copied_model_has_its_own_noise(count: int) -> None:
    model = make(A2C, NoisyActorCriticPolicy, parallel(count))
    before = held_noise(model.policy)
    again = copy.deepcopy(model)  # a model that has learnt cannot be copied, with any policy
    with record_noise(again.policy) as log:
        again.learn(30)
    assert all(event.noisy for event in log.events)
    assert all(torch.equal(value, held_noise(model.policy)[k]) for k, value in before.items())


def test_a_replaced_policy_is_resampled_too() -> None:
    model = make(A2C, NoisyActorCriticPolicy)
    model.policy = make(A2C, NoisyActorCriticPolicy).policy
    with record_noise(model.policy) as log:
        model.learn(25)
    layer = log.events[0].layer
    assert {event.sample_index for event in log.select(layer=layer)} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("algorithm", "policy"), POLICIES)
def test_a_saved_model_is_loaded_and_resumed(algorithm: Any, policy: str, tmp_path: Path) -> None:
    model = make(algorithm, policy)
    model.learn(64)
    model.save(tmp_path / "model")
    again = algorithm.load(tmp_path / "model", env=model.get_env())
    for key, value in model.policy.state_dict().items():
        assert torch.equal(value, again.policy.state_dict()[key])
    observation = model.observation_space.sample()
    assert again.predict(observation, deterministic=True)[0] == pytest.approx(
        model.predict(observation, deterministic=True)[0]
    )
    again.learn(64, reset_num_timesteps=False)
    assert again.num_timesteps >= 128
    model.set_parameters(again.get_parameters())
    assert all(
        torch.equal(value, again.policy.state_dict()[key])
        for key, value in model.policy.state_dict().items()
    )


def test_a_model_loaded_in_a_new_process_resamples_its_noise(tmp_path: Path) -> None:
    """Unpickling the policy imports the module that extends the algorithms."""
    make(A2C, "NoisyMlpPolicy").save(tmp_path / "model")
    code = """
import sys
from stable_baselines3 import A2C
from noisynet import record_noise
model = A2C.load(sys.argv[1], env=A2C("MlpPolicy", "CartPole-v1").get_env(), device="cpu")
with record_noise(model.policy) as log:
    model.learn(15)
print(len({event.sample_index for event in log.select(layer=log.events[0].layer)}))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "model")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "3"  # one per roll-out of 5 steps


@pytest.mark.parametrize(("algorithm", "name"), POLICIES)
def test_a_policy_is_saved_and_loaded(algorithm: Any, name: str, tmp_path: Path) -> None:
    policy = make(algorithm, name, policy_kwargs={"sigma0": 0.2}).policy
    policy.save(str(tmp_path / "policy"))
    again = type(policy).load(str(tmp_path / "policy"))
    assert {layer.sigma0 for layer in noisy_layers(again).values()} == {0.2}


LEARNING: dict[Any, dict[str, Any]] = {
    DQN: {"learning_rate": 2e-3, "target_update_interval": 100, "train_freq": 1},
    QRDQN: {"learning_rate": 2e-3, "target_update_interval": 100, "train_freq": 1},
    A2C: {"learning_rate": 2e-3},
    PPO: {"learning_rate": 5e-3, "n_steps": 64, "batch_size": 32, "n_epochs": 4},
    TRPO: {"learning_rate": 5e-3, "n_steps": 64, "batch_size": 32, "target_kl": 0.05},
}
DISCRETE = [each for each in POLICIES if each[0] in LEARNING]


@pytest.mark.parametrize(
    ("algorithm", "policy"),
    [
        pytest.param(*each, marks=pytest.mark.slow if each in POLICIES[1:4] else ())
        for each in DISCRETE
    ],
)
def test_models_learn(algorithm: Any, policy: str) -> None:
    shape = {"net_arch": [32], **({"n_quantiles": 10} if algorithm is QRDQN else {})}
    options = {"gamma": 0.5, "policy_kwargs": shape, **LEARNING[algorithm]}
    model = make(algorithm, policy, Signs(), **options)
    model.learn({A2C: 3_000, PPO: 1_500, TRPO: 1_500}.get(algorithm, 800))
    observations = np.eye(4, dtype=np.float32)
    assert model.predict(observations, deterministic=True)[0].tolist() == [0, 1, 2, 3]


def test_without_the_library_the_error_has_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.delitem(sys.modules, "noisynet.integrations.sb3")
    with pytest.raises(ImportError, match=re.escape('pip install "noisynet[sb3]"')):
        importlib.import_module("noisynet.integrations.sb3")
