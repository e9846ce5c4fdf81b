"""The gradient by hand: autograd's own, but for rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from noisynet import losses
from noisynet.agents import Learnt, ValueAgent
from noisynet.config import VALUE_AGENTS, Config, build_config
from noisynet.envs import EnvironmentSpec
from noisynet.replay import TransitionBatch

# small, for Nature's network
SCREEN = EnvironmentSpec("atari/pong", 6, (36, 36), "uint8", 4, 4, 1 / 255)
PLANES = EnvironmentSpec("minatar/breakout", 6, (4, 10, 10), "uint8", 1, 1, 1.0)
VECTOR = EnvironmentSpec("gym/CartPole-v1", 2, (4,), "float32", 1, 1, 1.0)


SPECS = {"screen": SCREEN, "planes": PLANES, "vector": VECTOR}


def make(agent: str, spec: EnvironmentSpec, *settings: str) -> ValueAgent:
    hidden = "network.hidden=[24]" if spec is not PLANES else "network.hidden=[128]"
    config = build_config(agent, spec.name, settings=[hidden, *settings])
    assert isinstance(config, Config)
    return ValueAgent(config, spec)


def by_autograd(agent: ValueAgent) -> ValueAgent:
    """The same agent, with a hook that nothing but autograd's way would call."""
    agent.online.torso.register_forward_hook(lambda *_: None)
    return agent


def make_batch(spec: EnvironmentSpec, seed: int, size: int = 32) -> TransitionBatch:
    rng = np.random.default_rng(seed)

    def observations() -> Any:
        shape = (size, spec.stack, *spec.frame_shape)
        if spec.frame_dtype == "float32":
            return rng.standard_normal(shape, dtype=np.float32)
        if spec is PLANES:
            return (rng.random(shape) < 0.1).astype(np.uint8)
        return rng.integers(256, size=shape, dtype=np.uint8)

    return TransitionBatch(
        x=observations(),
        action=rng.integers(spec.num_actions, size=size),
        reward=3
        * rng.standard_normal(size, dtype=np.float32),  # on both sides of Huber's threshold
        discount=np.where(rng.random(size) < 0.2, 0, 0.99).astype(np.float32),
        y=observations(),
        weight=rng.random(size, dtype=np.float32),
        index=np.arange(size),
    )


def gradients(agent: ValueAgent, batch: TransitionBatch) -> tuple[Learnt, dict[str, Tensor | None]]:
    learnt = agent.learn(batch)
    return learnt, {name: value.grad for name, value in agent.online.named_parameters()}


