"""NoisyNet inside Tianshou: counted in real training, not by calling a mock."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("tianshou")

import gymnasium as gym
from tianshou.algorithm import C51, DQN, QRDQN, RainbowDQN, algorithm_base
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.data.buffer import manager
from tianshou.env import DummyVectorEnv
from tianshou.env.atari.atari_network import RainbowNet
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import NoisyLinear as TheirNoisyLinear
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode

from noisynet.integrations import tianshou as integration
from noisynet.integrations.tianshou import (
    NoisyC51Policy,
    NoisyPolicy,
    NoisyQNetwork,
    NoisyQRDQNPolicy,
    check_noise,
    load,
)
from noisynet.layers import NoiseLog, NoisyLinear, noise_off, noisy_layers, record_noise

ENVIRONMENTS = 3
ACTIONS = gym.spaces.Discrete(2)
QUESTIONS = {
    "acting": "noisy while acting",
    "learning": "noisy while learning",
    "mode": "noise does not depend on train()/eval()",
    "fresh": "fresh draws when due",
    "roles": "acting, online, target and selector draws independent",
    "saved": "epsilon absent from saved state and target copies",
    "rows": "environments side by side have samples of their own",
    "evaluation": "evaluation leaves training draws alone",
}


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library compiles these in every process, which takes longer than most tests."""
    for module, name in (
        (algorithm_base, "_gae"),
        (algorithm_base, "_nstep_return"),
        (manager, "_prev_index"),
        (manager, "_next_index"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name).py_func)


def plain(**options: Any) -> Net:
    return Net(state_shape=4, action_shape=2, hidden_sizes=(32,), **options)


def their_network(**options: Any) -> Net:
    return plain(linear_layer=TheirNoisyLinear, **options)


def dqn(policy: Any, **options: Any) -> DQN[Any]:
    return DQN(policy=policy, optim=AdamOptimizerFactory(), target_update_freq=10, **options)


def our_dqn(**options: Any) -> DQN[Any]:
    return dqn(NoisyPolicy(model=NoisyQNetwork(plain(), **options), action_space=ACTIONS))


def their_dqn() -> DQN[Any]:
    return dqn(DiscreteQLearningPolicy(model=their_network(), action_space=ACTIONS))


def our_c51(kind: type[C51] = C51) -> C51:
    network = NoisyQNetwork(plain(num_atoms=11, softmax=True))
    policy = NoisyC51Policy(model=network, action_space=ACTIONS, num_atoms=11, v_min=0, v_max=50)
    return kind(policy=policy, optim=AdamOptimizerFactory(), target_update_freq=10)


def our_rainbow() -> C51:
    return our_c51(RainbowDQN)


def their_rainbow() -> C51:
    network = their_network(num_atoms=11, softmax=True)
    policy = C51Policy(model=network, action_space=ACTIONS, num_atoms=11, v_min=0, v_max=50)
    return RainbowDQN(policy=policy, optim=AdamOptimizerFactory(), target_update_freq=10)


def our_qrdqn() -> QRDQN[Any]:
    policy = NoisyQRDQNPolicy(model=NoisyQNetwork(plain(num_atoms=8)), action_space=ACTIONS)
    return QRDQN(
        policy=policy, optim=AdamOptimizerFactory(), num_quantiles=8, target_update_freq=10
    )


def games(count: int = ENVIRONMENTS, name: str = "CartPole-v1") -> DummyVectorEnv:
    return DummyVectorEnv([lambda: gym.make(name) for _ in range(count)])


def collector(agent: Any, count: int = ENVIRONMENTS, seed: int = 0) -> Collector[Any]:
    """A collector that has been reset."""
    played = games(count)
    played.seed(seed)
    found: Collector[Any] = Collector(
        agent, played, VectorReplayBuffer(2_000 * count, count), exploration_noise=True
    )
    found.reset()
    return found


def networks(algorithm: Any) -> dict[str, nn.Module]:
    target = algorithm.model_old
    return {"online": algorithm.policy.model, "target": getattr(target, "module", target)}


def train_recorded(algorithm: Any, steps: int = 40) -> NoiseLog:
    """Collection, updates and tests as the library's trainer does them, each under its label."""
    np.random.seed(0)
    training, testing = collector(algorithm), collector(algorithm, 2, seed=10)
    with record_noise(networks(algorithm)) as log:
        for _ in range(steps):
            with policy_within_training_step(algorithm.policy):
                log.label = "act"
                training.collect(n_step=ENVIRONMENTS)
                log.label = "learn"
                algorithm.update(training.buffer, 32)
        log.label = "test"
        testing.collect(n_step=20)
    return log


