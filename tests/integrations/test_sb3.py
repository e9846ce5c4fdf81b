"""The policies inside Stable-Baselines3 itself: who draws when, and whether they learn."""

from __future__ import annotations

import copy
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from typer.testing import CliRunner

from noisynet import NoisyLinear, check_noise, record_noise
from noisynet.cli import app
from noisynet.layers import NoiseLog, held_noise, noisy_layers

pytest.importorskip("stable_baselines3")
sb3_contrib = pytest.importorskip("sb3_contrib")

from stable_baselines3 import A2C, DQN, PPO  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.torch_layers import NatureCNN  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: E402
from stable_baselines3.dqn.policies import DQNPolicy  # noqa: E402

from noisynet.integrations import sb3  # noqa: E402
from noisynet.integrations.sb3 import (  # noqa: E402
    NoisyActorCriticPolicy,
    NoisyDQNPolicy,
    NoisyDuelingDQNPolicy,
)

QRDQN = sb3_contrib.QRDQN


def make(algorithm: Any, policy: Any, env: Any = "CartPole-v1", **options: Any) -> Any:
    if algorithm in (DQN, QRDQN):
        options = {"learning_starts": 20, "target_update_interval": 50, **options}
        options.setdefault("buffer_size", 1_000)
    return algorithm(policy, env, seed=0, device="cpu", **options)


class Signs(gymnasium.Env[Any, Any]):
    """Episodes of 8 steps: one of four signs is shown, and the action that fits it pays 1."""

    observation_space = gymnasium.spaces.Box(0, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(int(action) == self.sign)
        self.steps += 1
        return self.show(), reward, self.steps == 8, False, {}

    def show(self) -> Any:
        self.sign = int(self.np_random.integers(4))
        return np.eye(4, dtype=np.float32)[self.sign]


def watched(model: Any) -> dict[str, nn.Module]:
    policy = model.policy
    if isinstance(model, DQN):
        return {"online": policy.q_net, "target": policy.q_net_target}
    return {"online": policy.quantile_net, "target": policy.quantile_net_target}


def passes(log: NoiseLog, **which: Any) -> tuple[int, int, int]:
    """How many passes through a layer there were, how many noisy ones, how many draws."""
    events = log.select(**which)
    layers = {event.layer for event in events}
    draws = {(event.layer, event.draw) for event in events if event.noisy}
    noisy = sum(event.noisy for event in events)
    assert all(len(part) % len(layers) == 0 for part in (events, draws))
    return len(events) // len(layers), noisy // len(layers), len(draws) // len(layers)


VALUE_POLICIES = [
    (DQN, NoisyDQNPolicy),
    (DQN, NoisyDuelingDQNPolicy),
    (QRDQN, sb3.NoisyQRDQNPolicy),
]


# --- DQN, Dueling, QR-DQN -------------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "policy"), VALUE_POLICIES)
def test_every_pass_of_training_is_noisy_and_fresh(algorithm: Any, policy: Any) -> None:
    model = make(algorithm, policy)
    with record_noise(watched(model)) as log:
        model.learn(120)
    # 100 steps are acted by the network after 20 random ones; an update falls on every fourth.
    assert passes(log, network="online", with_gradient=False) == (100, 100, 100)
    assert passes(log, network="online", with_gradient=True) == (25, 25, 25)
    assert passes(log, network="target") == (25, 25, 25)
    assert model.exploration_rate == 0


@pytest.mark.parametrize(("algorithm", "policy"), VALUE_POLICIES)
def test_deterministic_predictions_use_the_means_and_leave_the_noise_alone(
    algorithm: Any, policy: Any
) -> None:
    model = make(algorithm, policy)
    network = watched(model)["online"]
    before, stream = held_noise(network), torch.get_rng_state()
    observation = model.observation_space.sample()
    with record_noise(network) as log:
        actions = {int(model.predict(observation, deterministic=True)[0]) for _ in range(20)}
    assert len(actions) == 1
    assert passes(log) == (20, 0, 0)
    assert torch.equal(torch.get_rng_state(), stream)
    after = held_noise(network)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_other_predictions_draw_afresh_each_time() -> None:
    model = make(DQN, NoisyDQNPolicy)
    with record_noise(model.q_net) as log:
        for _ in range(20):
            model.predict(model.observation_space.sample(), deterministic=False)
    assert passes(log) == (20, 20, 20)


def test_evaluation_by_the_library_has_no_noise() -> None:
    model = make(DQN, NoisyDQNPolicy, Signs())
    with record_noise(model.q_net) as log, pytest.warns(UserWarning, match="Monitor"):
        evaluate_policy(model, Signs(), n_eval_episodes=2)
    assert passes(log) == (16, 0, 0)


def test_environments_side_by_side_have_noise_of_their_own() -> None:
    model = make(DQN, NoisyDQNPolicy, DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 3))
    with record_noise(model.q_net) as log:
        model.learn(60)
    acting = log.select(with_gradient=False)
    assert {event.rows for event in acting} == {3}
    for event in acting:
        values = [event.sample.weight, *(other.weight for other in event.sample.others)]
        assert len(values) == 3
        assert not torch.allclose(values[0], values[1], atol=1e-2)
    assert {event.rows for event in log.select(with_gradient=True)} == {None}


