"""The one-pass RMSProps against their plain definitions in `noisynet.optimisers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisynet import optimisers
from noisynet.kernels import rmsprop as kernels

RATES = 2.5e-4, 0.95, 0.01  # learning rate, decay, ε
STEPS = 1_000

# The formulae are the same, but the kernel contracts multiplications with additions, which saves
# roundings. Where a gradient hardly changes, v − g² cancels: its rounding error is that of v, which
# 1,000 steps in one direction add up.
TOLERANCES = {torch.float32: 5e-5, torch.float64: 1e-13}

Layout = Callable[[Tensor], Tensor]


def channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def contiguous(tensor: Tensor) -> Tensor:
    return tensor.contiguous()


def gradients(dtype: torch.dtype) -> Tensor:
    """Of all magnitudes: ε dominates the smallest, and is negligible for the largest."""
    generator = torch.Generator().manual_seed(0)
    size = torch.logspace(-4, 1, 6 * 4 * 3 * 3, dtype=torch.float64)
    drift = torch.linspace(-1, 1, len(size), dtype=torch.float64)
    noise = torch.randn(STEPS, len(size), generator=generator, dtype=torch.float64)
    return (noise * size + drift).to(dtype).reshape(STEPS, 6, 4, 3, 3)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    ("of_parameter", "of_gradient"),
    [
        (contiguous, contiguous),
        (channels_last, channels_last),
        (channels_last, contiguous),
        (contiguous, channels_last),
    ],
)
def test_centred_rmsprop_equals_the_plain_definition_over_1000_steps(
    of_parameter: Layout, of_gradient: Layout, dtype: torch.dtype
) -> None:
    start = of_parameter(torch.linspace(-1, 1, 216, dtype=dtype).reshape(6, 4, 3, 3))
    plain, fused = ([start.clone(), *(torch.zeros_like(start) for _ in "gv")] for _ in range(2))
    for d in gradients(dtype):
        optimisers.centred_rmsprop_(plain[0], d, plain[1], plain[2], *RATES)
        kernels.centred_rmsprop_(fused[0], of_gradient(d), fused[1], fused[2], *RATES)
    assert float((plain[0] - start).abs().max()) > 0.1
    for ours, theirs in zip(fused, plain, strict=True):
        assert ours.stride() == start.stride()
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_shared_rmsprop_equals_the_plain_definition_over_1000_steps(dtype: torch.dtype) -> None:
    start = torch.linspace(-1, 1, 216, dtype=dtype)
    plain, fused = ([start.clone(), torch.zeros_like(start)] for _ in range(2))
    for d in gradients(dtype).flatten(1):
        optimisers.shared_rmsprop_(plain[0], d, plain[1], 7e-4, 0.99, 0.1)
        kernels.shared_rmsprop_(fused[0], d, fused[1], 7e-4, 0.99, 0.1)
    assert float((plain[0] - start).abs().max()) > 0.1
    for ours, theirs in zip(fused, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


def test_views_of_one_vector_are_updated_in_place() -> None:
    """A3C's parameters are such views, and only their own elements may change."""
    vector = torch.ones(64)
    parameter = vector[16:48].view(8, 4)
    zeros = torch.zeros_like(parameter)
    kernels.centred_rmsprop_(
        parameter, torch.ones(8, 4), zeros.clone(), zeros.clone(), 0.1, 0.5, 1.0
    )
    assert bool((vector[16:48] < 1).all())
    assert bool((vector[:16] == 1).all())
    assert bool((vector[48:] == 1).all())


def test_gradients_are_left_unchanged() -> None:
    gradient = torch.tensor([1.0, -2.0, 3.0])
    parameter, average, square = torch.ones(3, 3).unbind()
    kernels.centred_rmsprop_(parameter, gradient, average, square, *RATES)
    kernels.shared_rmsprop_(parameter, gradient, square, *RATES)
    assert gradient.tolist() == [1.0, -2.0, 3.0]


def test_a_constant_gradient_leaves_the_parameters_finite() -> None:
    """v − g² is then 0 up to rounding, which must not become negative by more than ε."""
    gradient = torch.linspace(0.1, 1, 500) * 1e6
    parameter, average, square = torch.zeros(3, 500).unbind()
    for _ in range(400):
        kernels.centred_rmsprop_(parameter, gradient, average, square, *RATES)
    assert bool(parameter.isfinite().all())


@pytest.mark.parametrize("kernel", ["centred", "shared"])
def test_a_step_invalidates_graphs_of_the_old_values(kernel: str) -> None:
    """Kernels write past autograd; without new versions a stale graph would go unnoticed."""
    parameter = nn.Parameter(torch.ones(3))
    states = [torch.ones(3, requires_grad=True) for _ in range(2 if kernel == "centred" else 1)]
    tensors = [parameter, *states]
    losses = [tensor.square().sum() for tensor in tensors]
    steps: dict[str, Any] = {
        "centred": kernels.centred_rmsprop_,
        "shared": kernels.shared_rmsprop_,
    }
    steps[kernel](parameter, torch.ones(3), *states, *RATES)
    for loss in losses:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_statistics_of_another_memory_layout_are_refused() -> None:
    """A copy in the right layout would be updated and lost."""
    parameter = channels_last(torch.zeros(6, 4, 3, 3))
    good, bad = torch.zeros_like(parameter), torch.zeros(6, 4, 3, 3)
    message = "statistics with its memory layout"
    for average, square in ((bad, good), (good, bad)):
        with pytest.raises(ValueError, match=message):
            kernels.centred_rmsprop_(parameter, good, average, square, *RATES)
    with pytest.raises(ValueError, match=message):
        kernels.shared_rmsprop_(parameter, good, bad, *RATES)


def test_parameters_with_gaps_in_memory_are_refused() -> None:
    parameter = torch.zeros(4, 6)[:, :3]
    state = torch.zeros(4, 6)[:, :3]
    with pytest.raises(ValueError, match="expected a contiguous or channels-last parameter"):
        kernels.shared_rmsprop_(parameter, torch.zeros(4, 3), state, *RATES)


def test_the_optimiser_takes_the_kernel_as_its_step() -> None:
    parameters = [nn.Parameter(torch.linspace(-1, 1, 10)) for _ in range(2)]
    plain = optimisers.CentredRMSProp(parameters[:1], *RATES)
    fused = optimisers.CentredRMSProp(parameters[1:], *RATES, kernels.centred_rmsprop_)
    for d in gradients(torch.float32)[:50].flatten(1)[:, :10]:
        for parameter, optimiser in zip(parameters, (plain, fused), strict=True):
            parameter.grad = d
            optimiser.step()
    torch.testing.assert_close(parameters[0], parameters[1], rtol=0, atol=1e-6)
