"""Our module in TorchRL's own collectors, losses and updaters; and the audit of TorchRL's layer."""

from __future__ import annotations

import copy
import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisynet.layers import NoiseLog, NoisyLinear, held_noise, noise_off, record_noise

pytest.importorskip("torchrl", reason="pip install 'noisynet[torchrl]'")
pytest.importorskip("gymnasium", reason="pip install 'noisynet[gym]'")

import gymnasium
from tensordict import TensorDict
from torchrl import modules
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import GymWrapper, SerialEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import MLP, QValueActor, set_recurrent_mode
from torchrl.objectives import DistributionalDQNLoss, DQNLoss, HardUpdate, SoftUpdate

from noisynet.integrations.torchrl import NoisyNetwork, check_noise, load, separate_passes

with warnings.catch_warnings():  # of its own classes that it deprecates, on import
    warnings.simplefilter("ignore", DeprecationWarning)
    from torchrl.collectors import Collector

INPUTS, ACTIONS, BATCH = 6, 3, 16
MEANS = [kind for kind in ExplorationType if kind is not ExplorationType.RANDOM]


def network(inputs: int = INPUTS, actions: int = ACTIONS) -> nn.Module:
    return NoisyNetwork(nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, actions)))


def their_network(inputs: int = INPUTS, actions: int = ACTIONS) -> nn.Module:
    linear = modules.NoisyLinear
    return nn.Sequential(linear(inputs, 32), nn.ReLU(), linear(32, actions))


def make_loss(module: nn.Module, **options: Any) -> Any:
    actor = QValueActor(module, in_keys=["observation"], action_space="categorical")
    return DQNLoss(actor, action_space="categorical", **options)


def transitions() -> TensorDict:
    following = {
        "observation": torch.randn(BATCH, INPUTS),
        "reward": torch.randn(BATCH, 1),
        "done": torch.zeros(BATCH, 1, dtype=torch.bool),
        "terminated": torch.zeros(BATCH, 1, dtype=torch.bool),
    }
    action = torch.randint(ACTIONS, (BATCH,))
    fields = {"observation": torch.randn(BATCH, INPUTS), "action": action, "next": following}
    return TensorDict(fields, [BATCH])


def sigmas(module: nn.Module) -> list[Tensor]:
    return [p for name, p in module.named_parameters() if "sigma" in name]


def counts(log: NoiseLog, label: str, **chosen: Any) -> tuple[int, int, int]:
    events = log.select(label, **chosen)
    distinct = {(event.network, event.layer, event.draw) for event in events if event.noisy}
    return len(events), sum(event.noisy for event in events), len(distinct)


class Training:
    """DQN as TorchRL's examples write it: collector, replay buffer, loss, optimiser, updater."""

    def __init__(
        self,
        environment: Any,
        module: nn.Module,
        lr: float = 1e-3,
        tau: float = 0.02,
        **options: Any,
    ) -> None:
        self.environment = environment
        spec = environment.action_spec_unbatched
        self.actor = QValueActor(module, spec=spec, in_keys=["observation"])
        self.loss = DQNLoss(self.actor, loss_function="l2", **options)
        self.loss.make_value_estimator(gamma=0.99)
        self.updater = SoftUpdate(self.loss, tau=tau)
        self.optimiser = torch.optim.Adam(self.loss.parameters(), lr=lr)
        self.replay = ReplayBuffer(storage=LazyTensorStorage(10_000), batch_size=32)
        self.log: NoiseLog | None = None

    def label(self, label: str) -> None:
        if self.log is not None:
            self.log.label = label

    def run(self, frames: int, frames_per_batch: int, updates: int = 1, start: int = 32) -> None:
        collector = Collector(
            self.environment,
            self.actor,
            frames_per_batch=frames_per_batch,
            total_frames=frames,
            auto_register_policy_transforms=False,
        )
        self.label("acting")
        for steps in collector:
            self.replay.extend(steps.reshape(-1))
            self.label("learning")
            for _ in range(updates if len(self.replay) >= start else 0):
                self.optimiser.zero_grad()
                self.loss(self.replay.sample())["loss"].backward()
                self.optimiser.step()
                self.updater.step()
            self.label("acting")
        collector.shutdown(close_env=False)

    @torch.no_grad()
    def evaluate(self, steps: int) -> float:
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            played = self.environment.rollout(steps, self.actor)
        return float(played["next", "reward"].sum())


