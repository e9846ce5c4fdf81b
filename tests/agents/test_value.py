"""The value agents: how they act, what they learn, and that they continue bit for bit."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet.agents import EvaluationPolicy, NonFiniteLoss, ValueAgent
from noisynet.config import VALUE_AGENTS, Config, build_config
from noisynet.envs import EnvironmentSpec
from noisynet.layers import held_noise, noise_off, noisy_layers, resample_noise
from noisynet.losses import double_q_target, huber, q_learning_target, squared, td_error
from noisynet.networks import ValueNetwork
from noisynet.replay import TransitionBatch

FLAT = EnvironmentSpec("deep_sea/4", 5, (6,), "float32", 1, 1, 1.0)
PLANES = EnvironmentSpec("minatar/breakout", 6, (4, 10, 10), "uint8", 1, 1, 1.0)
SCREEN = EnvironmentSpec("atari/pong", 6, (84, 84), "uint8", 4, 4, 1 / 255)
STARTS = 32  # steps
NOISY_AGENTS = ("noisynet-dqn", "noisynet-dueling")


def make(agent: str, *settings: str, seed: int = 0, spec: EnvironmentSpec = FLAT) -> ValueAgent:
    fixed = ["network.hidden=[8]", f"learning.starts_steps={STARTS}"]
    config = build_config(agent, spec.name, seed=seed, settings=[*fixed, *settings])
    assert isinstance(config, Config)
    return ValueAgent(config, spec)


def observations(count: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, 1, 6), dtype=np.float32)


def make_batch(size: int = 32, seed: int = 0, **columns: Any) -> TransitionBatch:
    rng = np.random.default_rng(seed)
    batch = TransitionBatch(
        x=rng.standard_normal((size, 1, 6), dtype=np.float32),
        action=rng.integers(5, size=size),
        reward=rng.standard_normal(size, dtype=np.float32) * 3,
        discount=np.where(np.arange(size) % 4 == 0, 0, 0.99).astype(np.float32),
        y=rng.standard_normal((size, 1, 6), dtype=np.float32),
        weight=np.ones(size, np.float32),
        index=np.arange(size),
    )
    return dataclasses.replace(batch, **columns)


def play(agent: ValueAgent, rounds: int, start: int = 0, envs: int = 1) -> list[list[int]]:
    """Act four times, learn, begin an episode now and then."""
    actions = []
    for number in range(start, start + rounds):
        for step in range(4):
            seen = observations(envs, seed=4 * number + step)
            actions.append(agent.act(seen, STARTS + 4 * number + step).tolist())
        agent.learn(make_batch(seed=number))
        if number % 3 == 0:
            agent.begin_episode()
        if number % 5 == 0:
            agent.sync_target()
    return actions


def snapshot(agent: ValueAgent) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {name: value.clone() for name, value in agent.tensors().items()}
    return tensors, json.loads(json.dumps(agent.state()))


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different


def parameters(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.named_parameters()}


def moved(agent: ValueAgent, before: dict[str, Tensor]) -> set[str]:
    now = parameters(agent.online)
    return {name for name in before if not torch.equal(before[name], now[name])}


def perturb(network: nn.Module, seed: int = 9) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)


# --- build ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "torso", "scale"),
    [(SCREEN, 3136, 1 / 255), (PLANES, 1024, 1.0), (FLAT, 6, 1.0)],
    ids=["screens", "planes", "flat"],
)
def test_the_torso_and_its_scale_follow_from_the_frames(
    spec: EnvironmentSpec, torso: int, scale: float
) -> None:
    online = make("noisynet-dqn", spec=spec).online
    assert isinstance(online, ValueNetwork)
    assert online.torso.features == torso
    assert online.torso.scale == scale


def test_screens_are_scaled_and_planes_are_not() -> None:
    """A brighter screen is the same as larger numbers at the input of the first convolution."""
    for spec, factor in ((SCREEN, 255.0), (PLANES, 1.0)):
        online = make("dqn", spec=spec).online
        assert isinstance(online, ValueNetwork)
        image = torch.randint(2, (1, spec.stack, *spec.frame_shape), dtype=torch.uint8)
        brightest = image * 255 if spec is SCREEN else image
        plain = copy.deepcopy(online)
        plain.torso.scale = 1.0
        torch.testing.assert_close(online(brightest), plain(brightest.float() / factor))


@pytest.mark.parametrize(("agent", "layers"), [("noisynet-dqn", 2), ("noisynet-dueling", 4)])
def test_the_noisy_agents_have_so_many_noisy_layers(agent: str, layers: int) -> None:
    built = make(agent, spec=SCREEN)
    for network in (built.online, built.target, built.acting):
        assert len(noisy_layers(network)) == layers
    assert not noisy_layers(make(agent.removeprefix("noisynet-")).online)


def test_acting_shares_the_weights_and_the_target_has_its_own() -> None:
    agent = make("noisynet-dueling")
    online, acting = parameters(agent.online), dict(agent.acting.named_parameters())
    assert all(acting[name] is parameter for name, parameter in agent.online.named_parameters())
    perturb(agent.online)
    assert_same(parameters(agent.target), online)  # as it was when the agent was made
    assert not [p for p in agent.target.parameters() if p.requires_grad]


def test_the_optimiser_and_the_architecture_are_those_of_the_configuration() -> None:
    agent = make("dueling", spec=SCREEN)
    assert type(agent.optimiser).__name__ == "CentredRMSProp"
    group = agent.optimiser.param_groups[0]
    assert (group["lr"], group["decay"], group["epsilon"]) == (6.25e-5, 0.95, 0.01 / 1024)
    assert isinstance(agent.online, ValueNetwork)
    assert agent.online.trunk_gradient_scale == 2**-0.5
    adam = make("dqn", "optimiser.kind=adam", "optimiser.epsilon=1e-5").optimiser
    assert isinstance(adam, torch.optim.Adam)
    assert (adam.defaults["lr"], adam.defaults["eps"]) == (1e-3, 1e-5)


# --- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_the_seed_decides_everything(agent: str) -> None:
    first, second, other = make(agent), make(agent), make(agent, seed=1)
    torch.manual_seed(123)  # of no consequence
    actions = play(first, 5)
    assert actions == play(second, 5)
    assert_same(first.tensors(), second.tensors())
    assert first.state() == second.state()
    assert actions != play(other, 5)


@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_the_global_streams_are_left_alone(agent: str) -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    play(make(agent), 2)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # type: ignore[index]


def test_plain_and_noisy_layers_do_not_start_from_the_same_numbers() -> None:
    """Two generators with one seed would give the convolution the numbers of the first layer."""
    online = make("noisynet-dqn", spec=PLANES).online
    assert isinstance(online, ValueNetwork)
    (convolution, *_) = online.torso.layers
    assert isinstance(convolution, nn.Conv2d)
    plain = convolution.weight.detach().contiguous().flatten()
    means = noisy_layers(online)["head.q.0"].weight_mu.detach().flatten()[: len(plain)]
    correlation = torch.corrcoef(torch.stack([plain, means]))[0, 1]
    assert abs(float(correlation)) < 0.2  # five standard errors of 1/√576


@pytest.mark.parametrize("role", ["act", "online", "target", "select"])
def test_each_role_draws_from_its_own_stream(role: str) -> None:
    """What one role's stream gives has no influence on what the others draw."""
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
            agent.act(observations(1, number), STARTS + number)
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
def test_acting_noise_is_redrawn_when_it_is_due(redraw: str, expected: list[int]) -> None:
    agent = make("noisynet-dqn", f"exploration.redraw={redraw}")
    assert changes_of_noise(agent, "aaauaaeaauea") == [bool(change) for change in expected]