@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_another_epsilon_is_set_to_0_with_a_word(algorithm: Any) -> None:
    with pytest.warns(UserWarning, match=r"exploration_final_eps=0\.2 is taken for 0"):
        model = make(algorithm, "NoisyMlpPolicy", exploration_final_eps=0.2)
    model.learn(40)
    assert model.exploration_rate == 0


def test_models_with_other_policies_are_left_alone() -> None:
    model = make(DQN, "MlpPolicy", exploration_final_eps=0.2)
    model.learn(40)
    assert model.exploration_rate > 0
    assert type(make(A2C, "MlpPolicy").rollout_buffer).__name__ == "RolloutBuffer"


def test_sigma0_and_noise_are_those_asked_for() -> None:
    asked = {"sigma0": 0.3, "noise": "independent", "net_arch": [16]}
    model = make(DQN, NoisyDQNPolicy, policy_kwargs=asked)
    layers = noisy_layers(model.q_net)
    assert {layer.noise for layer in layers.values()} == {"independent"}
    assert {layer.sigma0 for layer in layers.values()} == {0.3}
    assert [layer.out_features for layer in layers.values()] == [16, 2]
    assert not any(type(layer) is nn.Linear for layer in model.policy.modules())


def test_dueling_values_are_value_plus_advantage_without_its_mean() -> None:
    model = make(DQN, "NoisyDuelingMlpPolicy", policy_kwargs={"net_arch": [16]})
    head = model.q_net.q_net
    x = torch.randn(5, 4)
    advantage = head.advantage(x)
    expected = head.value(x) + advantage - advantage.mean(dim=1, keepdim=True)
    assert torch.allclose(head(x), expected)


class Screens(gymnasium.Env[Any, Any]):
    """Nothing but noise to look at."""

    observation_space = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.mark.parametrize("policy", ["NoisyCnnPolicy", "NoisyDuelingCnnPolicy"])
def test_images_get_convolutions_and_every_layer_after_them_is_noisy(policy: str) -> None:
    model = make(DQN, policy, Screens())
    assert isinstance(model.q_net.features_extractor, NatureCNN)
    assert not any(type(layer) is nn.Linear for layer in model.q_net.modules())
    hidden = {layer.out_features for layer in noisy_layers(model.q_net).values()}
    assert 512 in hidden  # in the trunk, or in both streams
    model.learn(24)


class Tiny(Screens):
    observation_space = spaces.Box(0, 255, (7, 7, 3), np.uint8)


class Parts(Screens):
    """Observations of several parts."""

    observation_space = spaces.Dict(  # type: ignore[assignment]
        {"position": spaces.Box(-1, 1, (3,)), "velocity": spaces.Box(-1, 1, (2,))}
    )


@pytest.mark.parametrize("env", [Tiny, Parts])
@pytest.mark.parametrize(
    ("algorithm", "policy"), [(DQN, "NoisyDuelingMlpPolicy"), (A2C, "NoisyMultiInputPolicy")]
)
def test_small_images_and_several_parts_are_observations_too(
    algorithm: Any, policy: str, env: Any
) -> None:
    model = make(algorithm, policy, DummyVecEnv([env] * 2))
    model.learn(40)
    assert check_noise(model, updates=10)["noisy while acting"].passed


class Inherited(DQN):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)


def test_a_class_derived_from_dqn_has_no_epsilon_either() -> None:
    model = make(Inherited, NoisyDQNPolicy, learning_starts=20, buffer_size=100)
    model.learn(40)
    assert model.exploration_rate == 0


# --- A2C and PPO ----------------------------------------------------------------------------------


