"""C51 and Rainbow: updates against the equations, noise, priorities, resumption and compute."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet.agents import ValueAgent
from noisynet.agents.fused import FusedUpdate
from noisynet.config import cxx_compiler
from noisynet.layers import noise_off, noisy_layers, resample_noise
from noisynet.networks import CategoricalNetwork
from noisynet.replay import TransitionBatch

from .synthetic import (
    CHANNELS,
    DISTRIBUTIONAL_AGENTS,
    FLAT,
    NOISY_DISTRIBUTIONAL_AGENTS,
    STARTS,
    Spec,
    assert_same,
    make_batch,
    make_value_agent,
    observations,
    parameters,
    perturb,
    play,
    snapshot,
)

# A narrow range, so that some rewards of the synthetic batches are beyond it.
RANGE = ("network.v_min=-5", "network.v_max=5")


def make(name: str, *settings: str, **keywords: Any) -> ValueAgent:
    return make_value_agent(name, *RANGE, *settings, **keywords)


def distributions(network: nn.Module, observation: NDArray[Any]) -> Tensor:
    """p [B, A, N]."""
    assert isinstance(network, CategoricalNetwork)
    return network.logits(torch.from_numpy(observation)).softmax(dim=-1)


def projected_targets(
    batch: TransitionBatch, p_y: NDArray[np.float64], selected: list[int], atoms: list[float]
) -> NDArray[np.float64]:
    """m [B, N]: Algorithm 1 of Bellemare et al. 2017, one atom at a time."""
    width = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    m = np.zeros((len(selected), len(atoms)))
    for i, b in enumerate(selected):
        for j, atom in enumerate(atoms):
            shifted = float(batch.reward[i]) + float(batch.discount[i]) * atom
            position = (min(max(shifted, atoms[0]), atoms[-1]) - atoms[0]) / width
            low = min(math.floor(position), len(atoms) - 2)
            m[i, low] += p_y[i, b, j] * (low + 1 - position)
            m[i, low + 1] += p_y[i, b, j] * (position - low)
    return m


# --- build ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTRIBUTIONAL_AGENTS)
def test_every_network_of_the_agent_is_categorical(name: str) -> None:
    agent = make(name)
    for network in (agent.online, agent.target, agent.acting, agent.selector):
        assert isinstance(network, CategoricalNetwork)
        np.testing.assert_allclose(network.atoms, np.linspace(-5, 5, 51), rtol=1e-6, atol=1e-6)
    layers = {"c51": 0, "rainbow-without-noise": 0, "noisynet-c51": 2, "rainbow": 4}[name]
    assert len(noisy_layers(agent.online)) == layers


@pytest.mark.parametrize(
    ("name", "rate", "epsilon"),
    [("noisynet-c51", 2.5e-4, 0.01 / 32), ("rainbow", 6.25e-5, 1.5e-4)],
)
def test_the_optimiser_is_adam_with_the_papers_epsilon(
    name: str, rate: float, epsilon: float
) -> None:
    settings = f"optimiser.learning_rate={rate}", f"optimiser.epsilon={epsilon}"
    optimiser = make(name, *settings).optimiser
    assert isinstance(optimiser, torch.optim.Adam)
    assert (optimiser.defaults["lr"], optimiser.defaults["eps"]) == (rate, epsilon)


# --- act -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOISY_DISTRIBUTIONAL_AGENTS)
def test_an_action_is_greedy_in_the_mean_of_the_noisy_distribution(name: str) -> None:
    agent = make(name)
    twin = copy.deepcopy(agent)
    for number in range(20):
        seen = observations(3, seed=number)
        resample_noise(twin.acting, twin.streams["act"], rows=3)
        p = distributions(twin.acting, seen).detach().double().numpy()
        greedy = (p @ np.linspace(-5, 5, 51)).argmax(axis=1)
        assert agent.act(seen, STARTS + number).tolist() == greedy.tolist()


# --- learn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", ["c51", "rainbow-without-noise"])
def test_an_update_of_a_plain_agent_follows_the_equations(name: str, double: bool) -> None:
    settings = f"learning.double_q={str(double).lower()}", "learning.max_gradient_norm=null"
    agent = make(name, *settings)
    perturb(agent.target)
    weight = np.random.default_rng(1).random(32, dtype=np.float32)
    batch = make_batch(weight=weight)
    atoms = np.linspace(-5, 5, 51).tolist()
    p_y = distributions(agent.target, batch.y).detach().double().numpy()
    q_target = p_y @ np.array(atoms)
    q_online = distributions(agent.online, batch.y).detach().double().numpy() @ np.array(atoms)
    assert (q_target.argmax(1) != q_online.argmax(1)).any()
    selected = (q_online if double else q_target).argmax(1).tolist()
    m = projected_targets(batch, p_y, selected, atoms)
    p = distributions(agent.online, batch.x)[torch.arange(32), torch.from_numpy(batch.action)]
    cross_entropy = -(torch.from_numpy(m) * p.double().log()).sum(dim=-1)
    expected = (cross_entropy * torch.from_numpy(weight)).mean()
    gradients = torch.autograd.grad(expected, list(agent.online.parameters()))
    learnt = agent.learn(batch)
    assert learnt.loss == pytest.approx(expected.item(), rel=1e-5)
    for parameter, gradient in zip(agent.online.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        learnt.error, kl_divergences(m, p.detach().double().numpy()), rtol=1e-4, atol=1e-5
    )


def kl_divergences(m: NDArray[np.float64], p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ m log(m/p) [B]."""
    where = m > 0
    terms = np.zeros_like(m)
    terms[where] = m[where] * np.log(m[where] / p[where])
    divergences: NDArray[np.float64] = terms.sum(axis=1)
    return divergences