@pytest.mark.parametrize("redraw", ["action", "update", "episode"])
@pytest.mark.parametrize("envs", [1, 3])
def test_preparing_the_next_action_changes_none(redraw: str, envs: int) -> None:
    plain, prepared = (make("noisynet-dqn", f"exploration.redraw={redraw}") for _ in range(2))
    for number in range(30):
        seen = observations(envs, number)
        expected = plain.act(seen, STARTS + number)
        assert prepared.act(seen, STARTS + number).tolist() == expected.tolist()
        prepared.prepare(envs)
        if number % 4 == 3:
            assert plain.learn(make_batch()).loss == prepared.learn(make_batch()).loss
        if number % 7 == 6:
            plain.begin_episode()
            prepared.begin_episode()
    assert prepared.updates == 7


def test_an_action_is_greedy_in_the_noisy_network() -> None:
    agent = make("noisynet-dueling")
    twin = copy.deepcopy(agent)
    chosen = set()
    for number in range(50):
        seen = observations(1, number)
        action = agent.act(seen, STARTS + number)
        resample_noise(twin.acting, twin.streams["act"])
        assert action.tolist() == twin.acting(torch.from_numpy(seen)).argmax(1).tolist()
        chosen.add(int(action[0]))
    assert len(chosen) > 1


