from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from noisynet import record_noise
from noisynet.layers import held_noise, noisy_layers

pytest.importorskip("sb3_contrib", reason="pip install 'noisynet[sb3]'")

from sb3_contrib import QRDQN
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import NatureCNN

from noisynet.integrations.sb3_value import NoisyQRDQNPolicy, NoisyQuantileNetwork

from .sb3_models import Images, Signs, make, networks, parallel, passes

VALUE_POLICIES = [
    (DQN, "NoisyMlpPolicy"),
    (DQN, "NoisyDuelingMlpPolicy"),
    (QRDQN, "NoisyMlpPolicy"),
]


@pytest.mark.parametrize(("algorithm", "policy"), VALUE_POLICIES)
def test_every_pass_of_training_has_fresh_noise(algorithm: Any, policy: str) -> None:
    model = make(algorithm, policy)
    with record_noise(networks(model)) as log:
        model.learn(120)
    # The network acts in 100 steps after 20 random ones, with an update every fourth step.
    assert passes(log, network="online", with_gradient=False) == (100, 100, 100)
    assert passes(log, network="online", with_gradient=True) == (25, 25, 25)
    assert passes(log, network="target") == (25, 25, 25)
    assert model.exploration_rate == 0


@pytest.mark.parametrize(("algorithm", "policy"), VALUE_POLICIES)
def test_deterministic_predictions_use_the_mean_weights_and_draw_nothing(
    algorithm: Any, policy: str
) -> None:
    model = make(algorithm, policy)
    network = networks(model)["online"]
    before, stream = held_noise(network), torch.get_rng_state()
    observation = model.observation_space.sample()
    with record_noise(network) as log:
        actions = {int(model.predict(observation, deterministic=True)[0]) for _ in range(20)}
    assert len(actions) == 1
    assert passes(log) == (20, 0, 0)
    assert torch.equal(torch.get_rng_state(), stream)
    after = held_noise(network)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_stochastic_predictions_resample_the_noise() -> None:
    model = make(DQN, "NoisyMlpPolicy")
    with record_noise(model.q_net) as log:
        for _ in range(20):
            model.predict(model.observation_space.sample(), deterministic=False)
    assert passes(log) == (20, 20, 20)


def test_evaluate_policy_has_no_noise() -> None:
    model = make(DQN, "NoisyMlpPolicy", Signs())
    with record_noise(model.q_net) as log, pytest.warns(UserWarning, match="Monitor"):
        evaluate_policy(model, Signs(), n_eval_episodes=2)
    assert passes(log) == (16, 0, 0)


def test_parallel_environments_have_separate_noise() -> None:
    model = make(DQN, "NoisyMlpPolicy", parallel(3))
    with record_noise(model.q_net) as log:
        model.learn(60)
    acting = log.select(with_gradient=False)
    assert {event.rows for event in acting} == {3}
    for event in acting:
        values = [event.sample.weight, *(row.weight for row in event.sample.other_rows)]
        assert len(values) == 3
        assert not torch.allclose(values[0], values[1], atol=1e-2)
    assert {event.rows for event in log.select(with_gradient=True)} == {None}


def test_dueling_values_are_value_plus_centred_advantage() -> None:
    model = make(DQN, "NoisyDuelingMlpPolicy", policy_kwargs={"net_arch": [16]})
    head = model.q_net.q_net
    x = torch.randn(5, 4)
    advantage = head.advantage(x)
    expected = head.value(x) + advantage - advantage.mean(dim=1, keepdim=True)
    assert torch.allclose(head(x), expected)


@pytest.mark.parametrize("policy", ["NoisyCnnPolicy", "NoisyDuelingCnnPolicy"])
def test_images_get_convolutions_followed_by_noisy_layers_only(policy: str) -> None:
    model = make(DQN, policy, Images())
    assert isinstance(model.q_net.features_extractor, NatureCNN)
    assert not any(type(layer) is nn.Linear for layer in model.q_net.modules())
    widths = [layer.out_features for layer in noisy_layers(model.q_net).values()]
    dueling = "Dueling" in policy
    assert widths.count(512) == (2 if dueling else 1)  # in both streams, or after the convolutions
    model.learn(24)


def test_both_networks_of_qrdqn_are_noisy_with_separate_samples() -> None:
    arguments = {"sigma0": 0.2, "noise": "independent", "n_quantiles": 7, "net_arch": [16]}
    policy = make(QRDQN, NoisyQRDQNPolicy, policy_kwargs=arguments).policy
    online, target = policy.quantile_net, policy.quantile_net_target
    assert isinstance(online, NoisyQuantileNetwork)
    layers = noisy_layers(online)
    assert {(layer.noise, layer.sigma0) for layer in layers.values()} == {("independent", 0.2)}
    x = torch.ones(5, 4)
    with torch.no_grad():
        outputs = online(x)
        assert outputs.shape == (5, 7, 2)
        torch.testing.assert_close(outputs, outputs[:1].expand_as(outputs))  # one per batch
        assert not torch.allclose(outputs, target(x))
        assert not torch.allclose(outputs, online(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "expected"), [("NoisyMlpPolicy", 400), ("NoisyDuelingMlpPolicy", 150)]
)
def test_dqn_learns_cartpole(policy: str, expected: float) -> None:
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
    mean_return, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=10)
    assert mean_return > expected