@pytest.mark.parametrize("name", NOISY_DISTRIBUTIONAL_AGENTS)
def test_an_update_draws_each_role_from_its_stream_and_holds_it_over_the_batch(name: str) -> None:
    agent = make(name)
    perturb(agent.target)
    reference, batch = copy.deepcopy(agent), make_batch()
    learnt = agent.learn(batch)
    atoms = np.linspace(-5, 5, 51).tolist()
    resample_noise(reference.target, reference.streams["target"])  # ξ′
    p_y = distributions(reference.target, batch.y).detach().double().numpy()
    q = p_y @ np.array(atoms)
    if reference.config.learning.double_q:
        resample_noise(reference.online, reference.streams["select"])  # ξ″
        selecting = distributions(reference.online, batch.y).detach().double().numpy()
        q = selecting @ np.array(atoms)
    m = projected_targets(batch, p_y, q.argmax(1).tolist(), atoms)
    resample_noise(reference.online, reference.streams["online"])  # ξ
    p = distributions(reference.online, batch.x)[torch.arange(32), torch.from_numpy(batch.action)]
    expected = kl_divergences(m, p.detach().double().numpy())
    np.testing.assert_allclose(learnt.error, expected, rtol=1e-4, atol=1e-5)


def test_double_q_learning_selects_with_the_selectors_sample() -> None:
    """Another ξ″ selects other actions and so gives other targets."""
    first, second = make("rainbow"), make("rainbow")
    second.streams["select"].manual_seed(99)
    batch = make_batch()
    assert not np.array_equal(first.learn(batch).error, second.learn(batch).error)
    single = [make("rainbow", "learning.double_q=false") for _ in range(2)]
    single[1].streams["select"].manual_seed(99)
    errors = [agent.learn(batch).error for agent in single]
    np.testing.assert_array_equal(errors[0], errors[1])


def test_the_target_of_terminal_transitions_is_the_reward() -> None:
    """Whatever the target network says."""
    agents = [make("rainbow-without-noise") for _ in range(2)]
    perturb(agents[1].target)
    reward = np.full(32, 2.0, np.float32)  # exactly on an atom
    batch = make_batch(discount=np.zeros(32, np.float32), reward=reward)
    p = distributions(agents[0].online, batch.x)[torch.arange(32), torch.from_numpy(batch.action)]
    expected = -p[:, 35].log().detach().numpy()  # −5 + 0.2 · 35 = 2; one atom has no entropy
    for agent in agents:
        np.testing.assert_allclose(agent.learn(batch).error, expected, rtol=1e-4)


