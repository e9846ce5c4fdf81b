"""The compiled update of small networks: which it knows, and that it equals the plain one."""

from __future__ import annotations

import copy
import dataclasses
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from noisynet import config
from noisynet.agents import PlainUpdate, ValueAgent
from noisynet.agents.fused import FusedUpdate, _FlatNoise, is_small
from noisynet.config import VALUE_AGENTS
from noisynet.layers import (
    Distribution,
    Noise,
    NoiseFunction,
    held_noise,
    noisy_layers,
    resample_noise,
)
from noisynet.networks import NetworkShape, ValueNetwork, make_value_network

from .synthetic import (
    CHANNELS,
    FLAT,
    SCREEN,
    STARTS,
    Spec,
    make_batch,
    make_value_agent,
    observations,
    parameters,
    snapshot,
)

SMALL_IMAGES = dataclasses.replace(CHANNELS, pixel_scale=1 / 255)


def pair(name: str, *settings: str, spec: Spec = FLAT) -> tuple[ValueAgent, ValueAgent]:
    """An agent with the compiled update, and the same with the plain one."""
    fused, plain = (
        make_value_agent(name, *settings, spec=spec, compute=compute)
        for compute in ("auto", "torch")
    )
    assert isinstance(fused.update, FusedUpdate)
    assert isinstance(plain.update, PlainUpdate)
    return fused, plain


def gradients(agent: ValueAgent) -> dict[str, Tensor]:
    """Of the first update, by the name of the parameter: the averages began at 0."""
    centred = isinstance(agent.config.optimiser, config.CentredRMSProp)
    average, rest = ("gradient_average", 0.05) if centred else ("exp_avg", 0.1)
    return {
        name: agent.optimiser.state[parameter][average] / rest
        for name, parameter in agent.online.named_parameters()
        if parameter.requires_grad
    }


