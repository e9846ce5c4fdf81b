"""The noise of a layer's weights in one pass over memory, forward and backward.

Autograd's way makes a pass for each product; where layers are large, passes are what noise costs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noisynet.compiled import compiled
from noisynet.layers import NoisyLinear
from noisynet.networks.gradients import gradient_of


@torch.no_grad()
def perturbed_weight(layer: NoisyLinear) -> Tensor:
    """The weights in force: μw + σw⊙εw (Eq. 9), or μw where the noise is off."""
    if layer._noise_off or not is_for_one_pass(layer):
        return layer.weight
    weight = torch.empty_like(layer.weight_mu)
    _perturb(*arrays_of(layer.weight_mu, layer.weight_sigma, *noise_of(layer), weight))
    return weight


@torch.no_grad()
def keep_sigma_gradients(layer: NoisyLinear) -> None:
    """Make σ's gradients of μ's, which are those of the weights and biases in force.

    dμ = dW and dσ = dW ⊙ ε (Eqs. 12, 13), with one sample for all rows.
    """
    assert layer.bias_mu is not None, "every layer here has biases"
    assert layer.bias_sigma is not None
    if layer._noise_off or not layer.weight_sigma.requires_grad:
        layer.weight_sigma.grad = layer.bias_sigma.grad = None
        return
    weight, bias = layer.weight_mu.grad, layer.bias_mu.grad
    assert weight is not None
    assert bias is not None
    place = gradient_of(layer.weight_sigma)
    if is_for_one_pass(layer):
        _multiply_by_noise(*arrays_of(weight, *noise_of(layer), place))
    elif layer.epsilon_weight is not None:  # independent
        torch.mul(weight, layer.epsilon_weight, out=place)
    else:
        inputs, outputs = noise_of(layer)
        torch.mul(weight, inputs, out=place).mul_(outputs.unsqueeze(-1))  # Eq. 10
    noise = layer.epsilon_out if layer.noise == "factorised" else layer.epsilon_bias  # Eq. 11
    assert noise is not None
    torch.mul(bias, noise, out=gradient_of(layer.bias_sigma))


def is_for_one_pass(layer: NoisyLinear) -> bool:
    """Whether there is a way for this layer's noise: factorised, in single precision."""
    return layer.noise == "factorised" and layer.weight_mu.dtype == torch.float32


def noise_of(layer: NoisyLinear) -> tuple[Tensor, Tensor]:
    """f(ε) of the inputs and of the outputs."""
    assert layer.epsilon_in is not None
    assert layer.epsilon_out is not None
    return layer.epsilon_in, layer.epsilon_out


def arrays_of(*tensors: Tensor) -> list[Any]:
    """What compiled functions take, in the same memory."""
    return [tensor.detach().numpy() for tensor in tensors]


@compiled
def _perturb(mu: Any, sigma: Any, inputs: Any, outputs: Any, weight: Any) -> None:
    for o in range(len(outputs)):
        for i in range(len(inputs)):
            weight[o, i] = mu[o, i] + sigma[o, i] * (outputs[o] * inputs[i])  # Eqs. 9, 10


@compiled
def _multiply_by_noise(gradient: Any, inputs: Any, outputs: Any, product: Any) -> None:
    for o in range(len(outputs)):
        for i in range(len(inputs)):
            product[o, i] = gradient[o, i] * (outputs[o] * inputs[i])  # Eq. 10