def check_alike(one: dict[str, Any], other: dict[str, Any], tolerance: float) -> None:
    """Each tensor, relative to its largest number."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if value is None:
            assert other[name] is None, name
            continue
        largest = float(other[name].abs().max())
        assert float((value - other[name]).abs().max()) <= tolerance * largest, name


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_a_gradient_by_hand_is_autograds(agent: str, spec: str) -> None:
    batch = make_batch(SPECS[spec], 0)
    learnt, mine = gradients(make(agent, SPECS[spec]), batch)
    expected, theirs = gradients(by_autograd(make(agent, SPECS[spec])), batch)
    assert learnt.loss == pytest.approx(expected.loss, rel=1e-5)
    assert np.allclose(learnt.td_error, expected.td_error, rtol=1e-5, atol=1e-5)
    check_alike(mine, theirs, 2e-5)


@pytest.mark.parametrize(
    "settings",
    [
        ("learning.double_q=true",),
        ("learning.double_q=false", "learning.loss=squared"),
        ("network.hidden=[64,32]",),
        ("exploration.noise=independent",),
        ("exploration.learn_sigma=false",),
        ("exploration.used_in=acting",),
        ("network.torso=a3c",),
        ("network.torso=minatar",),
        ("network.torso=flat",),
    ],
    ids=lambda settings: " ".join(settings),
)
def test_so_it_is_with_every_option(settings: tuple[str, ...]) -> None:
    batch = make_batch(SCREEN, 1)
    agents = [make("noisynet-dueling", SCREEN, *settings) for _ in range(2)]
    _, mine = gradients(agents[0], batch)
    _, theirs = gradients(by_autograd(agents[1]), batch)
    check_alike(mine, theirs, 2e-5)


def differences_after_a_thousand_updates(spec: EnvironmentSpec, size: int) -> float:
    """Of the weights, the largest, relative to the largest weight of its tensor."""
    agents = [make("noisynet-dqn", spec, "network.hidden=[16]") for _ in range(2)]
    by_autograd(agents[1])
    batches = [make_batch(spec, seed, size) for seed in range(10)]
    for number in range(1_000):
        for agent in agents:
            agent.learn(batches[number % len(batches)])
            if number % 100 == 0:
                agent.sync_target()
    mine, theirs = (agent.online.state_dict() for agent in agents)
    return max(
        float((mine[name] - theirs[name]).abs().max() / theirs[name].abs().max()) for name in mine
    )


def test_weights_after_a_thousand_updates_are_those_of_autograd() -> None:
    assert differences_after_a_thousand_updates(PLANES, 8) < 1e-5


@pytest.mark.slow
def test_so_are_those_of_a_network_for_screens_where_rounding_does_not_grow() -> None:
    """In single precision RMSProp makes a difference of 1e-7 one of 1e-2 within as many updates."""
    torch.set_default_dtype(torch.float64)
    try:
        worst = differences_after_a_thousand_updates(SCREEN, 18)  # two chunks
    finally:
        torch.set_default_dtype(torch.float32)
    assert worst < 1e-12


def test_whoever_hooks_into_a_network_sees_every_pass() -> None:
    agent, passes = make("noisynet-dqn", PLANES), []
    agent.target.head.register_forward_hook(lambda *_: passes.append("target"))
    agent.learn(make_batch(PLANES, 0))
    assert passes == ["target"]


@pytest.mark.parametrize("loss", ["huber", "squared"])
@pytest.mark.parametrize("double_q", [False, True])
def test_the_loss_in_one_call_is_that_of_its_parts(loss: str, double_q: bool) -> None:
    rng = torch.Generator().manual_seed(1)
    q, q_t, selector = torch.randn(3, 32, 4, generator=rng)
    q.requires_grad_()
    batch = make_batch(PLANES, 0)
    columns = (torch.from_numpy(values) for values in (batch.reward, batch.discount, batch.weight))
    reward, discount, weight = columns
    action = torch.from_numpy(batch.action % 4)
    target = losses.q_learning_target(reward, discount, q_t)
    if double_q:
        target = losses.double_q_target(reward, discount, q_t, selector)
    error = losses.td_error(q, action, target)
    expected = losses.mean_over_batch(getattr(losses, loss)(error), weight)
    expected.backward()
    found = losses.value_loss(
        q,
        action,
        reward,
        discount,
        q_t,
        selector if double_q else None,
        weight,
        1.0 if loss == "huber" else math.inf,
    )
    assert found.loss == pytest.approx(expected.item(), rel=1e-6)
    assert torch.allclose(found.error, error.detach(), atol=1e-6)
    assert torch.allclose(found.target, target, atol=1e-6)
    assert q.grad is not None
    assert torch.allclose(found.gradient, q.grad, atol=1e-7)


@pytest.mark.parametrize("place", ["q", "q_t", "reward"])
def test_what_is_not_a_number_makes_the_loss_none(place: str) -> None:
    inputs = {"q": torch.zeros(2, 3), "q_t": torch.zeros(2, 3), "reward": torch.zeros(2)}
    inputs[place].view(2, -1)[1, 0] = math.nan
    ones, action = torch.ones(2), torch.zeros(2, dtype=torch.int64)
    found = losses.value_loss(
        inputs["q"], action, inputs["reward"], ones, inputs["q_t"], None, ones, 1.0
    )
    assert math.isnan(found.loss)


@pytest.mark.parametrize("agent", VALUE_AGENTS)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("optimiser", ["adam", "centred-rmsprop"])
def test_acting_by_hand_gives_the_networks_values(agent: str, spec: str, optimiser: str) -> None:
    made = make(agent, SPECS[spec], f"optimiser.kind={optimiser}")
    made.prepare(1)
    observation = torch.from_numpy(make_batch(SPECS[spec], 0, 1).x)
    for seed in range(3):  # before an update, and after some
        with torch.no_grad():
            by_hand = made._values(1)
            assert by_hand is not made.acting
            torso = made.acting.torso
            features = torso.layers(torso.prepared(observation)).flatten(1)
            assert torch.allclose(by_hand(observation), made.acting.head(features), atol=1e-5)
        made.learn(make_batch(SPECS[spec], seed))
    made.acting.head.register_forward_hook(lambda *_: None)
    assert made._values(1) is made.acting  # whoever hooks in sees every pass