def draws(log: NoiseLog) -> list[tuple[bool, set[int]]]:
    """Roll-outs and updates by turns: which draws of the policy's first layer they used."""
    layer = log.events[0].layer
    found: list[tuple[bool, set[int]]] = []
    for event in log.select(layer=layer):
        if not found or found[-1][0] != event.with_gradient:
            found.append((event.with_gradient, set()))
        found[-1][1].add(event.draw)
    return found


@pytest.mark.parametrize("noise", ["independent", "factorised"])
@pytest.mark.parametrize(
    ("algorithm", "options"), [(A2C, {}), (PPO, {"n_steps": 16, "batch_size": 8, "n_epochs": 3})]
)
def test_one_draw_is_held_from_a_rollout_to_the_last_of_its_updates(
    algorithm: Any, options: Any, noise: str
) -> None:
    model = make(algorithm, NoisyActorCriticPolicy, policy_kwargs={"noise": noise}, **options)
    with record_noise(model.policy) as log:
        model.learn(5 * model.n_steps)
    found = draws(log)
    assert [learning for learning, _ in found] == [False, True] * 5
    assert [used for _, used in found] == [{1 + i // 2} for i in range(10)]


@pytest.mark.parametrize("noise", ["independent", "factorised"])
@pytest.mark.parametrize(
    ("algorithm", "options"), [(A2C, {}), (PPO, {"n_steps": 8, "batch_size": 8, "n_epochs": 2})]
)
def test_each_environment_is_learnt_from_with_the_noise_that_it_acted_with(
    algorithm: Any, options: Any, noise: str
) -> None:
    env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 3)
    asked = {"policy_kwargs": {"noise": noise}, **options}
    model = make(algorithm, NoisyActorCriticPolicy, env, **asked)
    ratios: list[Tensor] = []
    buffer, evaluate = model.rollout_buffer, model.policy.evaluate_actions

    def check(obs: Any, actions: Any) -> Any:
        values, log_prob, entropy = evaluate(obs, actions)
        if not ratios or algorithm is A2C:  # before the first update the ratio π/π_old is 1
            rows = [int(np.argmin(np.abs(buffer.observations - o).sum(1))) for o in obs.numpy()]
            old = torch.from_numpy(buffer.log_probs[rows].flatten())
            ratios.append((log_prob - old).exp())
        return values, log_prob, entropy

    model.policy.evaluate_actions = check
    model.learn(3 * model.n_steps)
    assert ratios
    assert torch.allclose(torch.cat(ratios), torch.ones(1), atol=1e-4)
    samples = held_noise(model.policy)
    assert all(len(sample) == 3 for sample in samples.values())


def test_an_evaluation_in_the_middle_leaves_the_rollouts_noise_in_force() -> None:
    model = make(A2C, NoisyActorCriticPolicy)
    model.learn(5)
    before = held_noise(model.policy)
    with record_noise(model.policy) as log:
        model.predict(model.observation_space.sample(), deterministic=True)
        assert not any(event.noisy for event in log.events)
        model.predict(np.stack([model.observation_space.sample()] * 2), deterministic=False)
    assert all(event.noisy for event in log.events[-2:])
    after = held_noise(model.policy)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_truncated_episodes_of_several_environments_are_bootstrapped() -> None:
    def short() -> Any:
        return gymnasium.make("CartPole-v1", max_episode_steps=3)

    model = make(A2C, NoisyActorCriticPolicy, DummyVecEnv([short] * 2))
    model.learn(40)
    assert model.num_timesteps == 40


def test_state_dependent_exploration_is_refused() -> None:
    with pytest.raises(ValueError, match="expected use_sde=False"):
        make(A2C, NoisyActorCriticPolicy, "Pendulum-v1", use_sde=True)


@pytest.mark.parametrize("several", [1, 3])
def test_a_copied_model_goes_on_by_itself(several: int) -> None:
    env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * several)
    model = make(A2C, NoisyActorCriticPolicy, env)
    before = held_noise(model.policy)
    again = copy.deepcopy(model)  # once it has learnt, the library's own cannot be copied either
    with record_noise(again.policy) as log:
        again.learn(30)
    assert all(event.noisy for event in log.events)
    assert all(torch.equal(value, held_noise(model.policy)[k]) for k, value in before.items())


