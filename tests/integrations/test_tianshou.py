"""Noisy networks and policies in Tianshou's own training loops."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from noisynet.audit import record_noise
from noisynet.layers import NoisyLinear, noise_off, noisy_layers

pytest.importorskip("tianshou", reason="pip install 'noisynet[tianshou]'")

from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.env.atari.atari_network import RainbowNet
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import NoisyLinear as TianshouNoisyLinear
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode

from noisynet.integrations import tianshou as integration
from noisynet.integrations.tianshou import NoisyC51Policy, NoisyPolicy, NoisyQNetwork

from .deep_sea import DeepSea
from .tianshou_agents import (
    ACTIONS,
    ENVIRONMENTS,
    collector,
    networks,
    noisy_c51,
    noisy_dqn,
    noisy_qrdqn,
    noisy_rainbow,
    online_counts,
    plain,
    tianshou_dqn,
    tianshou_network,
    tianshou_rainbow,
    train_recorded,
)

pytestmark = pytest.mark.usefixtures("uncompiled_tianshou")


@pytest.mark.parametrize("make", [noisy_dqn, noisy_c51, noisy_rainbow, noisy_qrdqn])
def test_every_pass_of_training_has_fresh_noise(make: Callable[[], Any]) -> None:
    log = train_recorded(make())
    passes = 40 * 2  # one per step and layer
    assert log.counts("act") == {"passes": passes, "noisy": passes, "distinct": passes}
    assert online_counts(log) == (passes, passes, passes)
    assert log.counts("learn", "target") == {"passes": passes, "noisy": passes, "distinct": passes}
    assert log.counts("learn", "online")["distinct"] == 2 * passes  # with the selector
    assert log.counts("test") == {"passes": 20, "noisy": 0, "distinct": 0}


def test_tianshous_layer_acts_without_noise() -> None:
    log = train_recorded(tianshou_dqn())
    assert log.counts("act") == {"passes": 80, "noisy": 0, "distinct": 0}
    assert online_counts(log) == (80, 80, 2)  # one sample per layer, of the initialisation
    assert log.counts("learn", "target") == {"passes": 80, "noisy": 0, "distinct": 0}
    assert log.counts("test") == {"passes": 20, "noisy": 0, "distinct": 0}


def test_tianshous_layer_acts_without_noise_in_rainbow() -> None:
    log = train_recorded(tianshou_rainbow())
    assert log.counts("act") == {"passes": 80, "noisy": 0, "distinct": 0}
    assert online_counts(log) == (80, 80, 80)
    assert log.counts("learn", "online")["distinct"] == 80  # the selector shares the online sample
    assert log.counts("learn", "target") == {"passes": 80, "noisy": 80, "distinct": 80}
    assert log.counts("test") == {"passes": 20, "noisy": 0, "distinct": 0}


def test_tianshous_trainer_collects_with_noise_and_tests_without() -> None:
    algorithm = noisy_dqn()
    training, testing = collector(algorithm), collector(algorithm, 2, seed=10)
    with record_noise(networks(algorithm)) as log:

        def mark(label: str) -> Callable[..., None]:
            return lambda *_: setattr(log, "label", label)

        algorithm.run_training(
            OffPolicyTrainerParams(
                training_collector=training,
                test_collector=testing,
                training_fn=mark("train"),
                test_fn=mark("test"),
                max_epochs=2,
                epoch_num_steps=30,
                collection_step_num_env_steps=ENVIRONMENTS,
                test_step_num_episodes=2,
                update_step_num_gradient_steps_per_sample=1 / ENVIRONMENTS,
                batch_size=32,
                verbose=False,
                show_progress=False,
            )
        )
    acting = [event for event in log.select("train", "online") if event.rows == ENVIRONMENTS]
    assert len(acting) == 2 * 10 * 2  # epochs × steps × layers
    trained, tested = log.counts("train"), log.counts("test")
    assert trained["passes"] == trained["noisy"] == trained["distinct"] == 4 * len(acting)
    assert tested["passes"] > 0
    assert tested["noisy"] == 0


def test_parallel_environments_have_separate_noise_and_a_batch_shares_one_sample() -> None:
    policy = noisy_dqn().policy
    batch = Batch(obs=np.ones((5, 4), np.float32), info=Batch())
    with policy_within_training_step(policy):
        with torch_train_mode(policy, enabled=False):
            acting = policy(batch).logits
            with torch.no_grad():  # targets, computed in eval mode
                selecting = policy(batch).logits
        learning = policy(batch).logits
    assert len(acting.unique(dim=0)) == 5
    assert not acting.requires_grad
    torch.testing.assert_close(selecting, selecting[:1].expand(5, -1))
    torch.testing.assert_close(learning, learning[:1].expand(5, -1))
    assert learning.requires_grad


def test_separate_noise_per_environment_can_be_disabled() -> None:
    policy = noisy_dqn(per_environment=False).policy
    batch = Batch(obs=np.ones((5, 4), np.float32), info=Batch())
    with policy_within_training_step(policy), torch_train_mode(policy, enabled=False):
        first, second = policy(batch).logits, policy(batch).logits
    torch.testing.assert_close(first, first[:1].expand(5, -1))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("training", [True, False])
def test_outside_training_steps_the_mean_weights_act_and_nothing_is_drawn(training: bool) -> None:
    policy = noisy_dqn().policy.train(training)
    observation = np.ones(4, np.float32)
    stream = torch.get_rng_state()
    values = policy(Batch(obs=observation[None], info=Batch())).logits
    action = policy.compute_action(observation)
    assert torch.equal(stream, torch.get_rng_state())
    with noise_off(policy.model):
        means, _ = policy.model(observation[None])
    assert torch.equal(values, means)
    assert action == int(means.argmax())


def test_the_network_is_noisy_with_tianshous_policy_too() -> None:
    network = NoisyQNetwork(plain()).eval()
    policy = DiscreteQLearningPolicy(model=network, action_space=ACTIONS)
    with record_noise(network) as log:
        collector(policy).collect(n_step=30)
    assert log.counts() == {"passes": 20, "noisy": 20, "distinct": 20}


@pytest.mark.parametrize("name", ["eps_training", "eps_inference"])
def test_an_epsilon_other_than_0_raises_at_any_time(name: str) -> None:
    network = NoisyQNetwork(plain())
    message = f"NoisyPolicy expected {name}=0.*got 0.1; omit it"
    with pytest.raises(ValueError, match=message):
        NoisyPolicy(model=network, action_space=ACTIONS, **{name: 0.1})
    policy = NoisyPolicy(model=network, action_space=ACTIONS, **{name: 0.0})
    with pytest.raises(ValueError, match=message):
        getattr(policy, f"set_{name}")(0.1)
    assert getattr(policy, name) == 0


def test_kind_and_scale_of_the_noise_apply_to_dueling_streams_too() -> None:
    streams = ({"hidden_sizes": [16]}, {"hidden_sizes": [16]})
    network = NoisyQNetwork(plain(dueling_param=streams), noise="independent", sigma0=0.1)
    found = noisy_layers(network)
    assert len(found) == 5  # one shared, two in each stream
    assert {(layer.noise, layer.sigma0) for layer in found.values()} == {("independent", 0.1)}
    values, state = network(np.ones((3, 4)), state=None, info={})
    assert values.shape == (3, 2)
    assert state is None


def test_linear_layers_of_tianshous_atari_network_become_noisy() -> None:
    network = NoisyQNetwork(
        RainbowNet(c=4, h=84, w=84, action_shape=[3], num_atoms=5, is_noisy=False)
    )
    assert sorted(noisy_layers(network.network)) == ["Q.0", "Q.2", "V.0", "V.2"]
    observations = np.zeros((2, 4, 84, 84), np.uint8)
    with torch.no_grad(), network.acting():
        values, _ = network(observations)
    assert values.shape == (2, 3, 5)
    assert not torch.allclose(values[0], values[1])


def test_selected_layers_become_noisy_and_noisy_layers_are_kept() -> None:
    assert list(noisy_layers(NoisyQNetwork(plain(), ["model.model.2"]).network)) == [
        "model.model.2"
    ]
    noisy = plain(linear_layer=NoisyLinear)
    assert NoisyQNetwork(noisy).network is noisy
    with pytest.raises(ValueError, match="has noisy layers already"):
        NoisyQNetwork(noisy, sigma0=0.1)


def test_tianshous_noisy_layers_raise() -> None:
    with pytest.raises(ValueError, match=r"got a Net with Tianshou's NoisyLinear.*is_noisy=False"):
        NoisyQNetwork(tianshou_network())


def test_a_network_that_is_not_wrapped_raises() -> None:
    with pytest.raises(TypeError, match=r"got a Net; wrap it: NoisyQNetwork\(model\)"):
        NoisyC51Policy(model=plain(), action_space=ACTIONS)


def test_a_state_dict_has_no_noise_and_can_be_loaded() -> None:
    algorithm, other = noisy_dqn(), noisy_dqn()
    train_recorded(algorithm, steps=5)
    saved = algorithm.state_dict()
    assert not [name for name in saved if "epsilon" in name]
    other.load_state_dict(copy.deepcopy(saved))
    observation = np.ones((1, 4), np.float32)
    values = [a.policy(Batch(obs=observation, info=Batch())).logits for a in (algorithm, other)]
    assert torch.equal(*values)
    assert train_recorded(other, steps=5).counts("act")["noisy"] == 10


def test_without_the_library_the_error_has_the_pip_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tianshou.algorithm.algorithm_base", None)
    spec = importlib.util.spec_from_file_location("without_tianshou", integration.__file__)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r'pip install "noisynet\[tianshou\]"'):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def train_on_deep_sea(policy: Any, updates: int) -> tuple[bool, float]:
    """Train on Deep Sea without ε: whether the reward was found, and the return of a test."""
    np.random.seed(1)
    algorithm: DQN[Any] = DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=2e-3), target_update_freq=50
    )
    training: Collector[Any] = Collector(
        algorithm, DummyVectorEnv([lambda: DeepSea(6)] * 4), VectorReplayBuffer(4_000, 4)
    )
    testing: Collector[Any] = Collector(algorithm, DummyVectorEnv([lambda: DeepSea(6)]))
    training.reset()
    testing.reset()
    with policy_within_training_step(policy):
        for _ in range(updates):
            training.collect(n_step=4)
            algorithm.update(training.buffer, 32)
    found = bool(training.buffer.rew.max() > 0.5)
    return found, float(testing.collect(n_episode=1).returns.mean())


def test_deep_sea_is_solved_but_not_with_tianshous_layer() -> None:
    torch.manual_seed(1)
    layers: dict[str, Any] = {"state_shape": 36, "action_shape": 2, "hidden_sizes": (64,)}
    noisy = NoisyPolicy(model=NoisyQNetwork(Net(**layers)), action_space=ACTIONS)
    network = Net(**layers, linear_layer=TianshouNoisyLinear)
    gated = DiscreteQLearningPolicy(model=network, action_space=ACTIONS)
    found, returned = train_on_deep_sea(noisy, 800)
    assert found
    assert returned > 0.9
    assert not train_on_deep_sea(gated, 200)[0]


@pytest.mark.slow
def test_dqn_learns_cartpole() -> None:
    np.random.seed(0)
    network = NoisyQNetwork(Net(state_shape=4, action_shape=2, hidden_sizes=(64, 64)))
    policy = NoisyPolicy(model=network, action_space=ACTIONS)
    algorithm: DQN[Any] = DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=2e-3), target_update_freq=50
    )
    training, testing = collector(algorithm, 4), collector(algorithm, 10, seed=100)
    with policy_within_training_step(policy):
        while training.collect_step < 20_000:
            training.collect(n_step=4)
            algorithm.update(training.buffer, 64)
    assert testing.collect(n_episode=10).returns.mean() > 100