def test_n_step_discounts_shrink_the_distribution_of_the_next_state() -> None:
    """γ³ of replay's 3-step transitions reaches the projection unchanged."""
    agent = make("rainbow-without-noise")
    discount = np.full(32, 0.99**3, np.float32)
    batch = make_batch(discount=discount)
    p_y = distributions(agent.target, batch.y).detach().double().numpy()
    atoms = np.linspace(-5, 5, 51).tolist()
    selected = (p_y @ np.array(atoms)).argmax(1).tolist()  # online and target are equal
    m = projected_targets(batch, p_y, selected, atoms)
    p = distributions(agent.online, batch.x)[torch.arange(32), torch.from_numpy(batch.action)]
    expected = kl_divergences(m, p.detach().double().numpy())
    np.testing.assert_allclose(agent.learn(batch).error, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["c51", "rainbow"])
def test_transitions_with_zero_weight_do_not_change_the_weights(name: str) -> None:
    agent = make(name)
    before = parameters(agent.online)
    learnt = agent.learn(make_batch(weight=np.zeros(32, np.float32)))
    assert learnt.loss == 0
    assert learnt.error.min() > 0  # priorities are not weighted
    assert_same(parameters(agent.online), before)


@pytest.mark.parametrize("name", NOISY_DISTRIBUTIONAL_AGENTS)
def test_every_mu_and_sigma_is_trained_unless_sigma_is_frozen(name: str) -> None:
    for frozen in (False, True):
        agent = make(name, f"exploration.learn_sigma={str(not frozen).lower()}")
        before = parameters(agent.online)
        play(agent, 3)
        now = parameters(agent.online)
        same = {key for key in before if torch.equal(now[key], before[key])}
        assert same == {key for key in before if frozen and "sigma" in key}


@pytest.mark.parametrize("name", NOISY_DISTRIBUTIONAL_AGENTS)
def test_with_noise_in_acting_only_updates_use_mean_weights(name: str) -> None:
    agent, batch = make(name, "exploration.used_in=acting"), make_batch()
    perturb(agent.target)
    reference = copy.deepcopy(agent)
    learnt = agent.learn(batch)
    atoms = np.linspace(-5, 5, 51).tolist()
    with noise_off(reference.online), noise_off(reference.target):
        p_y = distributions(reference.target, batch.y).detach().double().numpy()
        online = distributions(reference.online, batch.y).detach().double().numpy()
        p = distributions(reference.online, batch.x)
    selecting = online if reference.config.learning.double_q else p_y
    m = projected_targets(batch, p_y, (selecting @ np.array(atoms)).argmax(1).tolist(), atoms)
    taken = p[torch.arange(32), torch.from_numpy(batch.action)].detach().double().numpy()
    np.testing.assert_allclose(learnt.error, kl_divergences(m, taken), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DISTRIBUTIONAL_AGENTS)
def test_repeated_updates_fit_a_batch(name: str) -> None:
    """Terminal transitions: the means approach the rewards."""
    agent = make(name, "optimiser.learning_rate=0.01")
    reward = np.linspace(-3, 3, 32, dtype=np.float32)
    batch = make_batch(discount=np.zeros(32, np.float32), reward=reward)
    for _ in range(200):
        agent.learn(batch)
    policy = agent.evaluation_policy("off", "eval")
    with torch.no_grad(), policy.resampled(32):
        q = policy.network(torch.from_numpy(batch.x))[torch.arange(32), batch.action]
    assert np.abs(q.numpy() - reward).mean() < 0.3


# --- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("name", DISTRIBUTIONAL_AGENTS)
def test_a_restored_agent_resumes_bit_for_bit(name: str, envs: int) -> None:
    check_resumption(name, envs=envs)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("rainbow", ("exploration.redraw=episode",)),
        ("rainbow", ("exploration.used_in=learning",)),
        ("rainbow", ("exploration.noise=independent", "network.dueling=false")),
        ("rainbow", ("network.atoms=null",)),
        ("noisynet-c51", ("optimiser.kind=centred-rmsprop", "exploration.redraw=update")),
    ],
    ids=str,
)
def test_variants_resume_bit_for_bit(name: str, settings: tuple[str, ...]) -> None:
    check_resumption(name, *settings)