class DeepSea(gymnasium.Env[Any, Any]):
    """The treasure is down right; each step to the right costs a little."""

    def __init__(self, size: int) -> None:
        self.size, self.row, self.column = size, 0, 0
        self.observation_space = gymnasium.spaces.Box(0, 1, (size * size,))
        self.action_space = gymnasium.spaces.Discrete(2)

    def observation(self) -> Any:
        cell = torch.zeros(self.size * self.size)
        if self.row < self.size:
            cell[self.row * self.size + self.column] = 1
        return cell.numpy()

    def reset(self, **_options: Any) -> Any:
        self.row = self.column = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        right = int(action) == self.row % 2  # neither action is always right
        found = right and self.row == self.column == self.size - 1
        self.column = min(max(self.column + (1 if right else -1), 0), self.size - 1)
        self.row += 1
        reward = float(found) - 0.01 / self.size * right
        return self.observation(), reward, self.row == self.size, False, {}


def cart_pole() -> Any:
    environment = GymWrapper(gymnasium.make("CartPole-v1"), categorical_action_encoding=True)
    environment.set_seed(1)
    return environment


def deep_sea(size: int) -> Any:
    return GymWrapper(DeepSea(size), categorical_action_encoding=True)


# --- the module ---------------------------------------------------------------------------------


def test_every_pass_draws_noise_of_its_own_when_nobody_sets_an_exploration_type() -> None:
    module, x = network(), torch.randn(1, INPUTS)
    with record_noise(module) as log:
        for _ in range(5):
            module(x)
    assert log.counts() == {"passes": 10, "noisy": 10, "distinct": 10}


@pytest.mark.parametrize("kind", MEANS, ids=str)
def test_deterministic_exploration_types_use_the_means_and_draw_nothing(
    kind: ExplorationType,
) -> None:
    module, x = network(), torch.randn(4, INPUTS)
    with noise_off(module):
        means = module(x)
    stream, held = torch.get_rng_state(), copy.deepcopy(held_noise(module))
    with set_exploration_type(kind):
        assert torch.equal(module(x), means)
    assert torch.equal(stream, torch.get_rng_state())
    assert all(torch.equal(held[name], now) for name, now in held_noise(module).items())


def test_the_random_exploration_type_keeps_the_noise() -> None:
    module, x = network(), torch.randn(4, INPUTS)
    with set_exploration_type(ExplorationType.RANDOM):
        assert not torch.equal(module(x), module(x))


def test_noise_off_is_obeyed_and_draws_nothing() -> None:
    module, x = network(), torch.randn(4, INPUTS)
    stream = torch.get_rng_state()
    with noise_off(module), set_exploration_type(ExplorationType.RANDOM):
        assert torch.equal(module(x), module(x))
    assert torch.equal(stream, torch.get_rng_state())


def test_environments_side_by_side_act_with_samples_of_their_own() -> None:
    module, x = network(), torch.randn(1, INPUTS).expand(4, -1)
    with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
        values = module(x)
    assert len({tuple(row) for row in values.tolist()}) == 4
    with set_recurrent_mode(True), torch.no_grad():  # as a loss asks its target network
        shared = module(x)
    torch.testing.assert_close(shared, shared[:1].expand(4, -1))