def online_counts(log: NoiseLog) -> tuple[int, int, int]:
    """Passes, noisy ones and draws of what learns, without the selector's."""
    events = log.select("learn", "online", with_gradient=True)
    draws = {(event.layer, event.draw) for event in events if event.noisy}
    return len(events), sum(event.noisy for event in events), len(draws)


@pytest.mark.parametrize("make", [our_dqn, our_c51, our_rainbow, our_qrdqn])
def test_every_pass_of_training_is_noisy_with_a_draw_of_its_own(make: Callable[[], Any]) -> None:
    log = train_recorded(make())
    passes = 40 * 2  # one for each step through each of two layers
    assert log.counts("act") == {"passes": passes, "noisy": passes, "distinct": passes}
    assert online_counts(log) == (passes, passes, passes)
    assert log.counts("learn", "target") == {"passes": passes, "noisy": passes, "distinct": passes}
    assert log.counts("learn", "online")["distinct"] == 2 * passes  # and the selector's
    assert log.counts("test") == {"passes": 20, "noisy": 0, "distinct": 0}


def test_the_librarys_own_layer_acts_without_noise_in_the_same_loop() -> None:
    log = train_recorded(their_dqn())
    assert log.counts("act") == {"passes": 80, "noisy": 0, "distinct": 0}
    assert online_counts(log) == (80, 80, 2)  # one draw, at initialisation
    assert log.counts("learn", "target") == {"passes": 80, "noisy": 0, "distinct": 0}


def test_rainbow_with_the_librarys_own_layer_acts_without_noise_too() -> None:
    log = train_recorded(their_rainbow())
    assert log.counts("act") == {"passes": 80, "noisy": 0, "distinct": 0}
    assert online_counts(log) == (80, 80, 80)
    assert log.counts("learn", "online")["distinct"] == 80  # the selector shares what learns


def test_the_librarys_trainer_collects_with_noise_and_tests_without() -> None:
    algorithm = our_dqn()
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


def test_environments_that_act_at_once_have_noise_of_their_own_and_a_batch_shares_one() -> None:
    policy = our_dqn().policy
    batch = Batch(obs=np.ones((5, 4), np.float32), info=Batch())
    with policy_within_training_step(policy):
        with torch_train_mode(policy, enabled=False):
            acting = policy(batch).logits
            with torch.no_grad():  # targets, of an algorithm that was left in eval mode
                selecting = policy(batch).logits
        learning = policy(batch).logits
    assert len(acting.unique(dim=0)) == 5
    assert not acting.requires_grad
    torch.testing.assert_close(selecting, selecting[:1].expand(5, -1))
    torch.testing.assert_close(learning, learning[:1].expand(5, -1))
    assert learning.requires_grad


def test_one_sample_for_all_environments_where_layers_do_not_see_a_row_for_each() -> None:
    policy = our_dqn(per_environment=False).policy
    batch = Batch(obs=np.ones((5, 4), np.float32), info=Batch())
    with policy_within_training_step(policy), torch_train_mode(policy, enabled=False):
        first, second = policy(batch).logits, policy(batch).logits
    torch.testing.assert_close(first, first[:1].expand(5, -1))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("training", [True, False])
def test_outside_of_training_steps_the_means_decide_and_nothing_is_drawn(training: bool) -> None:
    policy = our_dqn().policy.train(training)
    observation = np.ones(4, np.float32)
    stream = torch.get_rng_state()
    values = policy(Batch(obs=observation[None], info=Batch())).logits
    action = policy.compute_action(observation)
    assert torch.equal(stream, torch.get_rng_state())
    with noise_off(policy.model):
        means, _ = policy.model(observation[None])
    assert torch.equal(values, means)
    assert action == int(means.argmax())


def test_the_network_is_noisy_under_the_librarys_own_policy_as_well() -> None:
    network = NoisyQNetwork(plain()).eval()
    policy = DiscreteQLearningPolicy(model=network, action_space=ACTIONS)
    with record_noise(network) as log:
        collector(policy).collect(n_step=30)
    assert log.counts() == {"passes": 20, "noisy": 20, "distinct": 20}


@pytest.mark.parametrize("name", ["eps_training", "eps_inference"])
def test_an_epsilon_is_refused_whenever_it_comes(name: str) -> None:
    network = NoisyQNetwork(plain())
    message = f"NoisyPolicy expected {name}=0.*got 0.1; leave it out"
    with pytest.raises(ValueError, match=message):
        NoisyPolicy(model=network, action_space=ACTIONS, **{name: 0.1})
    policy = NoisyPolicy(model=network, action_space=ACTIONS, **{name: 0.0})
    with pytest.raises(ValueError, match=message):
        getattr(policy, f"set_{name}")(0.1)
    assert getattr(policy, name) == 0


