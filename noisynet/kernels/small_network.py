"""The update of a small value network, and its values for acting, in one compiled call each.

For networks such as MinAtar's and CartPole's, calling PyTorch's operations costs more than their
arithmetic. Here forward, target, loss, backward and optimiser step are one call. Parameters are one
vector θ, gradients and averages are vectors of the same layout, and the noise of a network is one
vector ε, in which every layer has an offset. Arrays are float32. The named tuples that describe a
network and its batches are made in `noisynet/agents/fused.py`.

`update` follows `PlainUpdate.learn` in `noisynet/agents/value.py` line by line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisynet.kernels.compiled import compiled
from noisynet.kernels.convolution import convolve_backward, features_of
from noisynet.kernels.fully_connected import noise_of, row_of, stack, stack_backward
from noisynet.kernels.rmsprop import centred_rmsprop
from noisynet.kernels.value_losses import categorical_loss, expected_values, greedy, q_loss


@compiled
def duelling(value: Any, advantage: Any) -> Any:
    """V + A − mean A [B, A·N] (Eq. 3), atom by atom where the network has atoms: V is [B, N]."""
    by_action = advantage.copy().reshape(len(value), -1, value.shape[1])
    offset = value - by_action.sum(axis=1) / np.float32(by_action.shape[1])
    for a in range(by_action.shape[1]):
        by_action[:, a] += offset
    return by_action.reshape(advantage.shape)


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
    """From the gradient at the outputs [B, A·N] to that of every μ and of the convolution."""
    layers, split, (value, advantage) = layout.layers, layout.value_layers, passed
    convolutional = layout.convolution.filters > 0
    if split:  # Eq. 3
        by_action = d.reshape(len(d), -1, value[0][-1].shape[1])
        d_value = by_action.sum(axis=1)
        for a in range(by_action.shape[1]):
            by_action[:, a] -= d_value / np.float32(by_action.shape[1])
    d_features = stack_backward(gradient, layers[split:], advantage, d, convolutional)
    if split:
        d_of_value = stack_backward(gradient, layers[:split], value, d_value, convolutional)
        d_features = d_features + d_of_value if convolutional else d_features
    if convolutional:
        d_features *= options.trunk_gradient_scale
        shape, features = layout.convolution, advantage[0][0]
        convolve_backward(gradient, shape, images, options.scale, features, d_features)


@compiled
def _squared_norm(gradient: Any, epsilon: Any, layers: Any) -> Any:
    """‖dθ‖², without a vector for dσ = dμ⊙ε (Eqs. 12, 13)."""
    total = np.float64((gradient[: layers[0].weight_mu] ** 2).sum())
    for number in range(len(layers)):
        layer = layers[number]
        noise, noise_b = np.zeros(layer.p, np.float32), np.float32(0)
        for o in range(layer.q):
            d, d_bias = row_of(gradient, layer.weight_mu, o, layer.p), gradient[layer.bias_mu + o]
            if layer.learn_sigma:
                noise_b = noise_of(epsilon, layer, o, noise)
            of_row = (d_bias * noise_b) ** 2 + d_bias**2
            for i in range(layer.p):
                of_row += (d[i] * noise[i]) ** 2 + d[i] ** 2
            total += of_row
    return total


@compiled
def optimise(trained: Any, start: Any, d: Any, adam: Any, rates: Any) -> None:
    """One step of Adam or centred RMSProp for the parameters from `start` on, with gradient d."""
    chosen = slice(start, start + len(d))
    theta, first, second = trained.theta[chosen], trained.first[chosen], trained.second[chosen]
    if not adam:
        centred_rmsprop(theta, d, first, second, rates)
        return
    lr, correction, epsilon, scale = rates
    lr, correction, epsilon = np.float32(lr), np.float32(correction), np.float32(epsilon)
    for i in range(len(d)):
        gradient = np.float32(scale) * d[i]
        first[i] += np.float32(0.1) * (gradient - first[i])
        second[i] += np.float32(0.001) * (gradient * gradient - second[i])
        theta[i] -= lr * first[i] / (np.sqrt(second[i]) / correction + epsilon)


@compiled
def _step(trained: Any, epsilon: Any, layers: Any, steps: Any, options: Any) -> Any:
    """Clip the gradient, then one step for every parameter; return the norm if it is measured."""
    gradient, norm, scale, adam = trained.gradient, np.nan, 1.0, options.adam
    if options.max_gradient_norm < np.inf or steps % options.norm_period_updates == 0:
        norm = np.sqrt(_squared_norm(gradient, epsilon, layers))
        if norm > options.max_gradient_norm:
            scale = options.max_gradient_norm / (norm + 1e-6)
    rates = options.learning_rate, options.decay, options.epsilon, scale
    if adam:  # its averages start at 0, which these factors correct
        rates = rates[0] / (1 - 0.9**steps), np.sqrt(1 - 0.999**steps), rates[2], scale
    optimise(trained, 0, gradient[: layers[0].weight_mu], adam, rates)
    for number in range(len(layers)):
        layer = layers[number]
        p, q = layer.p, layer.q
        d_bias = row_of(gradient, layer.bias_mu, 0, q)
        optimise(trained, layer.weight_mu, row_of(gradient, layer.weight_mu, 0, q * p), adam, rates)
        optimise(trained, layer.bias_mu, d_bias, adam, rates)
        if not layer.learn_sigma:
            continue
        d_sigma, d_sigma_b = np.empty(p, np.float32), d_bias.copy()
        for o in range(q):
            d = row_of(gradient, layer.weight_mu, o, p)
            d_sigma_b[o] *= noise_of(epsilon, layer, o, d_sigma)  # Eq. 13
            for i in range(p):
                d_sigma[i] *= d[i]  # Eq. 12
            optimise(trained, layer.weight_sigma + o * p, d_sigma, adam, rates)
        optimise(trained, layer.bias_sigma, d_sigma_b, adam, rates)
    return norm


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
    q, norm = expected_values(at_x, atoms), np.nan
    mean = np.array([q[b, columns[0][b]] for b in range(len(q))]).mean()
    if np.isfinite(loss):
        _backward(trained.gradient, layout, options, x.images, passed, d)
        norm = _step(trained, xi, layout.layers, steps, options)
    return loss, error, mean, norm


@compiled
def q_values(theta: Any, epsilon: Any, layout: Any, observed: Any, scale: Any) -> Any:
    """Q [N, A] for acting: each row has its own noise sample ε [N, …]."""
    features = features_of(theta, layout.convolution, observed, scale)
    outputs = np.empty((len(epsilon), layout.layers[-1].q), np.float32)
    for n in range(len(epsilon)):
        outputs[n] = _forward(theta, epsilon[n], layout, features[n : n + 1], False)[0][0]
    return expected_values(outputs, layout.atoms)
