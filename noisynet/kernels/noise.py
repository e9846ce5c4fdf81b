"""Factorised noise on a weight in one pass over memory, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from noisynet.kernels.compiled import compiled


def perturbed_weight(mu: Tensor, sigma: Tensor, epsilon_out: Tensor, epsilon_in: Tensor) -> Tensor:
    """See `noisynet.layers.perturbed_weight`; for float32 and float64 on a CPU.

    PyTorch's operations pass over memory twice forward and twice backward.
    """
    weight: Tensor = _PerturbedWeight.apply(mu, sigma, epsilon_out, epsilon_in)  # type: ignore[no-untyped-call]
    return weight


class _PerturbedWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mu: Tensor, sigma: Tensor, *epsilon: Tensor) -> Tensor:
        ctx.save_for_backward(*epsilon)
        weight = torch.empty_like(mu)
        _perturb(*_arrays(mu, sigma, *epsilon, weight))
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        """dμ = dW, dσ = dW ⊙ ε (Eqs. 12, 13)."""
        gradient = gradients[0].contiguous()
        if not ctx.needs_input_grad[1]:
            return gradient, None, None, None
        d_sigma = torch.empty_like(gradient)
        _multiply_by_noise(*_arrays(gradient, *ctx.saved_tensors, d_sigma))
        return gradient, d_sigma, None, None


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().numpy() for tensor in tensors]


@compiled
def _perturb(mu: Any, sigma: Any, outputs: Any, inputs: Any, weight: Any) -> None:
    for o in range(len(outputs)):
        for i in range(len(inputs)):
            weight[o, i] = mu[o, i] + sigma[o, i] * (outputs[o] * inputs[i])  # Eqs. 9, 10


@compiled
def _multiply_by_noise(gradient: Any, outputs: Any, inputs: Any, product: Any) -> None:
    for o in range(len(outputs)):
        for i in range(len(inputs)):
            product[o, i] = gradient[o, i] * (outputs[o] * inputs[i])  # Eq. 10