# --- the networks that it knows ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "spec", "expected"),
    [
        ((), FLAT, True),
        (("network.hidden=[64, 64]",), FLAT, True),
        ((), CHANNELS, True),
        (("network.hidden=[128]",), CHANNELS, True),
        (("network.torso=[[8, 5, 1, 0]]",), CHANNELS, True),
        (("network.torso=flat",), CHANNELS, True),
        ((), SCREEN, False),
        (("network.hidden=[257]",), CHANNELS, False),  # 257 × 1024 weights
        (("network.torso=[[8, 3, 2, 0]]",), CHANNELS, False),
        (("network.torso=[[8, 3, 1, 1]]",), CHANNELS, False),
        (("network.torso=[[8, 3, 1, 0], [8, 3, 1, 0]]",), CHANNELS, False),
        ((), dataclasses.replace(CHANNELS, frame_dtype="float32"), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["dqn", "noisynet-dueling", "rainbow"])
def test_small_networks_are_fully_connected_after_at_most_one_plain_convolution(
    name: str, settings: tuple[str, ...], spec: Spec, expected: bool
) -> None:
    agent = make_value_agent(name, *settings, spec=spec, compute="auto")
    assert is_small(agent.online, spec.frame_dtype) == expected
    assert isinstance(agent.update, FusedUpdate if expected else PlainUpdate)


def noisy_network(
    noise: Noise, distribution: Distribution = "gaussian", f: NoiseFunction = "signed_sqrt"
) -> ValueNetwork:
    shape = NetworkShape((), (16,), True, noise, None, True, 1.0, 1.0, (), distribution, f)
    return make_value_network(shape, (1, 4), 2, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize(
    ("noise", "distribution", "f"),
    [
        *(("factorised", d, "signed_sqrt") for d in get_args(Distribution)),
        *(("independent", d, "signed_sqrt") for d in get_args(Distribution)),
        ("factorised", "gaussian", "identity"),
    ],
)
def test_every_kind_of_noise_is_drawn_as_the_layers_draw_it(
    noise: Noise, distribution: Distribution, f: NoiseFunction, rows: int | None
) -> None:
    network, other = (noisy_network(noise, distribution, f) for _ in range(2))
    assert is_small(network, "float32")
    flat, streams = _FlatNoise(network), [torch.Generator().manual_seed(5) for _ in range(2)]
    for _ in range(2):
        flat.draw(streams[0], rows)
        resample_noise(other.head, streams[1], rows)
        found, expected = held_noise(network), held_noise(other)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-6, atol=0)
    assert torch.equal(streams[0].get_state(), streams[1].get_state())


def test_layers_with_different_noise_are_left_to_pytorch() -> None:
    """One call draws the noise of all layers."""
    network = noisy_network("factorised")
    assert is_small(network, "float32")
    next(iter(noisy_layers(network).values())).f = "identity"
    assert not is_small(network, "float32")


def test_networks_that_it_does_not_know_are_learnt_in_plain_pytorch() -> None:
    settings = "network.torso=[[8, 3, 2, 1], [6, 2, 1, 0]]"
    agents = [
        make_value_agent("noisynet-dueling", settings, spec=CHANNELS, compute=compute)
        for compute in ("auto", "torch")
    ]
    for seed in range(3):
        learnt = [agent.learn(make_batch(seed=seed, spec=CHANNELS)) for agent in agents]
        assert learnt[0].loss == pytest.approx(learnt[1].loss, rel=1e-5)


# --- one update ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "spec"),
    [
        *((name, (), spec) for name in VALUE_AGENTS for spec in (FLAT, CHANNELS)),
        ("dqn", ("learning.loss=squared",), FLAT),
        ("dqn", ("learning.double_q=true",), FLAT),
        ("dueling", ("learning.double_q=false",), FLAT),
        ("dueling", ("network.trunk_gradient_scale=1",), CHANNELS),
        ("dqn", ("learning.max_gradient_norm=0.01",), CHANNELS),
        ("dqn", ("network.hidden=[7, 9, 5]",), FLAT),
        ("dqn", (), SMALL_IMAGES),
        ("dqn", ("network.torso=flat",), SMALL_IMAGES),
        ("dueling", ("network.torso=[[5, 4, 1, 0]]",), CHANNELS),
        ("noisynet-dqn", ("exploration.noise=independent",), FLAT),
        ("noisynet-dueling", ("exploration.noise=independent",), CHANNELS),
        ("noisynet-dueling", ("exploration.learn_sigma=false",), CHANNELS),
        ("noisynet-dueling", ("exploration.used_in=acting",), FLAT),
        ("noisynet-dueling", ("exploration.used_in=learning",), FLAT),
        ("noisynet-dueling", ("network.hidden=[7, 5]",), CHANNELS),
        ("c51", ("network.atoms=2",), FLAT),
        ("c51", ("learning.double_q=true",), FLAT),
        ("noisynet-c51", ("exploration.noise=independent",), CHANNELS),
        ("rainbow", ("learning.double_q=false",), CHANNELS),
        ("rainbow", ("network.dueling=false",), CHANNELS),
        ("rainbow", ("network.atoms=7", "network.hidden=[7, 5]"), FLAT),
        ("rainbow", ("network.atoms=null",), FLAT),
        ("rainbow", ("exploration.learn_sigma=false",), FLAT),
    ],
    ids=str,
)
def test_loss_errors_and_gradients_equal_those_of_autograd(
    name: str, settings: tuple[str, ...], spec: Spec
) -> None:
    agents = pair(name, *settings, spec=spec)
    weight = np.random.default_rng(5).random(31, dtype=np.float32)
    batch = make_batch(31, seed=3, spec=spec, weight=weight)  # not a multiple of the blocks
    learnt = [agent.learn(batch) for agent in agents]
    assert learnt[0].loss == pytest.approx(learnt[1].loss, rel=1e-5)
    np.testing.assert_allclose(learnt[0].error, learnt[1].error, rtol=1e-4, atol=1e-5)
    found, expected = (gradients(agent) for agent in agents)
    for parameter, gradient in expected.items():
        largest = float(gradient.abs().max())
        torch.testing.assert_close(
            found[parameter], gradient, rtol=1e-4, atol=1e-5 * largest + 1e-8, msg=parameter
        )