def test_pictures_side_by_side_are_told_from_one_picture() -> None:
    convolution = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(-3), nn.Linear(27, 2))
    module = NoisyNetwork(convolution)
    assert module.observation_dims == 3
    picture = torch.randn(2, 5, 5)
    with torch.no_grad():
        assert module(picture).shape == (2,)
        values = module(picture.expand(4, -1, -1, -1))
    assert len({tuple(row) for row in values.tolist()}) == 4


def test_a_pass_leaves_the_sample_that_the_layers_hold() -> None:
    module, x = network(), torch.randn(4, INPUTS)
    held = held_noise(module)
    with torch.no_grad():
        module(x)
    assert all(now is held[name] for name, now in held_noise(module).items())


def test_a_generator_of_its_own_decides_the_noise() -> None:
    x, plain = torch.randn(2, INPUTS), nn.Linear(INPUTS, 2)
    values = []
    for _ in range(2):
        module = NoisyNetwork(plain, generator=torch.Generator().manual_seed(3))
        stream = torch.get_rng_state()
        values.append(module(x))
        assert torch.equal(stream, torch.get_rng_state())
    assert torch.equal(*values)


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="noisy layers already; give them to its layers"):
        NoisyNetwork(NoisyLinear(2, 2), sigma0=0.1)
    with pytest.raises(ValueError, match="lazy layers; give in_features"):
        NoisyNetwork(MLP(out_features=2, num_cells=[4]))


def test_a_missing_library_is_named_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torchrl.envs.utils", None)
    monkeypatch.delitem(sys.modules, "noisynet.integrations.torchrl")
    with pytest.raises(ImportError, match=r'pip install "noisynet\[torchrl\]"'):
        importlib.import_module("noisynet.integrations.torchrl")


# --- in a loss ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize("double_dqn", [False, True])
def test_the_loss_learns_sigma(double_dqn: bool) -> None:
    loss = make_loss(network(), double_dqn=double_dqn)
    loss(transitions())["loss"].backward()
    assert len(sigmas(loss.value_network)) == 4
    for sigma in sigmas(loss.value_network):
        assert sigma.grad is not None
        assert (sigma.grad != 0).any()


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize("options", [{}, {"double_dqn": True}, {"delay_value": False}], ids=str)
def test_telling_passes_apart_leaves_the_loss_as_it_is(options: dict[str, bool]) -> None:
    loss, data = make_loss(network(), **options), transitions()

    def loss_and_gradients() -> list[Tensor]:
        torch.manual_seed(1)
        loss.zero_grad()
        value = loss(data.clone())["loss"]
        value.backward()
        return [value.detach(), *(p.grad.clone() for p in loss.value_network.parameters())]

    expected = loss_and_gradients()
    with separate_passes(loss) as networks:
        assert ("target" in networks) == options.get("delay_value", True)
        found = loss_and_gradients()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert "forward" not in vars(loss.value_network)


@pytest.mark.parametrize(
    "make", [lambda x: SoftUpdate(x, tau=0.5), HardUpdate], ids=["soft", "hard"]
)
def test_target_updates_reach_mu_and_sigma_and_nothing_else(make: Callable[[Any], Any]) -> None:
    loss = make_loss(network())
    updater = make(loss)
    if isinstance(updater, HardUpdate):
        updater.value_network_update_interval = 0
    online, target = loss.value_network_params, loss.target_value_network_params
    before = target.clone()
    with torch.no_grad():
        for parameter in loss.value_network.parameters():
            parameter.add_(1)
    updater.step()
    step = 1.0 if isinstance(updater, HardUpdate) else 0.5
    for key, value in target.items(True, True):
        moved = 0.0 if "epsilon" in str(key) else step
        torch.testing.assert_close(value, before[key] + moved)
    assert online["module", "0", "module", "network", "0", "weight_mu"].requires_grad


