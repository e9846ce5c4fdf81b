"""Plain PyTorch, torch.compile and kernels: how each is chosen, and that their results agree."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from noisynet import config, optimisers
from noisynet.agents import (
    NonFiniteLoss,
    ValueAgent,
    choose_device,
    resolve_compute,
    shared_rmsprop_for,
)
from noisynet.agents.compute import cache_note, optimiser_for, use_kernels
from noisynet.config import ACTOR_CRITIC_AGENTS, VALUE_AGENTS
from noisynet.kernels import noise as noise_kernels
from noisynet.kernels import rmsprop as rmsprop_kernels
from noisynet.layers import NoisyLinear, noisy_layers, perturbed_weight
from noisynet.networks import view_with_own_noise

from .synthetic import (
    CHANNELS,
    FLAT,
    STARTS,
    Spec,
    act_rollout,
    assert_same,
    make_actor_critic_agent,
    make_batch,
    make_value_agent,
    observations,
    snapshot,
)

# torch.compile uses functions that PyTorch itself has deprecated.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning",
    "ignore:`torch.jit.script:DeprecationWarning",
)

# --- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "device", "numba", "expected"),
    [
        ("auto", "cpu", True, "kernels"),
        ("auto", "cpu", False, "torch"),
        ("auto", "cuda", True, "torch"),
        ("torch", "cpu", True, "torch"),
        ("compile", "cpu", True, "compile"),
        ("compile", "cuda:0", False, "compile"),
    ],
)
def test_auto_means_kernels_on_a_cpu_with_numba_and_torch_elsewhere(
    asked: Any, device: str, numba: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec("numba") if numba else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    assert resolve_compute(asked, device) == expected


@pytest.mark.parametrize(
    ("agent", "environment", "cuda", "expected"),
    [
        ("dqn", "atari/pong", True, "cuda"),
        ("dqn", "atari/pong", False, "cpu"),
        ("dqn", "minatar/breakout", True, "cpu"),
        ("a3c", "atari/pong", True, "cpu"),
    ],
)
def test_auto_is_cuda_for_large_networks_of_value_agents(
    agent: str, environment: str, cuda: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    settings = config.build_config(agent, environment)
    assert choose_device("auto", settings) == expected
    assert choose_device("cpu", settings) == "cpu"
    with pytest.raises(ValueError, match="device: expected auto, cpu or a device of this machine"):
        choose_device("quantum", settings)


@pytest.mark.parametrize(
    ("make", "compute", "resolved", "perturb"),
    [
        (make_value_agent, "torch", "torch", perturbed_weight),
        (make_value_agent, "auto", "kernels", perturbed_weight),
        (make_actor_critic_agent, "torch", "torch", perturbed_weight),
        (make_actor_critic_agent, "auto", "kernels", noise_kernels.perturbed_weight),
    ],
)
def test_every_network_of_an_agent_uses_the_configured_functions(
    make: Any, compute: str, resolved: str, perturb: Any
) -> None:
    name = "noisynet-dqn" if make is make_value_agent else "noisynet-a3c-factorised"
    agent = make(name, compute=compute)
    assert agent.compute == resolved
    networks = [agent.online, agent.evaluation_policy("on", "eval").network]
    networks += [agent.acting, agent.selector, agent.target] if make is make_value_agent else []
    for network in networks:
        assert {layer.perturb for layer in noisy_layers(network).values()} == {perturb}


def test_use_kernels_reaches_views_that_are_made_later() -> None:
    network = nn.Sequential(NoisyLinear(4, 3), nn.ReLU(), NoisyLinear(3, 2))
    use_kernels(network)
    for module in (network, view_with_own_noise(network)):
        functions = {layer.perturb for layer in noisy_layers(module).values()}
        assert functions == {noise_kernels.perturbed_weight}


@pytest.mark.parametrize(
    ("compute", "centred", "shared"),
    [
        ("torch", optimisers.centred_rmsprop_, optimisers.shared_rmsprop_),
        ("compile", optimisers.centred_rmsprop_, optimisers.shared_rmsprop_),
        ("kernels", rmsprop_kernels.centred_rmsprop_, rmsprop_kernels.shared_rmsprop_),
    ],
)
def test_optimisers_use_the_configured_step(compute: Any, centred: Any, shared: Any) -> None:
    network = nn.Linear(4, 3)
    network.bias.requires_grad_(False)
    settings = config.CentredRMSProp(learning_rate=0.1, decay=0.8, epsilon=0.01)
    optimiser = optimiser_for(settings, network, compute)
    assert isinstance(optimiser, optimisers.CentredRMSProp)
    assert optimiser._step is centred
    assert (optimiser._steps is optimisers._steps) == (compute != "compile")
    (group,) = optimiser.param_groups
    assert (group["lr"], group["decay"], group["epsilon"]) == (0.1, 0.8, 0.01)
    assert group["params"] == [network.weight]  # the trained parameters only
    assert shared_rmsprop_for(compute) is shared
    adam = optimiser_for(config.Adam(learning_rate=0.1, epsilon=0.01), network, compute)
    assert isinstance(adam, torch.optim.Adam)
    assert (adam.defaults["lr"], adam.defaults["eps"]) == (0.1, 0.01)


# --- kernels agree with plain PyTorch ------------------------------------------------------------

UPDATES = pytest.mark.parametrize(
    "updates", [250, pytest.param(1_000, marks=pytest.mark.slow)], ids=["250", "1000"]
)
# Both compute the same formulae with another order of roundings, some 1e-7 of a weight. That is all
# that differs until a rounding flips a ReLU, or the action that double Q-learning selects: the
# gradient of one of 8 transitions then changes by as much as itself, for one unit. With a learning
# rate of 2.5e-5 such a flip moves a weight by less than 1e-5, and 1,000 updates are too few for the
# difference to grow. The weights themselves move by more than 1e-3, 50 times the tolerance.
LEARNING_RATE, TOLERANCE, MOVED = 2.5e-5, 2e-5, 1e-3


def largest_difference(first: nn.Module, second: nn.Module) -> float:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def trained_value_agent(
    name: str, spec: Spec, optimiser: str, compute: str, updates: int
) -> ValueAgent:
    """So many updates, with an action before every tenth."""
    settings = [f"optimiser.kind={optimiser}", f"optimiser.learning_rate={LEARNING_RATE}"]
    agent = make_value_agent(name, *settings, spec=spec, compute=compute)
    batches = [make_batch(8, seed=seed, spec=spec) for seed in range(50)]
    for update in range(updates):
        if update % 10 == 0:
            agent.act(observations(1, seed=update, spec=spec), STARTS)
        agent.learn(batches[update % len(batches)])
        if update % 100 == 49:
            agent.sync_target()
    return agent


@pytest.mark.parametrize(
    ("spec", "optimiser"),
    [
        (FLAT, "centred-rmsprop"),
        (CHANNELS, "adam"),
        pytest.param(FLAT, "adam", marks=pytest.mark.slow),
        pytest.param(CHANNELS, "centred-rmsprop", marks=pytest.mark.slow),
    ],
    ids=lambda value: value.name if isinstance(value, Spec) else value,
)
@pytest.mark.parametrize("name", VALUE_AGENTS)
@UPDATES
def test_value_agents_agree_after_many_updates(
    updates: int, name: str, spec: Spec, optimiser: str
) -> None:
    plain, fused = (
        trained_value_agent(name, spec, optimiser, compute, updates)
        for compute in ("torch", "auto")
    )
    assert (plain.compute, fused.compute) == ("torch", "kernels")
    initial = make_value_agent(name, spec=spec)
    assert largest_difference(plain.online, initial.online) > MOVED
    assert largest_difference(plain.online, fused.online) < TOLERANCE
    assert largest_difference(plain.target, fused.target) < TOLERANCE
    tensors, other = plain.tensors(), fused.tensors()
    assert tensors.keys() == other.keys()
    for key in tensors:
        if key.startswith("stream."):
            assert torch.equal(tensors[key], other[key]), key
        if key.startswith("noise."):  # the same sample, but for the rounding of its root
            torch.testing.assert_close(tensors[key], other[key], rtol=1e-6, atol=0)
    assert plain.state() == fused.state()


def trained_actor_critic_agent(
    name: str, settings: tuple[str, ...], compute: str, updates: int
) -> Any:
    """So many roll-outs, one in twenty of them with actions of the weights at that time."""
    agent = make_actor_critic_agent(name, *settings, compute=compute)
    step, square = shared_rmsprop_for(agent.compute), torch.zeros_like(agent.parameters)
    for update in range(updates):
        if update % 20 == 0:
            rollout = act_rollout(agent, seed=update)
        else:
            agent.begin_rollout()
        assert agent.learn(rollout).finite
        step(agent.parameters, agent.gradient, square, LEARNING_RATE, 0.99, 0.01)
    return agent


@pytest.mark.parametrize(
    "settings",
    [(), pytest.param(("envs_per_worker=2", "recurrent=true"), marks=pytest.mark.slow)],
    ids=str,
)
@pytest.mark.parametrize("name", ACTOR_CRITIC_AGENTS)
@UPDATES
def test_actor_critic_agents_agree_after_many_updates(
    updates: int, name: str, settings: tuple[str, ...]
) -> None:
    plain, fused = (
        trained_actor_critic_agent(name, settings, compute, updates)
        for compute in ("torch", "auto")
    )
    assert (plain.compute, fused.compute) == ("torch", "kernels")
    initial = make_actor_critic_agent(name, *settings)
    assert largest_difference(plain.online, initial.online) > MOVED
    assert largest_difference(plain.online, fused.online) < TOLERANCE
    assert plain.state() == fused.state()
    assert torch.equal(plain.streams["rollout"].get_state(), fused.streams["rollout"].get_state())


# --- every compute -------------------------------------------------------------------------------

QUICK_COMPILE = "compile, backend aot_eager"
"""The graphs of torch.compile without generated code: seconds instead of half a minute."""

COMPILE = pytest.param(
    "compile",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(
            not any(map(shutil.which, ("c++", "g++", "clang++"))),
            reason="torch.compile needs a C++ compiler",
        ),
    ],
)


@pytest.fixture(scope="module")
def inductor_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the tests of this module, so that each graph is compiled once."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture
def compute(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, inductor_cache: Path
) -> Iterator[str]:
    """A value of the setting `compute`, with no graph compiled yet."""
    name: str = request.param
    if name == QUICK_COMPILE:
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(inductor_cache))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield name.partition(",")[0]
    torch._dynamo.reset()


def train_pair(agent: ValueAgent, plain: ValueAgent, update: int) -> None:
    """One action and one update of two agents, which agree."""
    assert isinstance(agent.spec, Spec)
    seen = observations(2, seed=update, spec=agent.spec)
    batch = make_batch(seed=10 + update, spec=agent.spec)  # in batch 1 an input of a ReLU is 2e-8
    q, learnt = [], []
    for one in (agent, plain):
        one.update.resample(2)
        q.append(one.update.q_values(seen))
        learnt.append(one.learn(batch))
    np.testing.assert_allclose(q[0], q[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(learnt[0].error, learnt[1].error, rtol=1e-4, atol=1e-5)
    assert learnt[0].loss == pytest.approx(learnt[1].loss, rel=1e-5)
    assert largest_difference(agent.online, plain.online) < 1e-5


@pytest.mark.parametrize("compute", ["auto", COMPILE], indirect=True)
@pytest.mark.parametrize("spec", [FLAT, CHANNELS], ids=lambda spec: spec.name)
def test_a_few_updates_agree_with_plain_pytorch(compute: str, spec: Spec) -> None:
    agent, plain = (
        make_value_agent("noisynet-dueling", spec=spec, compute=c) for c in (compute, "torch")
    )
    for update in range(5):
        train_pair(agent, plain, update)


@pytest.mark.parametrize("compute", ["torch", "auto", QUICK_COMPILE, COMPILE], indirect=True)
def test_a_restored_agent_resumes_bit_for_bit(compute: str) -> None:
    settings = ["optimiser.kind=centred-rmsprop", "exploration.redraw=update"]
    uninterrupted, restored = (
        make_value_agent("noisynet-dueling", *settings, compute=compute) for _ in range(2)
    )

    def train(agent: ValueAgent, updates: range) -> list[list[int]]:
        actions = []
        for update in updates:
            agent.learn(make_batch(seed=update))
            actions += [agent.act(observations(2, seed=update), STARTS).tolist() for _ in "ab"]
        return actions

    train(uninterrupted, range(3))
    restored.restore(*snapshot(uninterrupted))
    assert train(uninterrupted, range(3, 6)) == train(restored, range(3, 6))
    assert_same(uninterrupted.tensors(), restored.tensors())
    assert uninterrupted.state() == restored.state()


@pytest.mark.parametrize("compute", ["torch", "auto", COMPILE], indirect=True)
def test_a_non_finite_loss_changes_nothing(compute: str) -> None:
    agent = make_value_agent("noisynet-dueling", compute=compute)
    agent.learn(make_batch())
    tensors, state = snapshot(agent)
    with pytest.raises(NonFiniteLoss, match="at update 2, got nan: first in 'reward'"):
        agent.learn(make_batch(reward=np.full(32, np.nan, np.float32)))
    now = agent.tensors()
    unchanged = [name for name in tensors if not name.startswith("stream.")]
    assert_same({name: now[name] for name in unchanged}, {n: tensors[n] for n in unchanged})
    assert agent.state() == state


# --- torch.compile -------------------------------------------------------------------------------


@pytest.mark.parametrize("compute", [QUICK_COMPILE], indirect=True)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dqn", ()),
        ("dueling", ()),
        ("noisynet-dqn", ("exploration.noise=independent",)),
        ("noisynet-dueling", ()),
    ],
    ids=str,
)
def test_resampled_noise_needs_no_new_graph(
    compute: str, name: str, settings: tuple[str, ...]
) -> None:
    agent, plain = (
        make_value_agent(name, *settings, spec=CHANNELS, compute=c) for c in (compute, "torch")
    )
    train_pair(agent, plain, 0)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for update in range(1, 5):
            train_pair(agent, plain, update)
            if update == 2:
                agent.sync_target()
                plain.sync_target()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # Q and the loss


@pytest.mark.parametrize("compute", [QUICK_COMPILE], indirect=True)
def test_agents_of_the_same_shape_share_their_graphs(compute: str) -> None:
    make_value_agent("dqn", compute=compute).learn(make_batch())
    with torch._dynamo.config.patch(error_on_recompile=True):
        make_value_agent("dqn", seed=1, compute=compute).learn(make_batch())


@pytest.mark.parametrize("compute", [QUICK_COMPILE], indirect=True)
def test_too_many_graphs_are_an_error_and_never_eager_mode(compute: str) -> None:
    with torch._dynamo.config.patch(recompile_limit=1):
        make_value_agent("dqn", compute=compute).learn(make_batch())
        other = make_value_agent("dqn", "network.hidden=[9]", compute=compute)
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            other.learn(make_batch())


# --- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dqn", "noisynet-dueling"])
def test_one_update_is_equal_to_rounding_at_1_2_and_4_threads(name: str) -> None:
    batch, agents = make_batch(spec=CHANNELS), []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        settings = "network.hidden=[128]", "optimiser.kind=centred-rmsprop"
        agent = make_value_agent(name, *settings, spec=CHANNELS)
        agent.learn(batch)
        agents.append(agent)
    first = agents[0]
    for other in agents[1:]:
        for ours, theirs in zip(other.online.parameters(), first.online.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            # A sum of n terms is rounded by at most n·6e-8 of the largest of them.
            largest = float(theirs.grad.abs().max())
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-5 * largest)
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_a_run_says_when_its_kernels_cannot_be_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_note("torch") is None
    assert cache_note("kernels") is None
    uncached = functools.partial(rmsprop_kernels.centred_rmsprop)
    monkeypatch.setattr(uncached, "stats", SimpleNamespace(cache_path=None), raising=False)
    monkeypatch.setattr(rmsprop_kernels, "centred_rmsprop", uncached)
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in (cache_note("kernels") or "")