def test_another_policy_that_a_model_is_given_is_told_too() -> None:
    model = make(A2C, NoisyActorCriticPolicy)
    model.policy = make(A2C, NoisyActorCriticPolicy).policy
    with record_noise(model.policy) as log:
        model.learn(25)
    assert [used for _, used in draws(log)] == [{1 + i // 2} for i in range(10)]


def test_after_several_environments_a_policy_can_still_be_asked_about_one_observation() -> None:
    env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 3)
    model = make(A2C, NoisyActorCriticPolicy, env)
    model.learn(15)
    with record_noise(model.policy) as log:
        asked = model.policy.get_distribution(torch.zeros(1, 4))
    assert asked.distribution.probs.shape == (1, 2)
    assert not any(event.noisy for event in log.events)


def test_each_row_of_a_noisy_prediction_has_its_own_sample() -> None:
    model = make(A2C, NoisyActorCriticPolicy)
    with record_noise(model.policy) as log:
        model.predict(np.zeros((5, 4), np.float32), deterministic=False)
    layer = log.events[0].layer
    assert len({event.draw for event in log.select(layer=layer)}) == 5


def test_algorithms_that_ask_otherwise_are_refused() -> None:
    with pytest.raises(TypeError, match="expected A2C or PPO, got TRPO"):
        sb3_contrib.TRPO(NoisyActorCriticPolicy, "CartPole-v1")


# --- all of them ----------------------------------------------------------------------------------

EVERY: list[Any] = [
    (DQN, "NoisyMlpPolicy"),
    (DQN, "NoisyDuelingMlpPolicy"),
    (QRDQN, "NoisyMlpPolicy"),
    (A2C, "NoisyMlpPolicy"),
    (PPO, "NoisyMlpPolicy"),
]
SMALL = {DQN: {}, QRDQN: {}, A2C: {}, PPO: {"n_steps": 32, "batch_size": 16, "n_epochs": 2}}


@pytest.mark.parametrize(("algorithm", "name"), EVERY)
def test_a_saved_model_is_loaded_and_continues(algorithm: Any, name: str, tmp_path: Path) -> None:
    model = make(algorithm, name, **SMALL[algorithm])
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


@pytest.mark.parametrize(("algorithm", "name"), EVERY)
def test_a_policy_alone_is_saved_and_loaded(algorithm: Any, name: str, tmp_path: Path) -> None:
    policy = make(algorithm, name, policy_kwargs={"sigma0": 0.2}, **SMALL[algorithm]).policy
    policy.save(str(tmp_path / "policy"))
    again = type(policy).load(str(tmp_path / "policy"))
    assert {layer.sigma0 for layer in noisy_layers(again).values()} == {0.2}


@pytest.mark.parametrize(("algorithm", "name"), EVERY)
def test_the_audit_finds_nothing_wrong(algorithm: Any, name: str) -> None:
    report = check_noise(make(algorithm, name, **SMALL[algorithm]), updates=40)
    assert report.passed, str(report)


@pytest.mark.parametrize(("algorithm", "name"), EVERY)
def test_the_audit_moves_neither_the_model_nor_a_stream(algorithm: Any, name: str) -> None:
    model = make(algorithm, name, **SMALL[algorithm])
    model.learn(64)
    weights = {key: value.clone() for key, value in model.policy.state_dict().items()}
    noise, torchs = held_noise(model.policy), torch.get_rng_state()
    numpys = repr(np.random.get_state())
    check_noise(model, updates=2)
    after = model.policy.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in weights.items())
    assert all(torch.equal(value, held_noise(model.policy)[key]) for key, value in noise.items())
    assert torch.equal(torchs, torch.get_rng_state())
    assert repr(np.random.get_state()) == numpys


LEARNING: dict[Any, dict[str, Any]] = {
    DQN: {"learning_rate": 2e-3, "target_update_interval": 100, "train_freq": 1},
    QRDQN: {"learning_rate": 2e-3, "target_update_interval": 100, "train_freq": 1},
    A2C: {"learning_rate": 2e-3},
    PPO: {"learning_rate": 5e-3, "n_steps": 64, "batch_size": 32, "n_epochs": 4},
}


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        pytest.param(*which, marks=pytest.mark.slow if which in EVERY[1:4] else ())
        for which in EVERY
    ],
)
def test_they_learn(algorithm: Any, name: str) -> None:
    shape = {"net_arch": [32], **({"n_quantiles": 10} if algorithm is QRDQN else {})}
    options = {"gamma": 0.5, "policy_kwargs": shape, **LEARNING[algorithm]}
    model = make(algorithm, name, Signs(), **options)
    model.learn({A2C: 3_000, PPO: 1_500}.get(algorithm, 800))
    observations = np.eye(4, dtype=np.float32)
    assert model.predict(observations, deterministic=True)[0].tolist() == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "expected"), [(NoisyDQNPolicy, 400), (NoisyDuelingDQNPolicy, 150)]
)
def test_cartpole_is_learnt(policy: Any, expected: float) -> None:
    model = DQN(
        policy,
        "CartPole-v1",
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1_000,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        policy_kwargs={"net_arch": [256, 256]},
        seed=0,
    )
    model.learn(50_000)
    score, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=10)
    assert score > expected


