"""Noisy networks in TorchRL's own collectors, losses and updaters."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisynet.audit import record_noise
from noisynet.layers import NoisyLinear, held_noise, noise_off

pytest.importorskip("torchrl", reason="pip install 'noisynet[torchrl]'")
pytest.importorskip("gymnasium", reason="pip install 'noisynet[gym]'")

from torchrl.envs import SerialEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import MLP, reset_noise, set_recurrent_mode
from torchrl.objectives import HardUpdate, SoftUpdate

from noisynet.integrations.torchrl import NoisyNetwork, separate_passes

from .torchrl_training import (
    INPUTS,
    Training,
    cart_pole,
    counts,
    deep_sea,
    make_loss,
    network,
    sigmas,
    torchrl_network,
    transitions,
)

MEAN_TYPES = [kind for kind in ExplorationType if kind is not ExplorationType.RANDOM]

# --- the network ----------------------------------------------------------------------------------


def test_every_pass_has_fresh_noise_without_an_exploration_type() -> None:
    module, x = network(), torch.randn(1, INPUTS)
    with record_noise(module) as log:
        for _ in range(5):
            module(x)
    assert log.counts() == {"passes": 10, "noisy": 10, "distinct": 10}


@pytest.mark.parametrize("kind", MEAN_TYPES, ids=str)
def test_deterministic_exploration_types_use_the_mean_weights_and_draw_nothing(
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


def test_the_random_exploration_type_has_noise() -> None:
    module, x = network(), torch.randn(4, INPUTS)
    with set_exploration_type(ExplorationType.RANDOM):
        assert not torch.equal(module(x), module(x))


def test_noise_off_draws_nothing() -> None:
    module, x = network(), torch.randn(4, INPUTS)
    stream = torch.get_rng_state()
    with noise_off(module), set_exploration_type(ExplorationType.RANDOM):
        assert torch.equal(module(x), module(x))
    assert torch.equal(stream, torch.get_rng_state())


def test_parallel_environments_have_separate_noise_and_a_loss_shares_one_sample() -> None:
    module, x = network(), torch.randn(1, INPUTS).expand(4, -1)
    with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
        values = module(x)
    assert len({tuple(row) for row in values.tolist()}) == 4
    with set_recurrent_mode(True), torch.no_grad():  # as in a loss
        shared = module(x)
    torch.testing.assert_close(shared, shared[:1].expand(4, -1))


def test_a_batch_of_images_is_distinguished_from_one_image() -> None:
    convolution = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(-3), nn.Linear(27, 2))
    module = NoisyNetwork(convolution)
    assert module.observation_dims == 3
    image = torch.randn(2, 5, 5)
    with torch.no_grad():
        assert module(image).shape == (2,)
        values = module(image.expand(4, -1, -1, -1))
    assert len({tuple(row) for row in values.tolist()}) == 4


def test_a_pass_restores_the_held_sample() -> None:
    module, x = network(), torch.randn(4, INPUTS)
    held = held_noise(module)
    with torch.no_grad():
        module(x)
    assert all(now is held[name] for name, now in held_noise(module).items())


def test_a_generator_determines_the_noise() -> None:
    x, plain = torch.randn(2, INPUTS), nn.Linear(INPUTS, 2)
    values = []
    for _ in range(2):
        module = NoisyNetwork(plain, generator=torch.Generator().manual_seed(3))
        stream = torch.get_rng_state()
        values.append(module(x))
        assert torch.equal(stream, torch.get_rng_state())
    assert torch.equal(*values)


def test_invalid_arguments_raise() -> None:
    with pytest.raises(ValueError, match="noisy layers already; pass them to its layers"):
        NoisyNetwork(NoisyLinear(2, 2), sigma0=0.1)
    with pytest.raises(ValueError, match="lazy layers; set in_features"):
        NoisyNetwork(MLP(out_features=2, num_cells=[4]))


def test_without_the_library_the_error_has_the_pip_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torchrl.envs.utils", None)
    monkeypatch.delitem(sys.modules, "noisynet.integrations.torchrl")
    with pytest.raises(ImportError, match=r'pip install "noisynet\[torchrl\]"'):
        importlib.import_module("noisynet.integrations.torchrl")


# --- in a loss ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize("double_dqn", [False, True])
def test_sigma_receives_a_gradient_in_a_loss(double_dqn: bool) -> None:
    loss = make_loss(network(), double_dqn=double_dqn)
    loss(transitions())["loss"].backward()
    assert len(sigmas(loss.value_network)) == 4
    for sigma in sigmas(loss.value_network):
        assert sigma.grad is not None
        assert (sigma.grad != 0).any()


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize("options", [{}, {"double_dqn": True}, {"delay_value": False}], ids=str)
def test_separate_passes_do_not_change_the_loss_or_its_gradients(options: dict[str, bool]) -> None:
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
def test_target_updates_change_mu_and_sigma_only(make: Callable[[Any], Any]) -> None:
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


def test_a_state_dict_has_no_noise_and_can_be_loaded() -> None:
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


# --- in training ----------------------------------------------------------------------------------


@pytest.mark.parametrize("double_dqn", [False, True])
def test_every_pass_of_training_has_fresh_noise(double_dqn: bool) -> None:
    training = Training(cart_pole(), network(4, 2), double_dqn=double_dqn)
    training.run(64, 8)  # creates the value estimator and the storage
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
    samples = {(event.layer, event.sample_index) for event in used}
    assert len(samples) == len(used)  # no sample is used in two roles


def test_environments_of_a_batched_collector_have_separate_noise() -> None:
    training = Training(SerialEnv(3, cart_pole), network(4, 2))
    with record_noise(training.actor) as training.log:
        training.run(60, 6)
    assert training.log is not None
    acting = training.log.select("acting")
    assert len(acting) >= 2 * 20
    assert {event.rows for event in acting} == {3}
    assert {event.rows for event in training.log.select("learning")} == {None}


_NONE, _ONE, _FRESH = (160, 0, 0), (160, 160, 2), (160, 160, 160)  # 80 updates, two layers


@pytest.mark.parametrize(
    ("resample", "random_losses", "acting", "online", "target"),
    [
        (None, False, 2, _NONE, _NONE),  # one sample per layer, for ever
        ("loss", False, 2, _NONE, _NONE),
        ("actor", False, 80, _NONE, _NONE),
        (None, True, 2, _ONE, _ONE),
        ("actor", True, 80, _FRESH, _ONE),
    ],
)
def test_torchrls_layer(
    resample: str | None,
    random_losses: bool,
    acting: int,
    online: tuple[int, int, int],
    target: tuple[int, int, int],
) -> None:
    training = Training(cart_pole(), torchrl_network(4, 2))
    if random_losses:
        training.loss.deterministic_sampling_mode = ExplorationType.RANDOM
    if resample:
        training.after_update = lambda: getattr(training, resample).apply(reset_noise)
    training.run(64, 8)
    before = [sigma.detach().clone() for sigma in sigmas(training.actor)]
    with separate_passes(training.loss) as networks, record_noise(networks) as training.log:
        training.run(160, 4, updates=2)
        training.label("evaluation")
        training.evaluate(20)
    log = training.log
    assert log is not None
    passes, noisy, distinct = counts(log, "acting")
    assert (passes, distinct) == (noisy, acting)
    assert counts(log, "learning", network="online") == online
    assert counts(log, "learning", network="target") == target
    assert counts(log, "evaluation")[1] == 0
    same = [torch.equal(a, b) for a, b in zip(before, sigmas(training.actor), strict=True)]
    assert all(same) is not random_losses


def test_deep_sea_is_solved() -> None:
    training = Training(deep_sea(4), network(16, 2), lr=3e-3, tau=0.05)
    training.run(720, 4, updates=2)
    assert training.evaluate(4) > 0.9  # one of 16 episodes returns 0.99


@pytest.mark.slow
def test_dqn_learns_cartpole() -> None:
    torch.manual_seed(1)
    training = Training(cart_pole(), NoisyNetwork(MLP(4, 2, num_cells=[64, 64])))
    training.run(10_000, 4, updates=2, start=500)
    assert sum(training.evaluate(500) for _ in range(5)) / 5 > 80  # random: about 20
