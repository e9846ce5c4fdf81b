from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from noisynet import record_noise
from noisynet.layers import held_noise, noisy_layers

pytest.importorskip("sb3_contrib", reason="pip install 'noisynet[sb3]'")

from stable_baselines3 import DDPG, TD3
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.torch_layers import NatureCNN

from noisynet.integrations.sb3_continuous import NoisyActor, NoisyCritic, NoisyTD3Policy

from .sb3_models import Dictionaries, SteeredImages, make, parallel, passes

POLICY = "NoisyMlpPolicy"


def actors(model: Any) -> dict[str, nn.Module]:
    return {"online": model.policy.actor, "target": model.policy.actor_target}


@pytest.mark.parametrize(("algorithm", "delay"), [(DDPG, 1), (TD3, 2)])
def test_every_pass_of_training_has_fresh_noise(algorithm: Any, delay: int) -> None:
    model = make(algorithm, POLICY)
    with record_noise(actors(model)) as log:
        model.learn(120)
    # The actor acts in 100 steps after 20 random ones, with an update of the critics after each
    # and of the actor after every `delay`.
    steps, learnt = 100, 100 // delay
    assert passes(log, network="online", with_gradient=False) == (steps, steps, steps)
    assert passes(log, network="online", with_gradient=True) == (learnt, learnt, learnt)
    assert passes(log, network="target") == (steps, steps, steps)


@pytest.mark.parametrize(("algorithm", "delay"), [(DDPG, 1), (TD3, 2)])
def test_noisy_critics_use_one_sample_per_training_step(algorithm: Any, delay: int) -> None:
    model = make(algorithm, POLICY, policy_kwargs={"noisy_critics": True})
    critics = {"online": model.policy.critic, "target": model.policy.critic_target}
    with record_noise(critics) as log:
        model.learn(120)
    assert passes(log, network="target") == (100, 100, 100)
    # The first critic is also passed in the actor's loss, with the sample of the critics' loss.
    both = 100 + 100 // delay
    assert passes(log, network="online", layer="qf0.0") == (both, both, 100)
    if algorithm is TD3:
        assert passes(log, network="online", layer="qf1.0") == (100, 100, 100)
        first, second = (log.select(layer=f"qf{i}.0", network="target")[0] for i in (0, 1))
        assert not torch.allclose(first.sample.weight, second.sample.weight, atol=1e-2)


def test_critics_have_no_noise_unless_asked() -> None:
    assert type(make(TD3, POLICY).policy.critic) is ContinuousCritic
    policy = make(TD3, POLICY, policy_kwargs={"noisy_critics": True, "sigma0": 0.3}).policy
    for network, kind in (
        (policy.actor, NoisyActor),
        (policy.actor_target, NoisyActor),
        (policy.critic, NoisyCritic),
        (policy.critic_target, NoisyCritic),
    ):
        assert type(network) is kind
        assert {layer.sigma0 for layer in noisy_layers(network).values()} == {0.3}
        assert not any(type(layer) is nn.Linear for layer in network.modules())
    saved = policy._get_constructor_parameters()
    assert (saved["noisy_critics"], saved["sigma0"]) == (True, 0.3)


def test_mean_and_noise_of_actor_and_critics_are_learnt() -> None:
    model = make(TD3, POLICY, policy_kwargs={"noisy_critics": True})
    networks = nn.ModuleDict({"actor": model.actor, "critic": model.critic})
    before = {name: value.clone() for name, value in networks.named_parameters()}
    model.learn(60)
    unchanged = [name for name, x in networks.named_parameters() if torch.equal(x, before[name])]
    assert unchanged == []
    assert len(before) == 3 * 2 * 4


@pytest.mark.parametrize("algorithm", [DDPG, TD3])
def test_deterministic_predictions_use_the_mean_weights_and_draw_nothing(algorithm: Any) -> None:
    model = make(algorithm, POLICY)
    before, stream = held_noise(model.policy), torch.get_rng_state()
    observation = model.observation_space.sample()
    with record_noise(model.actor) as log:
        actions = {model.predict(observation, deterministic=True)[0].item() for _ in range(20)}
    assert len(actions) == 1
    assert passes(log) == (20, 0, 0)
    assert torch.equal(torch.get_rng_state(), stream)
    after = held_noise(model.policy)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_stochastic_predictions_resample_the_noise() -> None:
    model = make(TD3, POLICY)
    observation = model.observation_space.sample()
    with record_noise(model.actor) as log:
        actions = {model.predict(observation, deterministic=False)[0].item() for _ in range(20)}
    assert len(actions) == 20
    assert passes(log) == (20, 20, 20)


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_parallel_environments_have_separate_noise(noise: str) -> None:
    env = parallel(3, "Pendulum-v1")
    model = make(TD3, POLICY, env, policy_kwargs={"noise": noise})
    with record_noise(model.actor) as log:
        model.learn(60)
    acting = log.select(with_gradient=False)
    assert {event.rows for event in acting} == {3}
    for event in acting:
        values = [event.sample.weight, *(row.weight for row in event.sample.other_rows)]
        assert len(values) == 3
        assert not torch.allclose(values[0], values[1], atol=1e-2)
    assert {event.rows for event in log.select(with_gradient=True)} == {None}


def test_images_get_convolutions_followed_by_noisy_layers_only() -> None:
    arguments = {"noisy_critics": True, "net_arch": [16]}
    model = make(TD3, "NoisyCnnPolicy", SteeredImages(), policy_kwargs=arguments)
    for network in (model.actor, model.critic):
        assert isinstance(network.features_extractor, NatureCNN)
        assert not any(type(layer) is nn.Linear for layer in network.modules())
    assert model.actor.features_extractor is not model.critic.features_extractor
    model.learn(24)


def test_a_shared_extractor_must_not_have_noisy_layers() -> None:
    arguments = {"share_features_extractor": True}
    with pytest.raises(ValueError, match="expected share_features_extractor=False, got True"):
        make(TD3, "NoisyCnnPolicy", SteeredImages(), policy_kwargs=arguments)
    model = make(TD3, POLICY, policy_kwargs=arguments)  # flattens only
    assert model.actor.features_extractor is model.critic.features_extractor
    model.learn(24)


def test_dictionaries_are_observations_too() -> None:
    class SteeredDictionaries(Dictionaries):
        action_space = SteeredImages.action_space

    model = make(DDPG, "NoisyMultiInputPolicy", SteeredDictionaries())
    model.learn(30)
    assert isinstance(model.policy, NoisyTD3Policy)
    assert model.predict(model.observation_space.sample())[0].shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [DDPG, TD3])
def test_models_learn_pendulum(algorithm: Any) -> None:
    options = {"gamma": 0.98, "learning_starts": 1_000, "batch_size": 128, "buffer_size": 20_000}
    model = make(algorithm, POLICY, policy_kwargs={"net_arch": [64, 64]}, **options)
    before, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=20)
    model.learn(8_000)
    after, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=20)
    last_episodes = np.mean([episode["r"] for episode in list(model.ep_info_buffer)[-10:]])
    assert before < -900  # random actions return about -1200
    assert last_episodes > -300  # measured: DDPG -124, -134, -143; TD3 -193, -181
    assert after > -800  # mean weights; the last policy of DDPG varies more than its episodes do
