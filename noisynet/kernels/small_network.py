"""The update of a small value network, and its values for acting, in one compiled call each.

For networks such as MinAtar's and CartPole's, calling PyTorch's operations costs more than their
arithmetic. Parameters are one vector θ, gradients and averages are vectors of the same layout, and
the noise of a network is one vector ε. Arrays are float32. `noisynet/agents/fused.py` makes the
named tuples. `update` follows `PlainUpdate.learn` in `noisynet/agents/value.py` line by line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisynet.kernels.compiled import compiled
from noisynet.kernels.convolution import convolve_backward, features_of
from noisynet.kernels.fully_connected import stack, stack_backward
from noisynet.kernels.rmsprop import centred_rmsprop
from noisynet.kernels.value_losses import categorical_loss, expected_values, greedy, q_loss

_ZERO = np.float32(0)


@compiled
def sum_over_actions(outputs: Any, atoms: Any) -> Any:
    """Σ_a of outputs [B, A·N], atom by atom [B, N]."""
    total = np.zeros((len(outputs), atoms), np.float32)
    for b in range(len(outputs)):
        for i in range(outputs.shape[1]):
            total[b, i % atoms] += outputs[b, i]
    return total


@compiled
def duelling(value: Any, advantage: Any) -> Any:
    """V + A − mean A [B, A·N] (Eq. 3), atom by atom where the network has atoms: V is [B, N]."""
    atoms, outputs = value.shape[1], np.empty_like(advantage)
    total, actions = sum_over_actions(advantage, atoms), np.float32(outputs.shape[1] // atoms)
    for b in range(len(outputs)):
        for i in range(outputs.shape[1]):
            outputs[b, i] = value[b, i % atoms] + advantage[b, i] - total[b, i % atoms] / actions
    return outputs


@compiled
def _forward(theta: Any, epsilon: Any, layout: Any, features: Any, keep: Any) -> Any:
    """Outputs [B, A·N] with one noise sample for the batch; with `keep` also for `_backward`."""
    layers, split = layout.layers, layout.value_layers
    advantage = stack(theta, epsilon, layers[split:], features, keep)
    if split == 0:
        return advantage[0][-1], (advantage, advantage)
    value = stack(theta, epsilon, layers[:split], features, keep)
    return duelling(value[0][-1], advantage[0][-1]), (value, advantage)


@compiled
def _backward(gradient: Any, layout: Any, options: Any, images: Any, passed: Any, d: Any) -> None:
    """From the gradient at the outputs [B, A·N] to that of every parameter."""
    layers, split, (value, advantage) = layout.layers, layout.value_layers, passed
    convolutional = layout.convolution.filters > 0
    d_value = d
    if split:
        d_value = sum_over_actions(d, value[0][-1].shape[1])
        d = duelling(np.zeros_like(d_value), d)  # Eq. 3 is linear in A: its gradient is d − mean d
    d_features = stack_backward(gradient, layers[split:], advantage, d, convolutional)
    if split:
        d_value = stack_backward(gradient, layers[:split], value, d_value, convolutional)
    if convolutional:
        for b in range(len(d_features)):
            for i in range(d_features.shape[1]):
                d_features[b, i] += d_value[b, i] if split else _ZERO
                d_features[b, i] *= options.trunk_gradient_scale
        shape, features = layout.convolution, advantage[0][0]
        convolve_backward(gradient, shape, images, options.scale, features, d_features)


@compiled
def _step(trained: Any, steps: Any, options: Any) -> Any:
    """Clip the gradient, then one step for every parameter; return the norm if it is measured."""
    theta, gradient, first, second = trained
    norm, scale = np.nan, 1.0
    if options.max_gradient_norm < np.inf or steps % options.norm_period_updates == 0:
        squares = np.float64(0)
        for i in range(len(gradient)):
            squares += gradient[i] ** 2
        norm = np.sqrt(squares)
        if norm > options.max_gradient_norm:
            scale = options.max_gradient_norm / (norm + 1e-6)
    lr, epsilon = options.learning_rate, options.epsilon
    if options.adam:  # its averages start at 0, which these factors correct
        rates = lr / (1 - 0.9**steps), np.sqrt(1 - 0.999**steps), epsilon, scale
        adam(theta, gradient, first, second, rates)
    else:
        centred_rmsprop(theta, gradient, first, second, (lr, options.decay, epsilon, scale))
    return norm


@compiled
def adam(theta: Any, gradient: Any, first: Any, second: Any, rates: Any) -> None:
    """One step of Adam with its usual averages; the last of the rates scales the gradient."""
    lr, correction, epsilon, scale = rates
    lr, correction, epsilon = np.float32(lr), np.float32(correction), np.float32(epsilon)
    for i in range(len(theta)):
        d = np.float32(scale) * gradient[i]
        first[i] += np.float32(0.1) * (d - first[i])
        second[i] += np.float32(0.001) * (d * d - second[i])
        theta[i] -= lr * first[i] / (np.sqrt(second[i]) / correction + epsilon)


@compiled
def update(
    trained: Any, theta_minus: Any, noise: Any, layout: Any, options: Any, batch: Any, steps: Any
) -> Any:
    """One update (Algorithm 1); a loss that is not finite changes nothing.

    `noise` is (ξ, ξ′, ξ″); `batch` is x and y (`Observed`) and the actions, rewards, discounts and
    importance weights [B]; `steps` is the number of this update, from 1.

    Returns:
        Mean loss; target − Q(x, a) [B], or the KL divergence; mean Q(x, a); norm or NaN.
    """
    x, y, columns = batch
    theta, atoms, (xi, xi_target, xi_select) = trained.theta, layout.atoms, noise
    features = features_of(theta_minus, layout.convolution, y, options.scale)
    at_y, _ = _forward(theta_minus, xi_target, layout, features, False)  # Q(y, ·, ξ′; ζ⁻)
    selector = at_y
    if options.double_q:
        features = features_of(theta, layout.convolution, y, options.scale)
        selector, _ = _forward(theta, xi_select, layout, features, False)  # Q(y, ·, ξ″; ζ)
    best = greedy(expected_values(selector, atoms))  # b*(y)
    features = features_of(theta, layout.convolution, x, options.scale)
    at_x, passed = _forward(theta, xi, layout, features, True)  # Q(x, ·, ξ; ζ)
    if len(atoms):
        loss, error, d = categorical_loss(at_x, at_y, best, columns, atoms)
    else:
        loss, error, d = q_loss(at_x, at_y, best, columns, options.threshold)
    q, mean, norm = expected_values(at_x, atoms), _ZERO, np.nan
    for b in range(len(q)):
        mean += q[b, columns[0][b]] / np.float32(len(q))
    if np.isfinite(loss):
        _backward(trained.gradient, layout, options, x.images, passed, d)
        norm = _step(trained, steps, options)
    return loss, error, mean, norm


@compiled
def q_values(theta: Any, epsilon: Any, layout: Any, observed: Any, scale: Any) -> Any:
    """Q [N, A] for acting: each row has its own noise sample ε [N, …]."""
    features = features_of(theta, layout.convolution, observed, scale)
    outputs = np.empty((len(epsilon), layout.layers[-1].q), np.float32)
    for n in range(len(epsilon)):
        of_row, _ = _forward(theta, epsilon[n], layout, features[n : n + 1], False)
        for i in range(of_row.size):
            outputs[n, i] = of_row[0, i]
    return expected_values(outputs, layout.atoms)