def test_networks_take_the_papers_options_and_the_librarys_dueling_streams() -> None:
    streams = ({"hidden_sizes": [16]}, {"hidden_sizes": [16]})
    network = NoisyQNetwork(plain(dueling_param=streams), noise="independent", sigma0=0.1)
    found = noisy_layers(network)
    assert len(found) == 5  # one common, two of each stream
    assert {(layer.noise, layer.sigma0) for layer in found.values()} == {("independent", 0.1)}
    values, state = network(np.ones((3, 4)), state=None, info={})
    assert values.shape == (3, 2)
    assert state is None


def test_the_librarys_atari_network_becomes_noisy_behind_its_convolutions() -> None:
    network = NoisyQNetwork(
        RainbowNet(c=4, h=84, w=84, action_shape=[3], num_atoms=5, is_noisy=False)
    )
    assert sorted(noisy_layers(network.network)) == ["Q.0", "Q.2", "V.0", "V.2"]
    observations = np.zeros((2, 4, 84, 84), np.uint8)
    with torch.no_grad(), network.acting():
        values, _ = network(observations)
    assert values.shape == (2, 3, 5)
    assert not torch.allclose(values[0], values[1])


def test_only_the_layers_that_are_asked_for_become_noisy_and_ours_are_kept() -> None:
    assert list(noisy_layers(NoisyQNetwork(plain(), ["model.model.2"]).network)) == [
        "model.model.2"
    ]
    ours = plain(linear_layer=NoisyLinear)
    assert NoisyQNetwork(ours).network is ours
    with pytest.raises(ValueError, match="has noisy layers already"):
        NoisyQNetwork(ours, sigma0=0.1)


def test_the_librarys_own_noisy_layers_are_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"got a Net with Tianshou's NoisyLinear.*is_noisy=False"):
        NoisyQNetwork(their_network())


def test_a_network_that_does_not_redraw_is_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"got a Net; wrap it: NoisyQNetwork\(model\)"):
        NoisyC51Policy(model=plain(), action_space=ACTIONS)


@pytest.mark.parametrize("make", [our_dqn, our_rainbow])
def test_the_audit_passes_for_our_layers(make: Callable[[], Any]) -> None:
    report = check_noise(make(), updates=40)
    assert report.passed, str(report)
    assert report[QUESTIONS["rows"]].passed
    assert report[QUESTIONS["roles"]].passed


def test_the_audit_passes_for_one_environment_and_independent_noise() -> None:
    report = check_noise(our_dqn(noise="independent"), environments=1, updates=40)
    assert report.passed, str(report)


def test_the_audit_names_what_is_wrong_with_the_librarys_own_layer_in_dqn() -> None:
    report = check_noise(their_dqn(), updates=40)
    failed = {name for name, question in QUESTIONS.items() if question in report.failures}
    assert failed == {"acting", "learning", "mode", "fresh", "roles", "saved"}
    assert report[QUESTIONS["acting"]].evidence.startswith("0 of ")
    assert report[QUESTIONS["mode"]].evidence == "silent in eval mode"
    assert report[QUESTIONS["fresh"]].evidence.startswith("2 of ")  # those of initialisation
    assert "eps_p" in report[QUESTIONS["saved"]].evidence


def test_the_audit_names_what_is_wrong_with_the_librarys_own_layer_in_rainbow() -> None:
    report = check_noise(their_rainbow(), updates=60)
    failed = {name for name, question in QUESTIONS.items() if question in report.failures}
    assert failed == {"acting", "mode", "roles", "saved"}
    assert report[QUESTIONS["acting"]].evidence.startswith("0 of ")
    assert "online/selector" in report[QUESTIONS["roles"]].evidence


def test_the_audit_sees_that_the_librarys_own_policy_tests_with_noise() -> None:
    policy = DiscreteQLearningPolicy(model=NoisyQNetwork(plain()), action_space=ACTIONS)
    report = check_noise(dqn(policy), updates=10)
    assert QUESTIONS["evaluation"] in report.failures
    assert "torch's global stream" in report[QUESTIONS["evaluation"]].evidence


def test_the_audit_leaves_the_agent_as_it_was_with_its_learning_rate() -> None:
    rates = AdamOptimizerFactory().with_lr_scheduler_factory(LRSchedulerFactoryLinear(2, 10, 1))
    algorithm: DQN[Any] = DQN(policy=our_dqn().policy, optim=rates, target_update_freq=10)
    before = copy.deepcopy(algorithm.policy.state_dict())
    check_noise(algorithm, updates=3)
    after = algorithm.policy.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert len(algorithm.lr_schedulers) == 1