def test_state_can_be_saved_and_loaded() -> None:
    module, other = network(), network()
    assert not [name for name in module.state_dict() if "epsilon" in name]
    other.load_state_dict(module.state_dict())
    loss, again = make_loss(module), make_loss(other)
    for each in (loss, again):
        each.make_value_estimator(gamma=0.9)
        SoftUpdate(each, tau=0.5)
    loss(transitions())["loss"].backward()
    torch.optim.SGD(loss.parameters(), lr=0.1).step()
    again.load_state_dict(loss.state_dict())
    x = torch.randn(4, INPUTS)
    with noise_off(module), noise_off(other):
        assert torch.equal(module(x), other(x))


# --- in real training ---------------------------------------------------------------------------


@pytest.mark.parametrize("double_dqn", [False, True])
def test_every_pass_of_real_training_has_a_draw_of_its_own(double_dqn: bool) -> None:
    training = Training(cart_pole(), network(4, 2), double_dqn=double_dqn)
    training.run(64, 8)  # the loss makes its estimator, the buffer its storage
    with separate_passes(training.loss) as networks, record_noise(networks) as training.log:
        training.run(160, 4, updates=2)
        training.label("evaluation")
        training.evaluate(20)
    log, layers, updates = training.log, 2, 80
    assert log is not None
    acting, learning = layers * 160, layers * updates
    passes, noisy, distinct = counts(log, "acting", network="online")
    assert passes == noisy == distinct >= acting
    online = counts(log, "learning", network="online", with_gradient=True)
    selector = counts(log, "learning", network="online", with_gradient=False)
    assert online == (learning, learning, learning)
    assert selector == ((learning, learning, learning) if double_dqn else (0, 0, 0))
    assert counts(log, "learning", network="target") == (learning, learning, learning)
    assert counts(log, "acting", network="target") == (0, 0, 0)
    evaluated, noisy, _ = counts(log, "evaluation")
    assert evaluated > 0
    assert noisy == 0
    used = [*log.select("acting", "online"), *log.select("learning", "online")]
    draws = {(event.layer, event.draw) for event in used}
    assert len(draws) == len(used)  # no draw comes back in another role


def test_environments_of_a_batched_collector_have_samples_of_their_own() -> None:
    training = Training(SerialEnv(3, cart_pole), network(4, 2))
    with record_noise(training.actor) as training.log:
        training.run(60, 6)
    assert training.log is not None
    acting = training.log.select("acting")
    assert len(acting) >= 2 * 20
    assert {event.rows for event in acting} == {3}
    assert {event.rows for event in training.log.select("learning")} == {None}


def test_torchrls_own_layer_is_silent_in_real_learning_and_never_redrawn() -> None:
    training = Training(cart_pole(), their_network(4, 2))
    training.run(64, 8)
    before = [sigma.detach().clone() for sigma in sigmas(training.actor)]
    with separate_passes(training.loss) as networks, record_noise(networks) as training.log:
        training.run(160, 4, updates=2)
        training.label("evaluation")
        training.evaluate(20)
    log = training.log
    assert log is not None
    passes, noisy, distinct = counts(log, "acting")
    assert (passes, distinct) == (noisy, 2)  # one draw of each layer, for good
    assert counts(log, "learning", network="online") == (160, 0, 0)
    assert counts(log, "learning", network="target") == (160, 0, 0)
    assert all(torch.equal(a, b) for a, b in zip(before, sigmas(training.actor), strict=True))


def test_deep_sea_is_solved_by_noise_alone() -> None:
    training = Training(deep_sea(4), network(16, 2), lr=3e-3, tau=0.05)
    training.run(720, 4, updates=2)
    assert training.evaluate(4) > 0.9  # one of 16 ways down pays 0.99, the others nothing


@pytest.mark.slow
def test_the_pole_is_balanced() -> None:
    torch.manual_seed(1)
    training = Training(cart_pole(), NoisyNetwork(MLP(4, 2, num_cells=[64, 64])))
    training.run(10_000, 4, updates=2, start=500)
    assert sum(training.evaluate(500) for _ in range(5)) / 5 > 80  # a random policy has 20