def test_one_environment_has_one_sample_and_several_have_one_each() -> None:
    agent = make("noisynet-dqn")
    agent.act(observations(1), STARTS)
    assert {layer.rows for layer in noisy_layers(agent.acting).values()} == {None}
    seen = np.repeat(observations(1), 4, axis=0)  # all see the same
    agent.act(seen, STARTS)
    layers = noisy_layers(agent.acting)
    assert {layer.rows for layer in layers.values()} == {4}
    q = agent.acting(torch.from_numpy(seen))
    assert len({tuple(row) for row in q.tolist()}) == 4
    for layer in layers.values():
        assert layer.epsilon_in is not None
        assert len({tuple(row) for row in layer.epsilon_in.tolist()}) == 4


def test_each_environment_acts_by_its_own_row() -> None:
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


@pytest.mark.parametrize("agent", NOISY_AGENTS)
def test_learning_shares_one_sample_whatever_acting_does(agent: str) -> None:
    built = make(agent)
    built.act(observations(3), STARTS)
    built.learn(make_batch())
    for network in (built.online, built.target):
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


def test_an_epsilon_greedy_agent_follows_its_schedule() -> None:
    agent = make("dqn", "exploration.anneal_steps=100", "exploration.final=0")
    seen = observations(1)
    greedy = int(agent.online(torch.from_numpy(seen)).argmax(1).item())
    shares = []
    for step in (0, STARTS, STARTS + 50, STARTS + 100, STARTS + 500):
        chosen = [int(agent.act(seen, step)[0]) for _ in range(1_000)]
        shares.append(np.mean(np.array(chosen) == greedy))
    np.testing.assert_allclose(shares, [0.2, 0.2, 0.6, 1.0, 1.0], atol=0.05)


def test_without_epsilon_the_control_agent_is_greedy_from_the_first_step() -> None:
    agent = make("dueling", "exploration.initial=0", "exploration.final=0")
    seen = observations(64)
    greedy = agent.online(torch.from_numpy(seen)).argmax(1).tolist()
    assert agent.act(seen, 0).tolist() == greedy


