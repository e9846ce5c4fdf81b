"""Noisy layers whose weights are built once for many passes, as in a roll-out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


class LinearOfBuilt(torch.autograd.Function):
    """Wx + b for W = μ + σ⊙ε and b likewise that were built before, with gradients for μ and σ.

    A roll-out is a handful of rows, so that gradients cost less from inputs and outputs than by way
    of the weights' own: no matrix of their size is made that is not a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        epsilon: tuple[Tensor | None, ...],
        *_parameters: Tensor | None,
    ) -> Tensor:
        """Wx + b for x [..., p], or [..., rows, p] if weights are [rows, q, p].

        `epsilon` is what the layer holds: of inputs, outputs, weights and biases. The parameters
        μw, σw, μb and σb are there for their gradients.
        """
        ctx.save_for_backward(x, weight, *epsilon)
        return apply_built(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        """Eqs. 12 and 13: dμ = dW, dσ = dW ⊙ ε."""
        (gradient,) = gradients
        x, weight, inputs, outputs, of_weight, of_bias = ctx.saved_tensors
        x, gradient = x.contiguous(), gradient.contiguous()
        rows = weight.dim() == 3
        needs = ctx.needs_input_grad
        d_x = None
        if needs[0]:
            form = "...nq,nqp->...np" if rows else "...q,qp->...p"
            d_x = torch.einsum(form, gradient, weight)
        flat_x = x.view(-1, x.shape[-1])  # [B, p]
        flat = gradient.view(-1, gradient.shape[-1])  # [B, q]
        d_mu = flat.t() @ flat_x
        d_bias_mu = flat.sum(dim=0) if needs[6] else None
        d_sigma = d_bias_sigma = None
        if needs[5]:
            if of_weight is None:  # factorised: ε is the outer product of f(ε_out) and f(ε_in)
                d_sigma = (flat * outputs).t() @ (flat_x * inputs)
            elif rows:
                d_sigma = _summed_over_rows(x, gradient, of_weight)
            else:
                d_sigma = d_mu * of_weight
        if needs[7]:
            noise = outputs if of_weight is None else of_bias
            d_bias_sigma = (gradient * noise).view(flat.shape).sum(dim=0)
        return d_x, None, None, None, d_mu, d_sigma, d_bias_mu, d_bias_sigma


def apply_built(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Wx + b; with weights [rows, q, p] each row of x [..., rows, p] has its own."""
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    y = torch.einsum("...np,nqp->...nq", x, weight)
    return y if bias is None else y + bias


def _summed_over_rows(x: Tensor, gradient: Tensor, epsilon: Tensor) -> Tensor:
    """Σ over rows of (Σ over steps of g ⊗ x) ⊙ ε, for ε [rows, q, p], one row at a time."""
    _, outputs, inputs = epsilon.shape
    xs = x.view(-1, *x.shape[-2:])  # [T, rows, p]
    gradients = gradient.view(-1, *gradient.shape[-2:])  # [T, rows, q]
    total, of_row = x.new_zeros(outputs, inputs), x.new_empty(outputs, inputs)
    for row, noise in enumerate(epsilon):
        torch.mm(gradients[:, row].t(), xs[:, row], out=of_row)
        total.addcmul_(of_row, noise)
    return total