def test_the_audit_takes_a_policy_alone() -> None:
    report = check_noise(our_dqn().policy, updates=20)
    assert report.passed, str(report)
    assert report[QUESTIONS["learning"]].passed is None


def test_the_audit_asks_for_observations_that_it_cannot_guess() -> None:
    network = NoisyQNetwork(
        RainbowNet(c=4, h=84, w=84, action_shape=[2], num_atoms=5, is_noisy=False)
    )
    policy = NoisyC51Policy(model=network, action_space=ACTIONS, num_atoms=5)
    with pytest.raises(ValueError, match="begins with a Conv2d; give it observation_space"):
        check_noise(policy)
    space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert check_noise(policy, observation_space=space, updates=3).passed


def test_the_audit_refuses_another_algorithm() -> None:
    class Other:
        pass

    with pytest.raises(TypeError, match=r"deep Q-learning.*got a Other"):
        check_noise(Other())


def test_saved_weights_hold_no_noise_and_continue_elsewhere() -> None:
    algorithm, other = our_dqn(), our_dqn()
    train_recorded(algorithm, steps=5)
    saved = algorithm.state_dict()
    assert not [name for name in saved if "epsilon" in name]
    other.load_state_dict(copy.deepcopy(saved))
    observation = np.ones((1, 4), np.float32)
    values = [a.policy(Batch(obs=observation, info=Batch())).logits for a in (algorithm, other)]
    assert torch.equal(*values)
    assert train_recorded(other, steps=5).counts("act")["noisy"] == 10


@pytest.mark.parametrize("part", ["algorithm", "policy"])
def test_an_agent_that_was_saved_whole_is_loaded_and_audited(part: str, tmp_path: Path) -> None:
    algorithm = our_rainbow()
    train_recorded(algorithm, steps=5)
    torch.save(algorithm if part == "algorithm" else algorithm.policy, tmp_path / "agent.pt")
    report = check_noise(load(tmp_path / "agent.pt"), updates=15)
    assert report.passed, str(report)


def test_a_file_that_is_no_agent_is_refused_with_the_way_to_save_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.pt"
    torch.save(our_dqn().state_dict(), path)
    with pytest.raises(ValueError, match=r"got a .*state_dict.*torch.save\(algorithm, path\)"):
        load(path)
    path.write_bytes(b"no pickle")
    with pytest.raises(ValueError, match=r"saved whole in .*torch.save\(algorithm, path\)"):
        load(path)


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tianshou.algorithm.algorithm_base", None)
    spec = importlib.util.spec_from_file_location("without_tianshou", integration.__file__)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r'pip install "noisynet\[tianshou\]"'):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class DeepSea(gym.Env[Any, Any]):
    """Only `size` moves to the right in a row, each at a small cost, find the reward."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.observation_space = gym.spaces.Box(0, 1, (size * size,))
        self.action_space = ACTIONS
        self.right = np.random.default_rng(0).integers(2, size=(size, size))
        self.row = self.column = 0

    def observe(self) -> Any:
        grid = np.zeros((self.size + 1, self.size), np.float32)
        grid[self.row, self.column] = 1
        return grid[:-1].ravel()

    def reset(self, **_options: Any) -> tuple[Any, dict[str, Any]]:
        self.row = self.column = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = bool(action == self.right[self.row, self.column])
        reward = float(right and self.column == self.size - 1) - right * 0.01 / self.size
        self.row += 1
        self.column = min(max(self.column + (1 if right else -1), 0), self.size - 1)
        return self.observe(), reward, self.row == self.size, False, {}


def dive(policy: Any, updates: int) -> tuple[bool, float]:
    """Train on Deep Sea without ε: was the reward ever found, and what does a test return?"""
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


def test_learns_deep_sea_which_the_librarys_own_layer_never_explores() -> None:
    torch.manual_seed(1)
    layers: dict[str, Any] = {"state_shape": 36, "action_shape": 2, "hidden_sizes": (64,)}
    ours = NoisyPolicy(model=NoisyQNetwork(Net(**layers)), action_space=ACTIONS)
    network = Net(**layers, linear_layer=TheirNoisyLinear)
    theirs = DiscreteQLearningPolicy(model=network, action_space=ACTIONS)
    found, returned = dive(ours, 800)
    assert found
    assert returned > 0.9
    assert not dive(theirs, 200)[0]


@pytest.mark.slow
def test_learns_cartpole() -> None:
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