@pytest.mark.parametrize("envs", [1, 5])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, ()) for name in VALUE_AGENTS),
        ("noisynet-dueling", ("exploration.noise=independent",)),
        ("noisynet-dqn", ("exploration.used_in=learning",)),
    ],
    ids=str,
)
@pytest.mark.parametrize("spec", [FLAT, CHANNELS, SMALL_IMAGES], ids=["flat", "bits", "bytes"])
def test_values_for_acting_equal_those_of_the_acting_network(
    name: str, settings: tuple[str, ...], spec: Spec, envs: int
) -> None:
    fused, plain = pair(name, *settings, spec=spec)
    for seed in range(3):
        seen = observations(envs, seed=seed, spec=spec)
        for agent in (fused, plain):
            agent.update.resample(envs)
        found = fused.update.q_values(seen)
        np.testing.assert_allclose(found, plain.update.q_values(seen), rtol=1e-5, atol=1e-5)
        with torch.no_grad():  # its layers hold the same noise
            expected = fused.acting(torch.from_numpy(seen)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# --- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimiser", ["adam", "centred-rmsprop"])
@pytest.mark.parametrize("spec", [FLAT, CHANNELS], ids=lambda spec: spec.name)
@pytest.mark.parametrize("from_fused", [True, False], ids=["to plain", "to fused"])
def test_a_state_can_be_restored_with_another_compute(
    from_fused: bool, spec: Spec, optimiser: str
) -> None:
    """Names, shapes and meanings of the saved tensors do not depend on what computed them."""
    settings = f"optimiser.kind={optimiser}", "exploration.redraw=episode"
    source, other = pair("noisynet-dueling", *settings, spec=spec)
    if not from_fused:
        source, other = other, source
    source.act(observations(2, spec=spec), STARTS)
    for seed in range(3):
        source.learn(make_batch(seed=seed, spec=spec))
    other.restore(*snapshot(source))
    seen = observations(2, seed=8, spec=spec)
    values = [agent.update.q_values(seen) for agent in (source, other)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5, atol=1e-5)
    for seed in range(3, 6):
        learnt = [agent.learn(make_batch(seed=seed, spec=spec)) for agent in (source, other)]
        np.testing.assert_allclose(learnt[0].error, learnt[1].error, rtol=1e-4, atol=1e-4)
    before, after = (parameters(agent.online) for agent in (source, other))
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, rtol=0, atol=1e-5, msg=name)


def test_loaded_weights_are_used_at_once() -> None:
    agent, other = (make_value_agent("dqn", seed=seed, compute="auto") for seed in (0, 1))
    agent.load_weights(other.tensors())
    seen = observations(4)
    np.testing.assert_array_equal(agent.update.q_values(seen), other.update.q_values(seen))


def test_networks_show_the_weights_and_the_noise_of_the_last_update() -> None:
    """The evaluation, the target's copy and checkpoints read the networks."""
    agent, _ = pair("noisynet-dqn")
    before, noise = parameters(agent.online), held_noise(agent.online)
    samples = {name: value.clone() for name, value in noise.items()}
    agent.learn(make_batch())
    after = parameters(agent.online)
    assert all(not torch.equal(after[name], value) for name, value in before.items())
    now = held_noise(agent.online)
    assert all(not torch.equal(now[name], value) for name, value in samples.items())
    agent.sync_target()
    copied = parameters(agent.target)
    assert all(torch.equal(copied[name], value) for name, value in after.items())


def test_a_deep_copy_learns_independently() -> None:
    agent, _ = pair("noisynet-dueling")
    agent.learn(make_batch())
    copied = copy.deepcopy(agent)
    before = parameters(agent.online)
    copied.learn(make_batch(seed=1))
    assert all(torch.equal(parameters(agent.online)[n], value) for n, value in before.items())
    agent.learn(make_batch(seed=1))
    first, second = parameters(agent.online), parameters(copied.online)
    assert all(torch.equal(second[name], value) for name, value in first.items())