def check_resumption(name: str, *settings: str, envs: int = 1, compute: str = "torch") -> None:
    uninterrupted, restored = (make(name, *settings, compute=compute) for _ in range(2))
    play(uninterrupted, 4, envs=envs)
    play(restored, 2, start=50, envs=envs)  # its state is replaced
    restored.restore(*snapshot(uninterrupted))
    assert play(uninterrupted, 4, start=4, envs=envs) == play(restored, 4, start=4, envs=envs)
    assert_same(uninterrupted.tensors(), restored.tensors())
    assert uninterrupted.state() == restored.state()


# --- compute -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "optimiser"),
    [
        (FLAT, "adam"),
        (CHANNELS, "centred-rmsprop"),
        pytest.param(FLAT, "centred-rmsprop", marks=pytest.mark.slow),
        pytest.param(CHANNELS, "adam", marks=pytest.mark.slow),
    ],
    ids=lambda value: value.name if isinstance(value, Spec) else value,
)
@pytest.mark.parametrize("name", DISTRIBUTIONAL_AGENTS)
def test_auto_agrees_with_plain_pytorch(name: str, spec: Spec, optimiser: str) -> None:
    settings = f"optimiser.kind={optimiser}", "optimiser.learning_rate=2.5e-5"
    plain, auto = (make(name, *settings, spec=spec, compute=c) for c in ("torch", "auto"))
    assert (plain.compute, auto.compute) == ("torch", "kernels")
    assert isinstance(auto.update, FusedUpdate)
    before = parameters(plain.online)
    train_pair(plain, auto, updates=100)
    moved = largest_difference(before, parameters(plain.online))
    assert largest_difference(parameters(plain.online), parameters(auto.online)) < moved / 100


def train_pair(plain: ValueAgent, other: ValueAgent, updates: int) -> None:
    """Train two agents, which agree up to rounding."""
    assert isinstance(plain.spec, Spec)
    for update in range(updates):
        seen = observations(2, seed=update, spec=plain.spec)
        batch = make_batch(seed=update, spec=plain.spec)
        q, errors = [], []
        for agent in (plain, other):
            agent.update.resample(2)
            q.append(agent.update.q_values(seen))
            errors.append(agent.learn(batch).error)
        np.testing.assert_allclose(q[0], q[1], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(errors[0], errors[1], rtol=1e-3, atol=1e-4)


def largest_difference(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    return max(float((first[name] - second[name]).abs().max()) for name in first)


QUICK_COMPILE = "compile, backend aot_eager"
"""The graphs of torch.compile without generated code: seconds instead of half a minute."""

COMPILE = pytest.param(
    "compile",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(cxx_compiler() is None, reason="torch.compile needs a C++ compiler"),
    ],
)


@pytest.fixture
def compute(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """A value of the setting `compute`, with no graph compiled yet."""
    name: str = request.param
    if name == QUICK_COMPILE:
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    yield name.partition(",")[0]
    torch._dynamo.reset()


# torch.compile instantiates autograd functions and scripts modules, against PyTorch's own advice.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning"),
]


@pytest.mark.parametrize("compute", [QUICK_COMPILE, COMPILE], indirect=True)
@pytest.mark.parametrize("name", ["c51", "rainbow"])
def test_compiled_updates_agree_with_plain_pytorch(compute: str, name: str) -> None:
    settings = "optimiser.learning_rate=2.5e-5"
    plain, compiled = (make(name, settings, compute=c) for c in ("torch", compute))
    train_pair(plain, compiled, updates=2)
    with torch._dynamo.config.patch(error_on_recompile=True):  # new noise needs no new graph
        train_pair(plain, compiled, updates=4)


@pytest.mark.parametrize("compute", ["auto", QUICK_COMPILE, COMPILE], indirect=True)
def test_rainbow_resumes_bit_for_bit_under_each_compute(compute: str) -> None:
    check_resumption("rainbow", envs=2, compute=compute)