# --- the audit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"double_dqn": True}, {"delay_value": False}], ids=str)
def test_our_module_keeps_the_contract(options: dict[str, bool]) -> None:
    report = check_noise(make_loss(network(), **options), environments=3, updates=40)
    assert report.passed, str(report)
    assert all(check.passed is not None for check in report.checks), str(report)


def test_the_audit_names_each_fault_of_torchrls_own_layer() -> None:
    report = check_noise(make_loss(their_network()), noise="factorised", updates=20)
    assert not report.passed
    assert report["noisy while acting"].passed
    assert report["noisy while learning"].evidence == "0 of 80 passes noisy"
    assert report["fresh draws when due"].evidence.startswith("2 of 160 draws fresh")
    assert report["sigma receives gradient"].evidence.startswith("none for ")
    assert "weight_epsilon" in report["epsilon absent from saved state and target copies"].evidence
    assert "σb is" in report["bias noise scaled by inputs"].evidence
    assert set(report.failures) >= {
        "noisy while learning",
        "fresh draws when due",
        "sigma receives gradient",
        "epsilon absent from saved state and target copies",
        "bias noise scaled by inputs",
    }


class Atoms(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (11, ACTIONS)).log_softmax(-2)


def test_distributional_losses_are_audited_too() -> None:
    module = NoisyNetwork(nn.Sequential(nn.Linear(INPUTS, 11 * ACTIONS), Atoms()))
    actor = modules.DistributionalQValueActor(
        module,
        in_keys=["observation"],
        support=torch.linspace(-1, 1, 11),
        action_space="categorical",
    )
    report = check_noise(DistributionalDQNLoss(actor, gamma=0.9), updates=40)
    assert report.passed, str(report)


def test_an_audit_leaves_the_loss_as_it_was() -> None:
    loss = make_loss(network())
    SoftUpdate(loss, tau=0.5)
    loss(transitions())
    before = copy.deepcopy(loss.state_dict())
    check_noise(loss, updates=5)
    after = loss.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.grad is None for parameter in loss.parameters())


def test_a_deep_copy_whose_network_is_no_longer_what_learns_is_found_out() -> None:
    report = check_noise(copy.deepcopy(make_loss(network())), updates=5)
    assert report.failures == ["sigma receives gradient"]


def test_a_policy_of_its_own_is_audited_too() -> None:
    loss, frozen = make_loss(network()), make_loss(their_network()).value_network
    assert check_noise(loss, loss.value_network, updates=40).passed
    report = check_noise(loss, frozen, noise="factorised", updates=20)
    assert "fresh draws when due" in report.failures


def test_observations_are_made_of_a_specification_where_layers_do_not_tell() -> None:
    environment = cart_pole()
    loss = make_loss(network(4, 2))
    assert check_noise(loss, observation_spec=environment.observation_spec, updates=40).passed
    pictures = NoisyNetwork(nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(-2), nn.Linear(8, 2)))
    with pytest.raises(ValueError, match=r"give env\.observation_spec"):
        check_noise(make_loss(pictures))


def test_a_saved_loss_is_loaded_and_audited(tmp_path: Path) -> None:
    torch.save(make_loss(network()), tmp_path / "loss.pt")
    report = check_noise(load(tmp_path / "loss.pt"), updates=40)
    assert report.passed, str(report)
    torch.save(nn.Linear(2, 2), tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"other\.pt, got a Linear; save it with torch\.save"):
        load(tmp_path / "other.pt")


def test_what_has_no_noise_or_is_no_loss_is_refused() -> None:
    with pytest.raises(ValueError, match="without any; build it of NoisyNetwork"):
        check_noise(make_loss(nn.Linear(INPUTS, ACTIONS)))
    with pytest.raises(TypeError, match=r"check_noise expected a DQNLoss .* got a NoisyNetwork"):
        check_noise(network())
