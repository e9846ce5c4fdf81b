"""The value agents: how they act, what they learn, and that they resume bit for bit."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisynet.agents import NonFiniteLoss, ValueAgent
from noisynet.agents.update import NORM_PERIOD_UPDATES
from noisynet.config import VALUE_AGENTS
from noisynet.layers import held_noise, noise_off, noisy_layers, resample_noise
from noisynet.losses import double_q_target, huber, q_learning_target, squared, td_error

from .synthetic import (
    CHANNELS,
    FLAT,
    NOISY_VALUE_AGENTS,
    SCREEN,
    STARTS,
    Spec,
    assert_same,
    make_batch,
    observations,
    parameters,
    perturb,
    play,
    snapshot,
)
from .synthetic import make_value_agent as make


def moved(agent: ValueAgent, before: dict[str, Tensor]) -> set[str]:
    """The names of the parameters that have changed."""
    now = parameters(agent.online)
    return {name for name in before if not torch.equal(before[name], now[name])}


# --- build ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "torso", "scale"),
    [
        (SCREEN, 3136, 1 / 255),
        (CHANNELS, 1024, 1.0),
        (dataclasses.replace(CHANNELS, pixel_scale=1 / 255), 1024, 1 / 255),
        (FLAT, 6, 1.0),
    ],
    ids=["screens", "binary channels", "small images", "flat"],
)
def test_the_torso_follows_from_the_frames_and_the_scale_from_the_specification(
    spec: Spec, torso: int, scale: float
) -> None:
    online = make("noisynet-dqn", spec=spec).online
    assert online.torso.features == torso
    assert online.torso.scale == scale


def test_screens_are_scaled_and_binary_channels_are_not() -> None:
    for spec, factor in ((SCREEN, 255.0), (CHANNELS, 1.0)):
        online = make("dqn", spec=spec).online
        seen = torch.from_numpy(observations(1, spec=spec))
        unscaled = copy.deepcopy(online)
        unscaled.torso.scale = 1.0
        torch.testing.assert_close(online(seen), unscaled(seen.float() / factor))


@pytest.mark.parametrize(("agent", "layers"), [("noisynet-dqn", 2), ("noisynet-dueling", 4)])
def test_every_network_of_a_noisy_agent_has_its_noisy_layers(agent: str, layers: int) -> None:
    built = make(agent, spec=SCREEN)
    for network in (built.online, built.target, built.acting, built.selector):
        assert len(noisy_layers(network)) == layers
    assert not noisy_layers(make(agent.removeprefix("noisynet-")).online)


def test_acting_and_selecting_share_the_weights_and_the_target_has_its_own() -> None:
    agent = make("noisynet-dueling")
    before = parameters(agent.online)
    for network in (agent.acting, agent.selector):
        shared = dict(network.named_parameters())
        assert all(shared[name] is value for name, value in agent.online.named_parameters())
    perturb(agent.online)
    assert_same(parameters(agent.target), before)
    assert not [p for p in agent.target.parameters() if p.requires_grad]


def test_the_optimiser_and_the_architecture_follow_the_configuration() -> None:
    agent = make("dueling", spec=SCREEN)
    assert type(agent.optimiser).__name__ == "CentredRMSProp"
    group = agent.optimiser.param_groups[0]
    assert (group["lr"], group["decay"], group["epsilon"]) == (6.25e-5, 0.95, 0.01 / 1024)
    assert agent.online.trunk_gradient_scale == 2**-0.5
    adam = make("dqn", "optimiser.kind=adam", "optimiser.epsilon=1e-5").optimiser
    assert isinstance(adam, torch.optim.Adam)
    assert (adam.defaults["lr"], adam.defaults["eps"]) == (1e-3, 1e-5)


# --- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_the_seed_determines_actions_and_updates(agent: str) -> None:
    first, second, other = make(agent), make(agent), make(agent, seed=1)
    torch.manual_seed(123)  # has no effect
    actions = play(first, 5)
    assert actions == play(second, 5)
    assert_same(first.tensors(), second.tensors())
    assert first.state() == second.state()
    assert actions != play(other, 5)


@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_the_global_generators_are_not_used(agent: str) -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    play(make(agent), 2)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # type: ignore[index]


def test_plain_and_noisy_layers_initialise_independently() -> None:
    """Two generators with one seed would give the convolution the numbers of the first layer."""
    online = make("noisynet-dqn", spec=CHANNELS).online
    (convolution, *_) = online.torso.layers
    assert isinstance(convolution, nn.Conv2d)
    plain = convolution.weight.detach().contiguous().flatten()
    means = noisy_layers(online)["head.q.0"].weight_mu.detach().flatten()[: len(plain)]
    correlation = torch.corrcoef(torch.stack([plain, means]))[0, 1]
    assert abs(float(correlation)) < 0.2  # five standard errors of 1/√576


@pytest.mark.parametrize("role", ["act", "online", "target", "select"])
def test_each_role_draws_from_its_own_stream(role: str) -> None:
    first, second = make("noisynet-dueling"), make("noisynet-dueling")
    second.streams[role].manual_seed(99)
    for agent in (first, second):
        play(agent, 2)
    for name, stream in first.streams.items():
        same = torch.equal(stream.get_state(), second.streams[name].get_state())
        assert same == (name != role)


# --- act -----------------------------------------------------------------------------------------


def changes_of_noise(agent: ValueAgent, events: str) -> list[bool]:
    """Whether acting noise changed at each action "a" among updates "u" and episode starts "e"."""
    changes, before = [], held_noise(agent.acting)
    for number, event in enumerate(events):
        if event == "u":
            agent.learn(make_batch(seed=number))
        elif event == "e":
            agent.begin_episode()
        else:
            agent.act(observations(1, seed=number), STARTS + number)
            now = held_noise(agent.acting)
            changes.append(not all(torch.equal(now[name], before[name]) for name in now))
            before = now
    return changes


@pytest.mark.parametrize(
    ("redraw", "expected"),
    [
        #           a a a u a a e a a u e a
        ("action", [1, 1, 1, 1, 1, 1, 1, 1]),
        ("update", [1, 0, 0, 1, 0, 0, 0, 1]),
        ("episode", [1, 0, 0, 0, 0, 1, 0, 1]),
    ],
)
def test_acting_noise_is_redrawn_as_configured(redraw: str, expected: list[int]) -> None:
    agent = make("noisynet-dqn", f"exploration.redraw={redraw}")
    assert changes_of_noise(agent, "aaauaaeaauea") == [bool(change) for change in expected]


def test_an_action_is_greedy_in_the_noisy_network() -> None:
    agent = make("noisynet-dueling")
    twin = copy.deepcopy(agent)
    chosen = set()
    for number in range(50):
        seen = observations(1, seed=number)
        action = agent.act(seen, STARTS + number)
        resample_noise(twin.acting, twin.streams["act"], rows=1)
        assert action.tolist() == twin.acting(torch.from_numpy(seen)).argmax(1).tolist()
        chosen.add(int(action[0]))
    assert len(chosen) > 1


@pytest.mark.parametrize("envs", [1, 4])
def test_every_environment_draws_its_own_sample(envs: int) -> None:
    agent = make("noisynet-dqn")
    seen = np.repeat(observations(1), envs, axis=0)  # the same observation everywhere
    agent.act(seen, STARTS)
    layers = noisy_layers(agent.acting)
    assert {layer.rows for layer in layers.values()} == {envs}
    q = agent.acting(torch.from_numpy(seen))
    assert len({tuple(row) for row in q.tolist()}) == envs
    for layer in layers.values():
        assert layer.epsilon_in is not None
        assert len({tuple(row) for row in layer.epsilon_in.tolist()}) == envs


def test_each_environment_acts_with_its_own_sample() -> None:
    agent = make("noisynet-dueling")
    seen = observations(3)
    actions = agent.act(seen, STARTS)
    noise = held_noise(agent.acting)
    for row in range(3):
        alone = copy.deepcopy(agent.acting)
        for name, layer in noisy_layers(alone).items():
            layer.hold_noise(
                {
                    key.removeprefix(f"{name}."): value[row]
                    for key, value in noise.items()
                    if key.startswith(f"{name}.")
                }
            )
        assert alone(torch.from_numpy(seen[row : row + 1])).argmax(1).item() == actions[row]


@pytest.mark.parametrize("agent", NOISY_VALUE_AGENTS)
def test_learning_shares_one_sample_over_the_batch(agent: str) -> None:
    built = make(agent)
    built.act(observations(3), STARTS)
    built.learn(make_batch())
    for network in (built.online, built.target, built.selector):
        assert {layer.rows for layer in noisy_layers(network).values()} == {None}


def test_a_noisy_warm_up_is_noisy_from_the_first_step() -> None:
    agent = make("noisynet-dqn")
    before, explore = agent.streams["act"].get_state(), agent.state()["explore"]
    agent.act(observations(1), 0)
    assert not torch.equal(agent.streams["act"].get_state(), before)
    assert agent.state()["explore"] == explore


def test_a_uniform_warm_up_ends_with_the_start_of_learning() -> None:
    agent = make("noisynet-dqn", "exploration.sigma0=0.1")
    before = agent.streams["act"].get_state()
    actions = [int(agent.act(observations(1), step % STARTS)[0]) for step in range(2_000)]
    np.testing.assert_allclose(np.bincount(actions, minlength=5) / 2_000, 0.2, atol=0.04)
    assert torch.equal(agent.streams["act"].get_state(), before)
    explore = agent.state()["explore"]
    agent.act(observations(1), STARTS)
    assert not torch.equal(agent.streams["act"].get_state(), before)
    assert agent.state()["explore"] == explore


def test_epsilon_follows_its_schedule() -> None:
    agent = make("dqn", "exploration.anneal_steps=100", "exploration.final=0")
    seen = observations(1)
    greedy = int(agent.online(torch.from_numpy(seen)).argmax(1).item())
    shares = []
    for step in (0, STARTS, STARTS + 50, STARTS + 100, STARTS + 500):
        chosen = [int(agent.act(seen, step)[0]) for _ in range(1_000)]
        shares.append(np.mean(np.array(chosen) == greedy))
    np.testing.assert_allclose(shares, [0.2, 0.2, 0.6, 1.0, 1.0], atol=0.05)


def test_without_epsilon_a_plain_agent_is_greedy_from_the_first_step() -> None:
    agent = make("dueling", "exploration.initial=0", "exploration.final=0")
    seen = observations(64)
    greedy = agent.online(torch.from_numpy(seen)).argmax(1).tolist()
    assert agent.act(seen, 0).tolist() == greedy


# --- learn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["huber", "squared"])
@pytest.mark.parametrize("double", [False, True])
def test_an_update_of_a_plain_agent_follows_the_equations(double: bool, loss: str) -> None:
    agent = make("dqn", f"learning.double_q={str(double).lower()}", f"learning.loss={loss}")
    perturb(agent.target)
    weight = np.random.default_rng(1).random(32, dtype=np.float32)
    batch = make_batch(weight=weight)
    x, y, action, reward, discount = (
        torch.from_numpy(getattr(batch, name))
        for name in ("x", "y", "action", "reward", "discount")
    )
    q_t, selector = agent.target(y), agent.online(y)
    assert not torch.equal(q_t.argmax(1), selector.argmax(1))
    target = (
        double_q_target(reward, discount, q_t, selector)
        if double
        else q_learning_target(reward, discount, q_t)
    )
    error = td_error(agent.online(x), action, target.detach())
    elementwise = {"huber": huber, "squared": squared}[loss]
    expected = (elementwise(error) * torch.from_numpy(weight)).mean()
    gradients = torch.autograd.grad(expected, list(agent.online.parameters()))
    learnt = agent.learn(batch)
    np.testing.assert_allclose(learnt.error, error.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert learnt.loss == pytest.approx(expected.item(), rel=1e-5)
    for parameter, gradient in zip(agent.online.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("agent", NOISY_VALUE_AGENTS)
def test_an_update_draws_each_role_from_its_stream_and_holds_it_over_the_batch(
    agent: str,
) -> None:
    built = make(agent)
    perturb(built.target)
    reference = copy.deepcopy(built)
    batch = make_batch()
    learnt = built.learn(batch)
    x, y = torch.from_numpy(batch.x), torch.from_numpy(batch.y)
    reward, discount = torch.from_numpy(batch.reward), torch.from_numpy(batch.discount)
    resample_noise(reference.target, reference.streams["target"])  # ξ′
    q_t = reference.target(y)
    if reference.config.learning.double_q:
        resample_noise(reference.online, reference.streams["select"])  # ξ″
        target = double_q_target(reward, discount, q_t, reference.online(y))
    else:
        target = q_learning_target(reward, discount, q_t)
    resample_noise(reference.online, reference.streams["online"])  # ξ
    error = td_error(reference.online(x), torch.from_numpy(batch.action), target)
    np.testing.assert_allclose(learnt.error, error.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_the_target_of_terminal_transitions_is_the_reward() -> None:
    agent = make("dqn")
    batch = make_batch(discount=np.zeros(32, np.float32))
    taken = agent.online(torch.from_numpy(batch.x)).gather(
        1, torch.from_numpy(batch.action)[:, None]
    )
    learnt = agent.learn(batch)
    expected = batch.reward - taken[:, 0].detach().numpy()
    np.testing.assert_allclose(learnt.error, expected, rtol=1e-5, atol=1e-6)


def test_transitions_with_zero_weight_do_not_change_the_weights() -> None:
    for agent in (make("dqn"), make("noisynet-dueling")):
        before = parameters(agent.online)
        learnt = agent.learn(make_batch(weight=np.zeros(32, np.float32)))
        assert learnt.loss == 0
        assert np.abs(learnt.error).max() > 0  # priorities are not weighted
        assert not moved(agent, before)


def test_transitions_are_weighted_one_by_one() -> None:
    first, second = make("dqn"), make("dqn")
    weight = np.zeros(32, np.float32)
    weight[:16] = 1
    batch = make_batch(weight=weight)
    first.learn(batch)
    reward = batch.reward.copy()
    reward[16:] = 1_000  # with zero weight
    second.learn(dataclasses.replace(batch, reward=reward))
    assert_same(parameters(first.online), parameters(second.online))


def test_every_mu_and_sigma_of_a_noisy_agent_is_trained() -> None:
    agent = make("noisynet-dueling", spec=FLAT)
    before = parameters(agent.online)
    for number in range(3):
        agent.learn(make_batch(seed=number))
    assert moved(agent, before) == before.keys()
    assert len([name for name in before if "sigma" in name]) == 8
    assert len(agent.optimiser.param_groups) == 1  # one learning rate for both


@pytest.mark.parametrize("agent", NOISY_VALUE_AGENTS)
def test_frozen_sigmas_stay_bit_equal(agent: str) -> None:
    built = make(agent, "exploration.learn_sigma=false")
    before = parameters(built.online)
    play(built, 5)
    assert moved(built, before) == {name for name in before if "sigma" not in name}


@pytest.mark.parametrize("agent", NOISY_VALUE_AGENTS)
def test_with_noise_in_acting_only_updates_use_mean_weights(agent: str) -> None:
    built, batch = make(agent, "exploration.used_in=acting"), make_batch()
    reference = copy.deepcopy(built)
    learnt = built.learn(batch)
    with noise_off(reference.online), noise_off(reference.target):
        x, y = torch.from_numpy(batch.x), torch.from_numpy(batch.y)
        q_t = reference.target(y)
        target = double_q_target(
            torch.from_numpy(batch.reward),
            torch.from_numpy(batch.discount),
            q_t,
            reference.online(y) if reference.config.learning.double_q else q_t,
        )
        error = td_error(reference.online(x), torch.from_numpy(batch.action), target)
    np.testing.assert_allclose(learnt.error, error.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert changes_of_noise(built, "aaa") == [True] * 3
    for role in ("online", "target", "select"):
        fresh = make(agent).streams[role].get_state()
        assert torch.equal(built.streams[role].get_state(), fresh)


@pytest.mark.parametrize("agent", NOISY_VALUE_AGENTS)
def test_with_noise_in_learning_only_actions_use_mean_weights(agent: str) -> None:
    built = make(agent, "exploration.used_in=learning")
    seen = observations(64)
    with noise_off(built.online):
        greedy = built.online(torch.from_numpy(seen)).argmax(1).tolist()
    assert built.act(seen, STARTS).tolist() == greedy
    assert built.act(seen, 0).tolist() == greedy
    assert changes_of_noise(built, "aaua") == [False] * 3
    fresh = make(agent).streams["online"].get_state()
    assert not torch.equal(built.streams["online"].get_state(), fresh)


def test_the_gradient_is_clipped_by_its_global_norm() -> None:
    clipped = make("dqn", "learning.max_gradient_norm=0.01")
    free = make("dqn")
    batch = make_batch()
    clipped.learn(batch)
    free.learn(batch)

    def gradient(agent: ValueAgent) -> Tensor:
        found = [p.grad.flatten() for p in agent.online.parameters() if p.grad is not None]
        return torch.cat(found)

    assert float(gradient(free).norm()) > 0.1
    assert float(gradient(clipped).norm()) == pytest.approx(0.01, rel=1e-3)
    torch.testing.assert_close(
        gradient(clipped), gradient(free) * (0.01 / float(gradient(free).norm())), rtol=1e-3, atol=0
    )


@pytest.mark.parametrize("compute", ["torch", "auto"])
@pytest.mark.parametrize("name", ["dqn", "noisynet-dueling", "rainbow"])
def test_an_update_measures_the_mean_value_and_the_norm_of_its_gradient(
    name: str, compute: str
) -> None:
    batch, still = make_batch(), "optimiser.learning_rate=1e-12"
    agent = make(name, f"compute={compute}", "learning.max_gradient_norm=0.001", still)
    unclipped = make(name, "compute=torch", "learning.max_gradient_norm=null", still)
    learnt = agent.learn(batch)
    assert unclipped.learn(batch).gradient_norm is None
    gradients = [p.grad for p in unclipped.online.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    assert learnt.gradient_norm == pytest.approx(float(norm), rel=1e-4)
    with torch.no_grad():
        q = unclipped.online(torch.from_numpy(batch.x))  # with the ξ of the update
    taken = q.gather(1, torch.from_numpy(batch.action)[:, None])
    assert learnt.q_mean == pytest.approx(float(taken.mean()), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("compute", ["torch", "auto"])
def test_the_norm_of_a_gradient_that_is_not_clipped_is_measured_now_and_then(compute: str) -> None:
    agent = make("dqn", f"compute={compute}", "optimiser.learning_rate=1e-12")
    clipped = make("dqn", f"compute={compute}", "learning.max_gradient_norm=1e6")
    batch = make_batch()
    norms = [agent.learn(batch).gradient_norm for _ in range(2 * NORM_PERIOD_UPDATES)]
    measured = [number for number, norm in enumerate(norms, 1) if norm is not None]
    assert measured == [NORM_PERIOD_UPDATES, 2 * NORM_PERIOD_UPDATES]
    assert norms[-1] == pytest.approx(clipped.learn(batch).gradient_norm, rel=1e-4)


def test_sync_target_copies_weights_and_not_noise() -> None:
    agent = make("noisynet-dqn")
    play(agent, 2, start=1)
    online, target = agent.online.state_dict(), agent.target.state_dict()
    assert any(not torch.equal(online[name], target[name]) for name in online)
    noise = held_noise(agent.target)
    agent.sync_target()
    assert_same(dict(agent.target.state_dict()), dict(agent.online.state_dict()))
    assert_same(held_noise(agent.target), noise)
    assert all(
        not torch.equal(value, noise[name]) for name, value in held_noise(agent.online).items()
    )
    agent.learn(make_batch())
    assert not torch.equal(
        agent.target.state_dict()["head.q.0.weight_mu"],
        agent.online.state_dict()["head.q.0.weight_mu"],
    )


def poison(tensor: Tensor, value: float) -> None:
    with torch.no_grad():
        tensor.view(-1)[0] = value


def test_a_non_finite_loss_names_its_origin_and_the_update() -> None:
    agent = make("noisynet-dqn")
    play(agent, 1)
    poison(agent.online.get_parameter("head.q.0.weight_mu"), np.nan)
    message = "expected a finite loss at update 2, got nan: first in 'head.q.0.weight_mu'"
    with pytest.raises(NonFiniteLoss, match=f"^{message}$"):
        agent.learn(make_batch())


def test_a_non_finite_loss_changes_neither_weights_nor_optimiser_state() -> None:
    for optimiser in ("adam", "centred-rmsprop"):
        agent = make("noisynet-dueling", f"optimiser.kind={optimiser}")
        play(agent, 2)
        tensors, _ = snapshot(agent)
        with pytest.raises(NonFiniteLoss):
            agent.learn(make_batch(reward=np.full(32, np.nan, np.float32)))
        expected = {k: v for k, v in tensors.items() if not k.startswith("stream.")}
        now = agent.tensors()
        assert_same(expected, {name: now[name] for name in expected})
        assert agent.updates == 2


# --- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("redraw", ["action", "update", "episode"])
@pytest.mark.parametrize("agent", NOISY_VALUE_AGENTS)
@pytest.mark.parametrize("envs", [1, 3])
def test_a_restored_noisy_agent_resumes_bit_for_bit(agent: str, redraw: str, envs: int) -> None:
    check_resumption(agent, (f"exploration.redraw={redraw}",), envs)


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        ("dqn", ()),
        ("dueling", ("optimiser.kind=centred-rmsprop",)),
        ("noisynet-dqn", ("optimiser.kind=centred-rmsprop",)),
        ("noisynet-dqn", ("exploration.noise=independent", "exploration.redraw=episode")),
        ("noisynet-dqn", ("exploration.used_in=acting", "exploration.redraw=update")),
        ("noisynet-dqn", ("exploration.used_in=learning",)),
        ("noisynet-dueling", ("exploration.learn_sigma=false",)),
        ("noisynet-dueling", ("exploration.warm_up=uniform",)),
    ],
    ids=str,
)
def test_a_restored_agent_of_any_kind_resumes_bit_for_bit(
    agent: str, settings: tuple[str, ...]
) -> None:
    check_resumption(agent, settings, envs=2)


def check_resumption(agent: str, settings: tuple[str, ...], envs: int) -> None:
    uninterrupted = make(agent, *settings)
    play(uninterrupted, 4, envs=envs)
    uninterrupted.act(observations(envs), STARTS)  # between two updates
    tensors, state = snapshot(uninterrupted)
    restored = make(agent, *settings)
    play(restored, 2, start=50, envs=envs)  # its state is replaced
    restored.restore(tensors, state)
    assert_same(uninterrupted.tensors(), restored.tensors())
    assert play(uninterrupted, 4, start=4, envs=envs) == play(restored, 4, start=4, envs=envs)
    assert_same(uninterrupted.tensors(), restored.tensors())
    assert uninterrupted.state() == restored.state()


@pytest.mark.parametrize("spec", [CHANNELS, SCREEN], ids=lambda spec: spec.name)
@pytest.mark.parametrize("optimiser", ["adam", "centred-rmsprop"])
def test_an_agent_with_convolutions_resumes_bit_for_bit(optimiser: str, spec: Spec) -> None:
    """Weights of convolutions are channels-last; tensors from a file are contiguous."""
    batch = make_batch(spec=spec)
    uninterrupted, restored = (
        make("noisynet-dqn", f"optimiser.kind={optimiser}", spec=spec) for _ in range(2)
    )
    for _ in range(5):
        uninterrupted.learn(batch)
    restored.restore(*snapshot(uninterrupted))
    for _ in range(5):
        uninterrupted.learn(batch)
        restored.learn(batch)
    assert_same(uninterrupted.tensors(), restored.tensors())


def test_an_agent_can_be_restored_from_before_its_first_update() -> None:
    for optimiser in ("adam", "centred-rmsprop"):
        uninterrupted = make("noisynet-dqn", f"optimiser.kind={optimiser}", seed=4)
        restored = make("noisynet-dqn", f"optimiser.kind={optimiser}", seed=4)
        play(restored, 1)
        restored.restore(*snapshot(uninterrupted))
        assert play(uninterrupted, 3) == play(restored, 3)
        assert_same(uninterrupted.tensors(), restored.tensors())


def test_only_the_acting_noise_is_saved() -> None:
    """Every update draws its own; only the acting noise may be held from one step to the next."""
    names = make("noisynet-dqn").tensors()
    noise = {name for name in names if "epsilon" in name}
    assert noise == {
        f"noise.head.q.{layer}.epsilon_{end}" for layer in (0, 2) for end in ("in", "out")
    }
    assert {name for name in names if name.startswith("stream.")} == {
        f"stream.{role}" for role in ("act", "online", "target", "select")
    }