# --- learn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["huber", "squared"])
@pytest.mark.parametrize("double", [False, True])
def test_a_plain_update_is_that_of_the_equations(double: bool, loss: str) -> None:
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
    np.testing.assert_allclose(learnt.td_error, error.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert learnt.loss == pytest.approx(expected.item(), rel=1e-5)
    for parameter, gradient in zip(agent.online.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("agent", NOISY_AGENTS)
def test_a_noisy_update_draws_each_role_from_its_stream_and_holds_it_over_the_batch(
    agent: str,
) -> None:
    built = make(agent)
    perturb(built.target)
    by_hand = copy.deepcopy(built)
    batch = make_batch()
    learnt = built.learn(batch)
    x, y = torch.from_numpy(batch.x), torch.from_numpy(batch.y)
    reward, discount = torch.from_numpy(batch.reward), torch.from_numpy(batch.discount)
    resample_noise(by_hand.target, by_hand.streams["target"])  # ξ′
    q_t = by_hand.target(y)
    if by_hand.config.learning.double_q:
        resample_noise(by_hand.online, by_hand.streams["select"])  # ξ″
        target = double_q_target(reward, discount, q_t, by_hand.online(y))
    else:
        target = q_learning_target(reward, discount, q_t)
    resample_noise(by_hand.online, by_hand.streams["online"])  # ξ
    error = td_error(by_hand.online(x), torch.from_numpy(batch.action), target)
    np.testing.assert_allclose(learnt.td_error, error.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_terminal_transitions_learn_the_reward_alone() -> None:
    agent = make("dqn")
    batch = make_batch(discount=np.zeros(32, np.float32))
    taken = agent.online(torch.from_numpy(batch.x)).gather(
        1, torch.from_numpy(batch.action)[:, None]
    )
    learnt = agent.learn(batch)
    expected = batch.reward - taken[:, 0].detach().numpy()
    np.testing.assert_allclose(learnt.td_error, expected, rtol=1e-5, atol=1e-6)


def test_transitions_of_no_weight_teach_nothing() -> None:
    for agent in (make("dqn"), make("noisynet-dueling")):
        before = parameters(agent.online)
        learnt = agent.learn(make_batch(weight=np.zeros(32, np.float32)))
        assert learnt.loss == 0
        assert np.abs(learnt.td_error).max() > 0  # priorities are not weighted
        assert not moved(agent, before)


def test_weights_decide_which_transitions_are_learnt_from() -> None:
    first, second = make("dqn"), make("dqn")
    weight = np.zeros(32, np.float32)
    weight[:16] = 1
    batch = make_batch(weight=weight)
    first.learn(batch)
    reward = batch.reward.copy()
    reward[16:] = 1_000  # of no weight
    second.learn(dataclasses.replace(batch, reward=reward))
    assert_same(parameters(first.online), parameters(second.online))


def test_every_parameter_of_a_noisy_agent_learns_mu_and_sigma_alike() -> None:
    agent = make("noisynet-dueling", spec=FLAT)
    before = parameters(agent.online)
    for number in range(3):
        agent.learn(make_batch(seed=number))
    assert moved(agent, before) == before.keys()
    assert len([name for name in before if "sigma" in name]) == 8
    assert len(agent.optimiser.param_groups) == 1  # one learning rate for both


@pytest.mark.parametrize("agent", NOISY_AGENTS)
def test_frozen_deviations_stay_bit_equal(agent: str) -> None:
    built = make(agent, "exploration.learn_sigma=false")
    before = parameters(built.online)
    play(built, 5)
    assert moved(built, before) == {name for name in before if "sigma" not in name}


@pytest.mark.parametrize("agent", NOISY_AGENTS)
def test_noise_in_acting_only_learns_with_mean_weights(agent: str) -> None:
    built, batch = make(agent, "exploration.used_in=acting"), make_batch()
    by_hand = copy.deepcopy(built)
    learnt = built.learn(batch)
    with noise_off(by_hand.online), noise_off(by_hand.target):
        x, y = torch.from_numpy(batch.x), torch.from_numpy(batch.y)
        q_t = by_hand.target(y)
        target = double_q_target(
            torch.from_numpy(batch.reward),
            torch.from_numpy(batch.discount),
            q_t,
            by_hand.online(y) if by_hand.config.learning.double_q else q_t,
        )
        error = td_error(by_hand.online(x), torch.from_numpy(batch.action), target)
    np.testing.assert_allclose(learnt.td_error, error.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert changes_of_noise(built, "aaa") == [True] * 3
    for role in ("online", "target", "select"):
        fresh = make(agent).streams[role].get_state()
        assert torch.equal(built.streams[role].get_state(), fresh)


@pytest.mark.parametrize("agent", NOISY_AGENTS)
def test_noise_in_learning_only_acts_with_mean_weights(agent: str) -> None:
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


def test_copying_to_the_target_takes_weights_and_leaves_noise() -> None:
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


# --- losses that are not finite ------------------------------------------------------------------


def poison(tensor: Tensor, value: float) -> None:
    with torch.no_grad():
        tensor.view(-1)[0] = value


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_reward_that_is_not_finite_is_named(value: float) -> None:
    agent = make("noisynet-dqn")
    reward = np.zeros(32, np.float32)
    reward[3] = value
    with pytest.raises(NonFiniteLoss, match=r"at update 1, got (nan|inf): first in 'reward'"):
        agent.learn(make_batch(reward=reward))


@pytest.mark.parametrize("name", ["head.q.0.weight_mu", "head.q.2.bias_sigma"])
def test_the_weight_that_is_not_finite_is_named(name: str) -> None:
    agent = make("noisynet-dqn")
    play(agent, 1)
    poison(agent.online.get_parameter(name), np.nan)
    with pytest.raises(NonFiniteLoss, match=f"at update 2, got nan: first in '{name}'"):
        agent.learn(make_batch())


def test_the_weight_of_the_target_that_is_not_finite_is_named() -> None:
    agent = make("dqn")
    poison(agent.target.get_parameter("head.q.2.bias"), np.inf)
    with pytest.raises(NonFiniteLoss, match=r"first in 'target head\.q\.2\.bias'"):
        agent.learn(make_batch())


def test_observations_that_are_not_finite_are_named() -> None:
    bad = np.full((32, 1, 6), np.nan, np.float32)
    with pytest.raises(NonFiniteLoss, match="first in 'the observations'"):
        make("dqn").learn(make_batch(x=bad))
    with pytest.raises(NonFiniteLoss, match="first in 'the observations after'"):
        make("dqn").learn(make_batch(y=bad))


def test_rewards_too_large_for_the_loss_are_blamed_on_themselves() -> None:
    reward = np.full(32, 1e30, np.float32)
    with pytest.raises(NonFiniteLoss, match=r"errors of up to 1e\+30 are too large"):
        make("dqn", "learning.loss=squared").learn(make_batch(reward=reward))


def test_a_loss_that_is_not_finite_leaves_the_weights_and_the_optimiser_as_they_were() -> None:
    for optimiser in ("adam", "centred-rmsprop"):
        agent = make("noisynet-dueling", f"optimiser.kind={optimiser}")
        play(agent, 2)
        tensors, _ = snapshot(agent)
        with pytest.raises(NonFiniteLoss):
            agent.learn(make_batch(reward=np.full(32, np.nan, np.float32)))
        kept = {name: value for name, value in tensors.items() if not name.startswith("stream.")}
        now = agent.tensors()
        assert_same(kept, {name: now[name] for name in kept})
        assert agent.updates == 2


# --- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("redraw", ["action", "update", "episode"])
@pytest.mark.parametrize("agent", NOISY_AGENTS)
@pytest.mark.parametrize("envs", [1, 3])
def test_a_restored_noisy_agent_continues_bit_for_bit(agent: str, redraw: str, envs: int) -> None:
    check_continuation(agent, (f"exploration.redraw={redraw}",), envs)


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
def test_a_restored_agent_of_any_kind_continues_bit_for_bit(
    agent: str, settings: tuple[str, ...]
) -> None:
    check_continuation(agent, settings, envs=2)


def check_continuation(agent: str, settings: tuple[str, ...], envs: int) -> None:
    going_on = make(agent, *settings)
    play(going_on, 4, envs=envs)
    going_on.act(observations(envs), STARTS)  # in the midst of a round
    tensors, state = snapshot(going_on)
    restored = make(agent, *settings)
    play(restored, 2, start=50, envs=envs)  # it has a past of its own
    restored.restore(tensors, state)
    assert_same(going_on.tensors(), restored.tensors())
    assert play(going_on, 4, start=4, envs=envs) == play(restored, 4, start=4, envs=envs)
    assert_same(going_on.tensors(), restored.tensors())
    assert going_on.state() == restored.state()


@pytest.mark.parametrize("spec", [PLANES, SCREEN], ids=lambda spec: spec.name)
@pytest.mark.parametrize("optimiser", ["adam", "centred-rmsprop"])
def test_an_agent_restored_from_a_file_continues_bit_for_bit_with_convolutions(
    optimiser: str, spec: EnvironmentSpec
) -> None:
    """Their weights are laid out channels-last; tensors from a file are not."""
    generator, shape = np.random.default_rng(0), (32, spec.stack, *spec.frame_shape)
    x, y = (generator.integers(2, size=shape, dtype=np.uint8) for _ in range(2))
    batch = make_batch(x=x, y=y)
    going_on, restored = (
        make("noisynet-dqn", f"optimiser.kind={optimiser}", spec=spec) for _ in range(2)
    )
    for _ in range(5):
        going_on.learn(batch)
    tensors, state = snapshot(going_on)
    restored.restore({name: value.contiguous() for name, value in tensors.items()}, state)
    for _ in range(5):
        going_on.learn(batch)
        restored.learn(batch)
    assert_same(going_on.tensors(), restored.tensors())


def test_an_agent_can_be_restored_from_before_its_first_update() -> None:
    for optimiser in ("adam", "centred-rmsprop"):
        going_on = make("noisynet-dqn", f"optimiser.kind={optimiser}", seed=4)
        restored = make("noisynet-dqn", f"optimiser.kind={optimiser}", seed=4)
        play(restored, 1)
        restored.restore(*snapshot(going_on))
        assert play(going_on, 3) == play(restored, 3)
        assert_same(going_on.tensors(), restored.tensors())


def test_the_tensors_hold_no_noise_of_learning() -> None:
    """It is redrawn before it is used; only what acts on may be in force."""
    names = make("noisynet-dqn").tensors()
    noise = {name for name in names if "epsilon" in name}
    assert noise == {
        f"noise.head.q.{layer}.epsilon_{end}" for layer in (0, 2) for end in ("in", "out")
    }
    assert {name for name in names if name.startswith("stream.")} == {
        f"stream.{role}" for role in ("act", "online", "target", "select")
    }


# --- evaluation ----------------------------------------------------------------------------------


def test_an_evaluation_policy_is_decided_by_its_role() -> None:
    agent, seen = make("noisynet-dqn"), observations(1)

    def actions(role: str) -> list[int]:
        policy = EvaluationPolicy(agent, "on", role)
        return [int(policy.act(seen)[0]) for _ in range(40)]

    assert actions("eval 1") == actions("eval 1")
    assert actions("eval 1") != actions("eval 2")


def test_noise_is_redrawn_at_every_action_of_an_evaluation_whatever_training_does() -> None:
    agent = make("noisynet-dqn", "exploration.redraw=episode")
    policy = EvaluationPolicy(agent, "on", "eval")
    seen = []
    for _ in range(3):
        policy.act(observations(1))
        seen.append(held_noise(policy.network)["head.q.0.epsilon_in"])
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_an_evaluation_without_noise_plays_by_mean_weights() -> None:
    agent, seen = make("noisynet-dueling"), observations(64)
    with noise_off(agent.online):
        greedy = agent.online(torch.from_numpy(seen)).argmax(1).tolist()
    assert EvaluationPolicy(agent, "off", "eval").act(seen).tolist() == greedy
    assert EvaluationPolicy(agent, "on", "eval").act(seen).tolist() != greedy


def test_an_evaluation_plays_by_the_latest_weights() -> None:
    agent, seen = make("dqn", "exploration.evaluation=0"), observations(64)
    policy = EvaluationPolicy(agent, "off", "eval")
    before = policy.act(seen).tolist()
    perturb(agent.online)
    assert policy.act(seen).tolist() == agent.online(torch.from_numpy(seen)).argmax(1).tolist()
    assert policy.act(seen).tolist() != before


def test_a_plain_agent_is_evaluated_with_its_own_epsilon() -> None:
    agent, seen = make("dqn", "exploration.evaluation=0.5"), observations(1)
    greedy = int(agent.online(torch.from_numpy(seen)).argmax(1).item())
    policy = EvaluationPolicy(agent, "off", "eval")
    share = np.mean([int(policy.act(seen)[0]) == greedy for _ in range(2_000)])
    assert share == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize("noise", ["on", "off"])
@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_an_evaluation_policy_leaves_the_agent_as_it_is(agent: str, noise: Any) -> None:
    built = make(agent)
    play(built, 2)
    tensors, state = snapshot(built)
    policy = EvaluationPolicy(built, noise, "eval")
    for number in range(5):
        policy.act(observations(2, number))
    assert_same(built.tensors(), tensors)
    assert built.state() == state
