"""Centred RMSProp against its formula written down in NumPy."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet import optimisers
from noisynet.networks import NetworkShape, ValueNetwork
from noisynet.optimisers import CentredRMSProp

LEARNING_RATE, DECAY, EPSILON = 2.5e-4, 0.95, 0.01
BATCH = 32

Floats = NDArray[np.float64]


def transcription(
    start: Floats, gradients: Floats, lr: float, rho: float, epsilon: float
) -> Floats:
    """The formula of FIDELITY.md, section 3, line by line; `gradients` are [steps, n]."""
    theta, g, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for d in gradients:
        g = rho * g + (1 - rho) * d
        v = rho * v + (1 - rho) * d**2
        theta = theta - lr * d / np.sqrt(v - g**2 + epsilon)
    return theta


def made_up_gradients(steps: int, size: int = 50) -> Floats:
    """Of all magnitudes: the smallest feel ε, the largest do not."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((steps, size)) * np.logspace(-4, 1, size) + np.linspace(-1, 1, size)


def optimised(
    gradients: Floats,
    make: Callable[[nn.Parameter], torch.optim.Optimizer],
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    parameter = nn.Parameter(torch.linspace(-1, 1, gradients.shape[1], dtype=dtype))
    optimiser = make(parameter)
    for d in gradients:
        parameter.grad = torch.from_numpy(d).to(dtype)
        optimiser.step()
    return parameter.detach()


def ours(epsilon: float = EPSILON) -> Callable[[nn.Parameter], torch.optim.Optimizer]:
    return lambda parameter: CentredRMSProp([parameter], LEARNING_RATE, DECAY, epsilon)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)], ids=str
)
def test_a_thousand_steps_follow_the_formula(dtype: torch.dtype, tolerance: float) -> None:
    gradients = made_up_gradients(1_000)
    start = np.linspace(-1, 1, gradients.shape[1])
    expected = transcription(start, gradients, LEARNING_RATE, DECAY, EPSILON)
    assert np.abs(expected - start).max() > 0.1  # it has gone somewhere
    found = optimised(gradients, ours(), dtype).double().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_the_first_step_by_hand() -> None:
    """d = 2, ρ = 0.5, ε = 0.25: g = 1, v = 2, the root is √1.25."""
    parameter = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    parameter.grad = torch.tensor([2.0], dtype=torch.float64)
    CentredRMSProp([parameter], 0.1, 0.5, 0.25).step()
    assert parameter.item() == pytest.approx(1 - 0.1 * 2 / 1.25**0.5)


def test_epsilon_is_inside_the_root_where_torch_has_it_outside() -> None:
    gradients = made_up_gradients(20)
    inside = optimised(gradients, ours())
    outside = optimised(
        gradients,
        lambda parameter: torch.optim.RMSprop(
            [parameter], LEARNING_RATE, alpha=DECAY, eps=EPSILON, centered=True
        ),
    )
    assert float((inside - outside).abs().max()) > 1e-4


def test_without_epsilon_torchs_centred_rmsprop_is_the_same() -> None:
    gradients, tiny = made_up_gradients(20), 1e-30
    inside = optimised(gradients, ours(tiny))
    outside = optimised(
        gradients,
        lambda parameter: torch.optim.RMSprop(
            [parameter], LEARNING_RATE, alpha=DECAY, eps=tiny, centered=True
        ),
    )
    torch.testing.assert_close(inside, outside, rtol=0, atol=1e-10)


def test_a_mean_loss_with_the_scaled_epsilon_moves_like_a_summed_loss() -> None:
    sums = made_up_gradients(200)
    of_sums = optimised(sums, ours(EPSILON))
    of_means = optimised(sums / BATCH, ours(EPSILON / BATCH**2))
    torch.testing.assert_close(of_means, of_sums, rtol=0, atol=1e-13)
    unscaled = optimised(sums / BATCH, ours(EPSILON))
    assert float((unscaled - of_sums).abs().max()) > 1e-2


@pytest.mark.parametrize("size", [10.0, 1_000.0, 1e6])
def test_a_constant_gradient_leaves_the_parameters_finite(size: float) -> None:
    """v − g² is then zero, which rounding must not make negative beyond ε."""
    gradients = np.tile(np.linspace(0.1, 1, 500) * size, (400, 1))
    found = optimised(gradients, ours(EPSILON / BATCH**2), torch.float32)
    assert bool(found.isfinite().all())


def test_a_parameter_without_gradient_stays_where_it_is() -> None:
    moving, resting = (nn.Parameter(torch.ones(3)) for _ in range(2))
    optimiser = CentredRMSProp([moving, resting], LEARNING_RATE, DECAY, EPSILON)
    moving.grad = torch.ones(3)
    optimiser.step()
    assert torch.equal(resting, torch.ones(3))
    assert not bool((moving == 1).any())


def test_a_step_leaves_the_gradient_alone() -> None:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.tensor([1.0, -2.0, 3.0])
    CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON).step()
    assert parameter.grad.tolist() == [1.0, -2.0, 3.0]


