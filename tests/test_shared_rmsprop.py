"""Shared RMSProp against its formula written down in NumPy."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet.optimisers import annealed, shared_rmsprop_step

LEARNING_RATE, DECAY, EPSILON = 7e-4, 0.99, 0.1

Floats = NDArray[np.float64]


def transcription(start: Floats, gradients: Floats, rates: list[float]) -> tuple[Floats, Floats]:
    """The formula of FIDELITY.md, section 5: uncentred, ε inside the root."""
    theta, v = start.copy(), np.zeros_like(start)
    for d, lr in zip(gradients, rates, strict=True):
        v = DECAY * v + (1 - DECAY) * d**2
        theta = theta - lr * d / np.sqrt(v + EPSILON)
    return theta, v


def made_up_gradients(steps: int, size: int = 50) -> Floats:
    """Of all magnitudes: the smallest feel ε, the largest do not."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((steps, size)) * np.logspace(-4, 1, size) + np.linspace(-1, 1, size)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)], ids=str
)
def test_a_thousand_annealed_steps_follow_the_formula(dtype: torch.dtype, tolerance: float) -> None:
    gradients = made_up_gradients(1_000)
    rates = [annealed(LEARNING_RATE, step, 1_000) for step in range(1_000)]
    start = np.linspace(-1, 1, gradients.shape[1])
    expected, average = transcription(start, gradients, rates)
    assert np.abs(expected - start).max() > 0.1  # it has gone somewhere
    theta, square = torch.from_numpy(start).to(dtype), torch.zeros(len(start), dtype=dtype)
    for d, rate in zip(gradients, rates, strict=True):
        shared_rmsprop_step(theta, square, torch.from_numpy(d).to(dtype), rate, DECAY, EPSILON)
    np.testing.assert_allclose(theta.double().numpy(), expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(square.double().numpy(), average, rtol=tolerance)


def test_the_first_step_by_hand() -> None:
    """d = 2, ρ = 0.5, ε = 0.25: v = 2, the root is 1.5."""
    theta, square = torch.tensor([1.0]), torch.tensor([0.0])
    shared_rmsprop_step(theta, square, torch.tensor([2.0]), 0.3, 0.5, 0.25)
    assert square.item() == 2.0
    assert theta.item() == pytest.approx(1 - 0.3 * 2 / 1.5)


def test_without_a_gradient_nothing_moves_but_the_average() -> None:
    theta, square = torch.tensor([1.0]), torch.tensor([4.0])
    shared_rmsprop_step(theta, square, torch.tensor([0.0]), 0.3, 0.5, 0.25)
    assert (theta.item(), square.item()) == (1.0, 2.0)


def test_the_passes_of_other_devices_agree() -> None:
    """Half precision takes the way of devices without our own kernel."""
    gradients = torch.from_numpy(made_up_gradients(50)).clamp(-3, 3)
    found = []
    for dtype in (torch.float64, torch.bfloat16):
        theta, square = torch.ones(50, dtype=dtype), torch.zeros(50, dtype=dtype)
        for d in gradients.to(dtype):
            shared_rmsprop_step(theta, square, d, 0.1, DECAY, EPSILON)
        found.append(theta.double())
    torch.testing.assert_close(found[0], found[1], rtol=0.1, atol=0.1)


def test_autograd_knows_that_the_parameters_have_changed() -> None:
    theta = torch.ones(3)
    of_graph = theta.clone().requires_grad_()
    loss = (of_graph * of_graph).sum()
    shared_rmsprop_step(of_graph.detach(), torch.zeros(3), torch.ones(3), 0.1, DECAY, EPSILON)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_several_move_shared_parameters_without_locks() -> None:
    """Some of two threads' steps may be lost, number by number, but neither's as a whole."""
    theta, square = torch.zeros(1_000), torch.zeros(1_000)

    def move(theta: Tensor, square: Tensor) -> None:
        for _ in range(200):
            shared_rmsprop_step(theta, square, torch.ones_like(theta), 1e-3, DECAY, EPSILON)

    alone, alone_square = torch.zeros(1_000), torch.zeros(1_000)
    move(alone, alone_square)
    threads = [threading.Thread(target=move, args=(theta, square)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bool((theta < 0.5 * alone).all())
    assert bool((theta > 2.0 * alone - 1e-6).all())
    assert bool((square > 0.5 * alone_square).all())


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.5), (25, 0.375), (50, 0.25), (100, 0.0), (130, 0.0)]
)
def test_a_rate_falls_linearly_and_no_lower_than_zero(step: int, expected: float) -> None:
    assert annealed(0.5, step, 100) == expected
