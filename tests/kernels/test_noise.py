"""The one-pass noise against `noisynet.layers.perturbed_weight`, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from noisynet.kernels.noise import perturbed_weight
from noisynet.layers import NoisyLinear
from noisynet.layers import perturbed_weight as plain_perturbed_weight

# σ·(f(ε_out)·f(ε_in)) in the kernel, (σ·f(ε_in))·f(ε_out) in PyTorch: some roundings apart.
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-15}
SHAPES = [(1, 1), (3, 5), (64, 200)]


def arguments(shape: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    q, p = shape
    return draw(q, p).requires_grad_(), draw(q, p).requires_grad_(), draw(q), draw(p)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("sigma_frozen", [False, True], ids=["σ trained", "σ frozen"])
def test_weights_and_gradients_equal_the_plain_definition(
    shape: tuple[int, int], dtype: torch.dtype, sigma_frozen: bool
) -> None:
    mu, sigma, *epsilon = arguments(shape, dtype)
    sigma.requires_grad_(not sigma_frozen)
    upstream = torch.randn(shape, dtype=dtype)
    found: list[list[Tensor | None]] = []
    for function in (perturbed_weight, plain_perturbed_weight):
        mu.grad = sigma.grad = None
        weight = function(mu, sigma, epsilon[0], epsilon[1])
        weight.backward(upstream)
        found.append([weight.detach(), mu.grad, sigma.grad])
    assert (sigma.grad is None) == sigma_frozen
    tolerance = TOLERANCES[dtype]
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None or theirs is None
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_gradients_pass_gradcheck() -> None:
    mu, sigma, outputs, inputs = arguments((3, 4), torch.float64)
    assert torch.autograd.gradcheck(
        lambda mu, sigma: perturbed_weight(mu, sigma, outputs, inputs), (mu, sigma)
    )


def test_upstream_gradients_may_have_any_memory_layout() -> None:
    mu, sigma, outputs, inputs = arguments((3, 5), torch.float64)
    upstream = torch.randn(5, 3, dtype=torch.float64).t()
    assert not upstream.is_contiguous()
    perturbed_weight(mu, sigma, outputs, inputs).backward(upstream)
    torch.testing.assert_close(mu.grad, upstream)
    torch.testing.assert_close(sigma.grad, upstream * torch.outer(outputs, inputs))


def test_no_graph_is_recorded_without_gradients() -> None:
    mu, sigma, outputs, inputs = arguments((3, 5), torch.float32)
    with torch.no_grad():
        weight = perturbed_weight(mu, sigma, outputs, inputs)
    assert not weight.requires_grad
    assert torch.equal(weight, perturbed_weight(mu, sigma, outputs, inputs))


# --- in a layer ----------------------------------------------------------------------------------


def layers(
    bias: bool = True, dtype: torch.dtype = torch.float32
) -> tuple[NoisyLinear, NoisyLinear]:
    """A plain layer, and its copy with the kernel."""
    plain = NoisyLinear(12, 7, bias, sigma0=2.0, dtype=dtype)
    fused = copy.deepcopy(plain)
    fused.perturb = perturbed_weight
    return plain, fused


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("cached", [False, True], ids=["", "cached"])
def test_a_layer_with_the_kernel_equals_a_plain_one(
    bias: bool, dtype: torch.dtype, cached: bool
) -> None:
    x = torch.randn(9, 12, dtype=dtype)
    outputs = []
    for layer in layers(bias, dtype):
        if cached:
            layer.cache_weights()
        layer(x).sin().sum().backward()
        outputs.append([layer(x).detach(), *(parameter.grad for parameter in layer.parameters())])
    for ours, theirs in zip(*outputs, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_layer_calls_the_kernel_for_a_shared_sample_and_never_for_rows() -> None:
    calls: list[torch.Size] = []

    def counted(mu: Tensor, sigma: Tensor, outputs: Tensor, inputs: Tensor) -> Tensor:
        calls.append(mu.shape)
        return perturbed_weight(mu, sigma, outputs, inputs)

    _, layer = layers()
    layer.perturb = counted
    layer(torch.randn(9, 12))
    assert calls == [(7, 12)]
    layer.resample_noise(rows=3)
    layer(torch.randn(3, 12))
    assert layer.weight.shape == (3, 7, 12)
    assert len(calls) == 1
    layer.resample_noise()
    layer(torch.randn(9, 12))
    assert len(calls) == 2


def test_copies_keep_the_kernel() -> None:
    _, fused = layers()
    assert copy.deepcopy(fused).perturb is perturbed_weight