def test_the_state_goes_round_and_continues_bit_for_bit() -> None:
    gradients = torch.from_numpy(made_up_gradients(40)).float()
    first = nn.Parameter(torch.zeros(gradients.shape[1]))
    optimiser = CentredRMSProp([first], LEARNING_RATE, DECAY, EPSILON)
    for d in gradients[:20]:
        first.grad = d
        optimiser.step()
    second = nn.Parameter(first.detach().clone())
    restored = CentredRMSProp([second], LEARNING_RATE, DECAY, EPSILON)
    fresh_parameter = nn.Parameter(first.detach().clone())
    fresh = CentredRMSProp([fresh_parameter], LEARNING_RATE, DECAY, EPSILON)
    restored.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    for d in gradients[20:]:
        for parameter, stepper in (
            (first, optimiser),
            (second, restored),
            (fresh_parameter, fresh),
        ):
            parameter.grad = d
            stepper.step()
    assert torch.equal(first, second)
    assert not torch.equal(first, fresh_parameter)  # the averages matter


def test_the_state_is_there_before_the_first_step() -> None:
    optimiser = CentredRMSProp([nn.Parameter(torch.ones(2, 3))], LEARNING_RATE, DECAY, EPSILON)
    (state,) = optimiser.state_dict()["state"].values()
    assert {name: value.shape for name, value in state.items()} == {
        "gradient_average": (2, 3),
        "square_average": (2, 3),
    }
    assert all(not bool(value.any()) for value in state.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_single_pass_and_the_many_agree_over_a_thousand_steps(dtype: torch.dtype) -> None:
    """Gradients that are views of something larger cannot be gone through in a single pass."""
    gradients = made_up_gradients(1_000)
    one_pass = optimised(gradients, ours(), dtype)
    parameter = nn.Parameter(torch.linspace(-1, 1, gradients.shape[1], dtype=dtype))
    optimiser = CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON)
    for d in gradients:
        parameter.grad = torch.from_numpy(np.concatenate([d, d])).to(dtype)[: len(d)]
        optimiser.step()
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(parameter.detach(), one_pass, rtol=0, atol=tolerance)
    assert not torch.equal(parameter, optimised(gradients[:-1], ours(), dtype))


def test_parameters_on_the_cpu_are_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolutions', which are channels-last, among them."""
    network = ValueNetwork(
        NetworkShape("nature", (16,), False, "factorised", None, True, 1.0, 1 / 255),
        (4, 84, 84),
        6,
        torch.Generator(),
    )
    optimiser = CentredRMSProp(network.parameters(), LEARNING_RATE, DECAY, EPSILON)
    network(torch.randint(256, (2, 4, 84, 84), dtype=torch.uint8)).sum().backward()
    monkeypatch.setattr(optimisers, "_in_many_passes", None)  # not to be called
    before = [parameter.clone() for parameter in network.parameters()]
    optimiser.step()
    moved = [not torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True)]
    assert all(moved)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_parameters_of_half_precision_are_optimised_too(dtype: torch.dtype) -> None:
    found = optimised(made_up_gradients(5), ours(), dtype)
    expected = optimised(made_up_gradients(5), ours(), torch.float32)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.02)


def test_a_graph_from_before_a_step_is_known_to_be_stale() -> None:
    parameter = nn.Parameter(torch.ones(3))
    loss = parameter.square().sum()
    parameter.grad = torch.ones(3)
    CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_steps_follow_a_gradient_that_keeps_its_place_and_one_that_moves() -> None:
    gradients = made_up_gradients(30)
    parameter = nn.Parameter(torch.zeros(gradients.shape[1], dtype=torch.float64))
    optimiser = CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON)
    place = torch.empty_like(parameter, requires_grad=False)
    for number, d in enumerate(gradients):
        # Now in the same place as before, now elsewhere.
        parameter.grad = place if number % 5 else torch.empty_like(place)
        parameter.grad.copy_(torch.from_numpy(d))
        optimiser.step()
    start = np.zeros(gradients.shape[1])
    expected = transcription(start, gradients, LEARNING_RATE, DECAY, EPSILON)
    assert np.allclose(parameter.detach().numpy(), expected, rtol=1e-12, atol=0)


def test_a_new_learning_rate_is_in_force_at_once() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.ones(3)
    optimiser = CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON)
    optimiser.step()
    before = parameter.detach().clone()
    optimiser.param_groups[0]["lr"] = 0.0
    optimiser.step()
    assert torch.equal(parameter, before)


def test_a_copy_goes_its_own_way() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.ones(3)
    optimiser = CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON)
    optimiser.step()
    before = parameter.detach().clone()
    copied = copy.deepcopy(optimiser)
    (its_own,) = copied.param_groups[0]["params"]
    its_own.grad = torch.ones(3)
    copied.step()
    assert torch.equal(parameter, before)
    assert not torch.equal(its_own, before)


@pytest.mark.parametrize("longest", [1e-3, 1e3], ids=["too long", "short enough"])
def test_gradients_are_clipped_as_torch_clips_them(longest: float) -> None:
    torch.manual_seed(0)
    shapes = [(700, 400), (8, 4, 3, 3), (5,)]  # the first in several parts
    mine, theirs = ([nn.Parameter(torch.zeros(shape)) for shape in shapes] for _ in range(2))
    for one, other in zip(mine, theirs, strict=True):
        one.grad = torch.randn(one.shape)
        if one.dim() == 4:
            one.grad = one.grad.contiguous(memory_format=torch.channels_last)
        other.grad = one.grad.clone()
    without = nn.Parameter(torch.zeros(2))  # has no gradient
    optimisers.clip_by_norm([*mine, without], longest, lambda tasks: [task() for task in tasks])
    nn.utils.clip_grad_norm_([*theirs, without], longest)
    for one, other in zip(mine, theirs, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.allclose(one.grad, other.grad, rtol=1e-5, atol=0)