# --- what the audit says of others ----------------------------------------------------------------


class GatedLinear(NoisyLinear):
    """The layer that most write: noise in train mode only."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.resample_noise()
            return super().forward(x)
        return nn.functional.linear(x, self.weight_mu, self.bias_mu)


class GatedPolicy(DQNPolicy):
    def make_q_net(self) -> Any:
        network = super().make_q_net()
        for index, layer in enumerate(network.q_net):
            if isinstance(layer, nn.Linear):
                network.q_net[index] = GatedLinear(layer.in_features, layer.out_features)
        return network


@pytest.fixture
def gated() -> Any:
    return make(DQN, GatedPolicy)


def test_a_layer_gated_by_training_acts_and_bootstraps_without_noise(gated: Any) -> None:
    with record_noise(watched(gated)) as log:
        gated.learn(120)
    random_actions = log.select(network="online", with_gradient=False)
    assert random_actions
    assert not any(event.noisy for event in random_actions)
    assert passes(log, network="target")[1] == 0


def test_the_audit_names_its_faults(gated: Any) -> None:
    report = check_noise(gated, updates=40)
    faults = {check.question: check.evidence for check in report.checks if check.passed is False}
    assert any("silent in eval mode" in evidence for evidence in faults.values())
    assert any("acting" in question.lower() for question in faults)


def test_a_file_is_audited_by_the_command_line_if_it_is_trusted(tmp_path: Path) -> None:
    make(DQN, "NoisyMlpPolicy").save(tmp_path / "model.zip")
    file = f"sb3:{tmp_path / 'model.zip'}"
    refused = CliRunner().invoke(app, ["audit", file])
    assert refused.exit_code == 2
    assert "loading a pickle can run any code" in refused.output
    allowed = CliRunner().invoke(app, ["audit", file, "--trust"])
    assert allowed.exit_code == 0, allowed.output
    assert "FAIL" not in allowed.output


def test_a_broken_agent_in_a_file_ends_the_command_with_1(gated: Any, tmp_path: Path) -> None:
    gated.save(tmp_path / "model.zip")
    ended = CliRunner().invoke(app, ["audit", f"sb3:{tmp_path / 'model.zip'}", "--trust"])
    assert ended.exit_code == 1, ended.output
    assert "0 of 1200 passes noisy" in ended.output


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("sb3:nowhere.zip", "nowhere.zip, which does not exist"),
        ("rllib:{file}", "expected one of sb3, torchrl, tianshou before the colon, got 'rllib'"),
        ("sb3:{file}", "expected a file that model.save wrote"),
    ],
)
def test_what_cannot_be_audited_is_said(asked: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no model")
    named = asked.format(file=tmp_path / "text.txt")
    ended = CliRunner().invoke(app, ["audit", named, "--trust"])
    assert ended.exit_code == 2
    assert said in " ".join(ended.output.split())


@pytest.mark.parametrize("algorithm", [DQN, QRDQN, A2C, PPO])
def test_the_algorithm_of_a_file_is_found_out(algorithm: Any, tmp_path: Path) -> None:
    make(algorithm, "NoisyMlpPolicy", **SMALL[algorithm]).save(tmp_path / "model.zip")
    assert type(sb3.load(tmp_path / "model.zip")) is algorithm


@pytest.mark.parametrize("write", [lambda p: p.write_text("no zip"), lambda p: p.touch()])
def test_another_file_is_refused_by_name(write: Callable[[Path], Any], tmp_path: Path) -> None:
    write(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=r"expected a file that model\.save wrote"):
        sb3.load(tmp_path / "model.zip")


@pytest.mark.parametrize("module", ["sb3", "sb3_audit"])
def test_without_the_library_the_error_has_the_pip_line(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.delitem(sys.modules, f"noisynet.integrations.{module}", raising=False)
    with pytest.raises(ImportError, match=re.escape('pip install "noisynet[sb3]"')):
        importlib.import_module(f"noisynet.integrations.{module}")
