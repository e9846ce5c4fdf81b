"""Centred and shared RMSProp against their formulae in NumPy."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet.optimisers import CentredRMSProp, annealed, centred_rmsprop_, shared_rmsprop_

LEARNING_RATE, DECAY, EPSILON = 2.5e-4, 0.95, 0.01
SHARED = 7e-4, 0.99, 0.1  # learning rate, decay and ε of A3C
BATCH = 32

Floats = NDArray[np.float64]


def centred_in_numpy(
    start: Floats, gradients: Floats, lr: float, rho: float, epsilon: float
) -> Floats:
    """g, v and θ of the docstring of `centred_rmsprop_`; `gradients` are [steps, n]."""
    theta, g, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for d in gradients:
        g = rho * g + (1 - rho) * d
        v = rho * v + (1 - rho) * d**2
        theta = theta - lr * d / np.sqrt(v - g**2 + epsilon)
    return theta


def synthetic_gradients(steps: int, size: int = 50) -> Floats:
    """Of all magnitudes: ε dominates the smallest, and is negligible for the largest."""
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
def test_1000_centred_steps_follow_the_formula(dtype: torch.dtype, tolerance: float) -> None:
    gradients = synthetic_gradients(1_000)
    start = np.linspace(-1, 1, gradients.shape[1])
    expected = centred_in_numpy(start, gradients, LEARNING_RATE, DECAY, EPSILON)
    assert np.abs(expected - start).max() > 0.1  # far from the start
    found = optimised(gradients, ours(), dtype).double().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_the_first_centred_step() -> None:
    """d = 2, ρ = 0.5, ε = 0.25: g = 1, v = 2, the root is √1.25."""
    parameter = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    parameter.grad = torch.tensor([2.0], dtype=torch.float64)
    CentredRMSProp([parameter], 0.1, 0.5, 0.25).step()
    assert parameter.item() == pytest.approx(1 - 0.1 * 2 / 1.25**0.5)


def test_epsilon_is_inside_the_root_and_torchs_is_outside() -> None:
    gradients = synthetic_gradients(20)
    inside = optimised(gradients, ours())
    outside = optimised(
        gradients,
        lambda parameter: torch.optim.RMSprop(
            [parameter], LEARNING_RATE, alpha=DECAY, eps=EPSILON, centered=True
        ),
    )
    assert float((inside - outside).abs().max()) > 1e-4


def test_without_epsilon_the_steps_equal_torchs_centred_rmsprop() -> None:
    gradients, tiny = synthetic_gradients(20), 1e-30
    inside = optimised(gradients, ours(tiny))
    outside = optimised(
        gradients,
        lambda parameter: torch.optim.RMSprop(
            [parameter], LEARNING_RATE, alpha=DECAY, eps=tiny, centered=True
        ),
    )
    torch.testing.assert_close(inside, outside, rtol=0, atol=1e-10)


def test_a_mean_loss_with_the_scaled_epsilon_equals_a_summed_loss() -> None:
    sums = synthetic_gradients(200)
    of_sums = optimised(sums, ours(EPSILON))
    of_means = optimised(sums / BATCH, ours(EPSILON / BATCH**2))
    torch.testing.assert_close(of_means, of_sums, rtol=0, atol=1e-13)
    unscaled = optimised(sums / BATCH, ours(EPSILON))
    assert float((unscaled - of_sums).abs().max()) > 1e-2


@pytest.mark.parametrize("size", [10.0, 1_000.0, 1e6])
def test_a_constant_gradient_leaves_the_parameters_finite(size: float) -> None:
    """v − g² is then 0 up to rounding, which must not become negative by more than ε."""
    gradients = np.tile(np.linspace(0.1, 1, 500) * size, (400, 1))
    found = optimised(gradients, ours(EPSILON / BATCH**2), torch.float32)
    assert bool(found.isfinite().all())


def test_a_parameter_without_a_gradient_does_not_change() -> None:
    trained, untrained = (nn.Parameter(torch.ones(3)) for _ in range(2))
    optimiser = CentredRMSProp([trained, untrained], LEARNING_RATE, DECAY, EPSILON)
    trained.grad = torch.ones(3)
    optimiser.step()
    assert torch.equal(untrained, torch.ones(3))
    assert not bool((trained == 1).any())


def test_a_step_does_not_change_the_gradient() -> None:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.tensor([1.0, -2.0, 3.0])
    CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON).step()
    assert parameter.grad.tolist() == [1.0, -2.0, 3.0]


def test_training_continues_bit_for_bit_from_the_state_dict() -> None:
    gradients = torch.from_numpy(synthetic_gradients(40)).float()
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
    assert not torch.equal(first, fresh_parameter)  # the statistics matter


def test_the_state_exists_before_the_first_step() -> None:
    optimiser = CentredRMSProp([nn.Parameter(torch.ones(2, 3))], LEARNING_RATE, DECAY, EPSILON)
    (state,) = optimiser.state_dict()["state"].values()
    assert {name: value.shape for name, value in state.items()} == {
        "gradient_average": (2, 3),
        "square_average": (2, 3),
    }
    assert all(not bool(value.any()) for value in state.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_parameters_are_optimised(dtype: torch.dtype) -> None:
    found = optimised(synthetic_gradients(5), ours(), dtype)
    expected = optimised(synthetic_gradients(5), ours(), torch.float32)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.02)


def test_a_centred_step_invalidates_graphs_of_the_old_values() -> None:
    parameter = nn.Parameter(torch.ones(3))
    loss = parameter.square().sum()
    parameter.grad = torch.ones(3)
    CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_changed_learning_rate_applies_to_the_next_step() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.ones(3)
    optimiser = CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON)
    optimiser.step()
    before = parameter.detach().clone()
    optimiser.param_groups[0]["lr"] = 0.0
    optimiser.step()
    assert torch.equal(parameter, before)


def test_a_deep_copy_steps_independently() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.ones(3)
    optimiser = CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON)
    optimiser.step()
    before = parameter.detach().clone()
    copied = copy.deepcopy(optimiser)
    (parameter_of_copy,) = copied.param_groups[0]["params"]
    parameter_of_copy.grad = torch.ones(3)
    copied.step()
    assert torch.equal(parameter, before)
    assert not torch.equal(parameter_of_copy, before)


def test_the_memory_layout_of_a_gradient_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.zeros(6, 4, 3, 3)) for _ in range(2)]
    stepped = [
        CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON) for parameter in parameters
    ]
    for _ in range(20):
        d = torch.randn(6, 4, 3, 3, generator=generator)
        parameters[0].grad = d
        parameters[1].grad = d.contiguous(memory_format=torch.channels_last)
        for optimiser in stepped:
            optimiser.step()
    assert torch.equal(parameters[0], parameters[1])


def test_the_step_can_be_replaced() -> None:
    """`noisynet.kernels` gives another implementation of the same formula."""
    calls: list[tuple[float, float, float]] = []

    def step(
        parameter: Tensor, d: Tensor, g: Tensor, v: Tensor, lr: float, rho: float, epsilon: float
    ) -> None:
        calls.append((lr, rho, epsilon))
        centred_rmsprop_(parameter, d, g, v, lr, rho, epsilon)

    gradients = synthetic_gradients(5)
    found = optimised(
        gradients,
        lambda parameter: CentredRMSProp([parameter], LEARNING_RATE, DECAY, EPSILON, step),
    )
    assert calls == [(LEARNING_RATE, DECAY, EPSILON)] * 5
    assert torch.equal(found, optimised(gradients, ours()))


# --- shared RMSProp ------------------------------------------------------------------------------


def shared_in_numpy(start: Floats, gradients: Floats, rates: list[float]) -> tuple[Floats, Floats]:
    """v and θ of the docstring of `shared_rmsprop_`, with a rate for each step."""
    _, rho, epsilon = SHARED
    theta, v = start.copy(), np.zeros_like(start)
    for d, lr in zip(gradients, rates, strict=True):
        v = rho * v + (1 - rho) * d**2
        theta = theta - lr * d / np.sqrt(v + epsilon)
    return theta, v


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)], ids=str
)
def test_1000_annealed_shared_steps_follow_the_formula(
    dtype: torch.dtype, tolerance: float
) -> None:
    gradients = synthetic_gradients(1_000)
    rates = [annealed(SHARED[0], step, 1_000) for step in range(1_000)]
    start = np.linspace(-1, 1, gradients.shape[1])
    expected, average = shared_in_numpy(start, gradients, rates)
    assert np.abs(expected - start).max() > 0.1  # far from the start
    theta, square = torch.from_numpy(start).to(dtype), torch.zeros(len(start), dtype=dtype)
    for d, rate in zip(gradients, rates, strict=True):
        shared_rmsprop_(theta, torch.from_numpy(d).to(dtype), square, rate, *SHARED[1:])
    np.testing.assert_allclose(theta.double().numpy(), expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(square.double().numpy(), average, rtol=tolerance)


def test_the_first_shared_step() -> None:
    """d = 2, ρ = 0.5, ε = 0.25: v = 2, the root is 1.5."""
    theta, square = torch.tensor([1.0]), torch.tensor([0.0])
    shared_rmsprop_(theta, torch.tensor([2.0]), square, 0.3, 0.5, 0.25)
    assert square.item() == 2.0
    assert theta.item() == pytest.approx(1 - 0.3 * 2 / 1.5)


def test_a_zero_gradient_changes_the_average_only() -> None:
    theta, square = torch.tensor([1.0]), torch.tensor([4.0])
    shared_rmsprop_(theta, torch.tensor([0.0]), square, 0.3, 0.5, 0.25)
    assert (theta.item(), square.item()) == (1.0, 2.0)


def test_a_shared_step_invalidates_graphs_of_the_old_values() -> None:
    theta = torch.ones(3, requires_grad=True)
    loss = (theta * theta).sum()
    shared_rmsprop_(theta.detach(), torch.ones(3), torch.zeros(3), *SHARED)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_threads_update_shared_parameters_without_locks() -> None:
    """Single writes of two threads may be lost, but never all steps of one of them."""

    def train(theta: Tensor, square: Tensor) -> None:
        for _ in range(200):
            shared_rmsprop_(theta, torch.ones_like(theta), square, 1e-3, *SHARED[1:])

    alone, square_alone = torch.zeros(1_000), torch.zeros(1_000)
    train(alone, square_alone)
    theta, square = torch.zeros(1_000), torch.zeros(1_000)
    threads = [threading.Thread(target=train, args=(theta, square)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bool((theta < 0.5 * alone).all())
    assert bool((theta > 2.0 * alone - 1e-6).all())
    assert bool((square > 0.5 * square_alone).all())


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.5), (25, 0.375), (50, 0.25), (100, 0.0), (130, 0.0)]
)
def test_an_annealed_rate_falls_linearly_to_zero(step: int, expected: float) -> None:
    assert annealed(0.5, step, 100) == expected
