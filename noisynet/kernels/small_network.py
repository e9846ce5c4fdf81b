"""The update of a small value network, and its values for acting, in one compiled call each.

For networks such as MinAtar's and CartPole's, calling PyTorch's operations costs more than their
arithmetic. Here forward, target, loss, backward and optimiser step are one call. Parameters are one
vector θ, gradients and averages are vectors of the same layout, and the noise of a network is one
vector ε, in which every layer has an offset. Arrays are float32.

`update` follows `PlainUpdate.learn` in `noisynet/agents/value.py` line by line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisynet.kernels.compiled import compiled
from noisynet.kernels.convolution import FILTERS, convolve, convolve_backward
from noisynet.kernels.products import dense, product
from noisynet.kernels.rmsprop import centred_rmsprop

P, Q, WEIGHT_MU, WEIGHT_SIGMA, BIAS_MU, BIAS_SIGMA, EPSILON, INDEPENDENT, LEARN_SIGMA = range(9)
"""Columns of `Layout.layers`: inputs, outputs, offsets of μw, σw, μb and σb in θ (−1: absent) and
of the noise in ε, whether it is independent noise, and whether σ is trained."""

_ZERO = np.float32(0)


class Layout(NamedTuple):
    """Where the parameters and the noise of a network are."""

    convolution: NDArray[np.int64]  # [7], see `noisynet.kernels.convolution`; 0 filters: none
    layers: NDArray[np.int64]  # [L, 9], those of V first where the network is dueling
    value_layers: int  # how many of them belong to V; 0 for a network that is not dueling


class Options(NamedTuple):
    """The settings of an update."""

    scale: np.float32  # multiplies observations of bytes
    double_q: bool  # whether the online network selects the action at y
    threshold: np.float32  # of the Huber loss; infinite for the squared loss
    trunk_gradient_scale: np.float32  # multiplies the gradient that enters the convolution
    max_gradient_norm: float  # infinite: no clipping
    adam: bool  # whether the optimiser is Adam, else centred RMSProp
    learning_rate: float
    decay: float  # ρ of RMSProp
    epsilon: float


class Trained(NamedTuple):
    """What an update changes."""

    theta: NDArray[np.float32]  # ζ, the online network's parameters
    gradient: NDArray[np.float32]
    first: NDArray[np.float32]  # the optimiser's average of gradients
    second: NDArray[np.float32]  # its average of squares


class Observed(NamedTuple):
    """Observations: either images for the convolution, or vectors; the other one is empty."""

    images: NDArray[np.uint8]  # [B, channels, height, width]
    vectors: NDArray[np.float32]  # [B, p]


# --- noise ---------------------------------------------------------------------------------------


@compiled
def scale_noise(epsilon: Any) -> None:
    """f(x) = sgn(x)√|x| in place (section 3, b)."""
    flat = epsilon.ravel()
    for i in range(flat.size):
        flat[i] = np.copysign(np.sqrt(abs(flat[i])), flat[i])


@compiled
def _matrix(vector: Any, layer: Any, offset: Any) -> Any:
    """The weights [q, p] of a layer that start at one of its offsets."""
    p, q, start = layer[P], layer[Q], layer[offset]
    return vector[start : start + q * p].reshape(q, p)


@compiled
def _bias(vector: Any, layer: Any, offset: Any) -> Any:
    return vector[layer[offset] : layer[offset] + layer[Q]]


@compiled
def _weights(theta: Any, epsilon: Any, layer: Any) -> Any:
    """The current weights [q, p] and biases [q] of a layer: μ + σ⊙ε (Eqs. 9 to 11)."""
    p, q = layer[P], layer[Q]
    mu, mu_b = _matrix(theta, layer, WEIGHT_MU), _bias(theta, layer, BIAS_MU)
    if layer[WEIGHT_SIGMA] < 0:
        return mu, mu_b
    sigma, sigma_b = _matrix(theta, layer, WEIGHT_SIGMA), _bias(theta, layer, BIAS_SIGMA)
    weight, bias = np.empty((q, p), np.float32), np.empty(q, np.float32)
    noise = epsilon[layer[EPSILON] :]
    for o in range(q):
        if layer[INDEPENDENT]:
            out, own = noise[q * p + o], noise[o * p : o * p + p]
            for i in range(p):
                weight[o, i] = mu[o, i] + sigma[o, i] * own[i]
        else:
            out = noise[p + o]
            for i in range(p):
                weight[o, i] = mu[o, i] + sigma[o, i] * (out * noise[i])  # Eq. 10
        bias[o] = mu_b[o] + sigma_b[o] * out  # Eq. 11
    return weight, bias


@compiled
def _sigma_gradients(gradient: Any, epsilon: Any, layer: Any) -> None:
    """dσ = dμ ⊙ ε (Eqs. 12, 13)."""
    p, q = layer[P], layer[Q]
    mu, mu_b = _matrix(gradient, layer, WEIGHT_MU), _bias(gradient, layer, BIAS_MU)
    sigma, sigma_b = _matrix(gradient, layer, WEIGHT_SIGMA), _bias(gradient, layer, BIAS_SIGMA)
    noise = epsilon[layer[EPSILON] :]
    for o in range(q):
        if layer[INDEPENDENT]:
            out, own = noise[q * p + o], noise[o * p : o * p + p]
            for i in range(p):
                sigma[o, i] = mu[o, i] * own[i]
        else:
            out = noise[p + o]
            for i in range(p):
                sigma[o, i] = mu[o, i] * (out * noise[i])
        sigma_b[o] = mu_b[o] * out


# --- forward -------------------------------------------------------------------------------------


@compiled
def _features(theta: Any, layout: Any, observed: Any, scale: Any) -> Any:
    """The torso: a convolution of images, or the vectors as they are [B, F]."""
    shape = layout.convolution
    return convolve(theta, shape, observed.images, scale) if shape[FILTERS] else observed.vectors


@compiled
def _stream(theta: Any, epsilon: Any, layers: Any, x: Any) -> Any:
    """A stack of layers: what each took in, and at last what came out; and their weights."""
    activations, weights = [x], [np.empty((0, 0), np.float32)]
    for number in range(len(layers)):
        weight, bias = _weights(theta, epsilon, layers[number])
        weights.append(weight)
        activations.append(dense(activations[-1], weight, bias, number < len(layers) - 1))
    return activations, weights


@compiled
def _duelling(value: Any, advantage: Any) -> Any:
    """Q = V + A − mean A [B, A] (Eq. 3)."""
    q = np.empty_like(advantage)
    for b in range(len(q)):
        q[b] = value[b, 0] + advantage[b] - np.float32(advantage[b].mean())
    return q


@compiled
def _q_of_batch(theta: Any, epsilon: Any, layout: Any, features: Any) -> Any:
    """Q [B, A] with one noise sample for the batch."""
    layers, split = layout.layers, layout.value_layers
    advantage, _ = _stream(theta, epsilon, layers[split:], features)
    if split == 0:
        return advantage[-1]
    value, _ = _stream(theta, epsilon, layers[:split], features)
    return _duelling(value[-1], advantage[-1])


# --- backward ------------------------------------------------------------------------------------


@compiled
def _stream_backward(
    gradient: Any, epsilon: Any, layers: Any, passed: Any, d_y: Any, to_inputs: Any
) -> Any:
    """Write the gradients of a stack's parameters; return that of its inputs where asked."""
    activations, weights = passed
    for number in range(len(layers) - 1, -1, -1):
        layer, x = layers[number], activations[number]
        product(d_y, x, _matrix(gradient, layer, WEIGHT_MU))
        d_bias = _bias(gradient, layer, BIAS_MU)
        d_bias[:] = 0
        for b in range(len(d_y)):
            d_bias += d_y[b]
        if layer[LEARN_SIGMA]:
            _sigma_gradients(gradient, epsilon, layer)
        if number == 0 and not to_inputs:
            break
        d_x = np.empty_like(x)
        product(np.ascontiguousarray(d_y.T), weights[number + 1], d_x)
        if number > 0:
            for b in range(len(x)):
                for i in range(x.shape[1]):
                    d_x[b, i] = d_x[b, i] if x[b, i] > 0 else _ZERO  # the ReLU before this layer
        d_y = d_x
    return d_y


@compiled
def _backward(
    gradient: Any, epsilon: Any, layout: Any, options: Any, images: Any, passed: Any, d_q: Any
) -> None:
    """From the gradient at Q to that of every parameter."""
    layers, split, (value, advantage) = layout.layers, layout.value_layers, passed
    convolutional = layout.convolution[FILTERS] > 0
    features = advantage[0][0]
    if split:
        d_value = np.empty((len(d_q), 1), np.float32)
        for b in range(len(d_q)):  # Eq. 3
            d_value[b, 0] = d_q[b].sum()
            d_q[b] -= d_value[b, 0] / np.float32(d_q.shape[1])
    d_features = _stream_backward(gradient, epsilon, layers[split:], advantage, d_q, convolutional)
    if split:
        d_of_value = _stream_backward(
            gradient, epsilon, layers[:split], value, d_value, convolutional
        )
        d_features = d_features + d_of_value if convolutional else d_features
    if convolutional:
        d_features *= options.trunk_gradient_scale
        convolve_backward(gradient, layout.convolution, images, options.scale, features, d_features)


# --- the update ----------------------------------------------------------------------------------


@compiled
def _loss(q_x: Any, q_y: Any, selector: Any, columns: Any, threshold: Any) -> Any:
    """The mean loss, target − Q(x, a) [B], and the gradient of the loss at q_x [B, A]."""
    action, reward, discount, weight = columns
    batch, actions = q_x.shape
    error, d_q = np.empty(batch, np.float32), np.zeros((batch, actions), np.float32)
    total = _ZERO
    for b in range(batch):
        best = 0
        for a in range(1, actions):
            if selector[b, a] > selector[b, best] or selector[b, a] != selector[b, a]:
                best = a  # NaN wins, so that it is noticed
        target = reward[b] + discount[b] * q_y[b, best]  # Eqs. 14; 15 and 16
        error[b] = target - q_x[b, action[b]]
        size = abs(error[b])
        quadratic = size if size < threshold or size != size else threshold
        total += weight[b] * quadratic * (size - np.float32(0.5) * quadratic)
        slope = max(-threshold, min(threshold, error[b]))
        d_q[b, action[b]] = -slope * weight[b] / np.float32(batch)  # the loss is of target − Q
    return total / np.float32(batch), error, d_q


@compiled
def _step(trained: Any, steps: Any, options: Any) -> None:
    """Clip the gradient by its norm, then one step of centred RMSProp or Adam."""
    theta, gradient, first, second = trained
    if options.max_gradient_norm < np.inf:
        norm = np.sqrt(np.float64((gradient * gradient).sum()))
        if norm > options.max_gradient_norm:
            gradient *= np.float32(options.max_gradient_norm / (norm + 1e-6))
    if not options.adam:
        rates = options.learning_rate, options.decay, options.epsilon
        centred_rmsprop(theta, gradient, first, second, *rates)
        return
    lr, epsilon = np.float32(options.learning_rate / (1 - 0.9**steps)), np.float32(options.epsilon)
    correction = np.float32(np.sqrt(1 - 0.999**steps))
    for i in range(theta.size):
        first[i] += np.float32(0.1) * (gradient[i] - first[i])
        second[i] += np.float32(0.001) * (gradient[i] * gradient[i] - second[i])
        theta[i] -= lr * first[i] / (np.sqrt(second[i]) / correction + epsilon)


@compiled
def update(
    trained: Any, theta_minus: Any, noise: Any, layout: Any, options: Any, batch: Any, steps: Any
) -> Any:
    """One update (Algorithm 1); a loss that is not finite changes nothing.

    `noise` is (ξ, ξ′, ξ″); `batch` is x and y (`Observed`) and the actions, rewards, discounts and
    importance weights [B]; `steps` is the number of this update, from 1.

    Returns:
        The mean loss, and target − Q(x, a) [B].
    """
    x, y, columns = batch
    theta, split, (xi, xi_target, xi_select) = trained.theta, layout.value_layers, noise
    features = _features(theta_minus, layout, y, options.scale)
    q_y = _q_of_batch(theta_minus, xi_target, layout, features)  # Q(y, ·, ξ′; ζ⁻)
    selector = q_y
    if options.double_q:
        features = _features(theta, layout, y, options.scale)
        selector = _q_of_batch(theta, xi_select, layout, features)  # Q(y, ·, ξ″; ζ)
    features = _features(theta, layout, x, options.scale)
    advantage = _stream(theta, xi, layout.layers[split:], features)
    value, q_x = advantage, advantage[0][-1]
    if split:
        value = _stream(theta, xi, layout.layers[:split], features)
        q_x = _duelling(value[0][-1], advantage[0][-1])  # Q(x, ·, ξ; ζ)
    loss, error, d_q = _loss(q_x, q_y, selector, columns, options.threshold)
    if np.isfinite(loss):
        _backward(trained.gradient, xi, layout, options, x.images, (value, advantage), d_q)
        _step(trained, steps, options)
    return loss, error


# --- acting --------------------------------------------------------------------------------------


@compiled
def q_values(theta: Any, epsilon: Any, layout: Any, observed: Any, scale: Any) -> Any:
    """Q [N, A] for acting: each row has its own noise sample ε [N, …]."""
    layers, split = layout.layers, layout.value_layers
    features = _features(theta, layout, observed, scale)
    found = np.empty((len(epsilon), layers[-1, Q]), np.float32)
    for row in range(len(epsilon)):
        found[row] = _row(theta, epsilon[row], layers[split:], features[row])
        if split:  # Eq. 3
            value = _row(theta, epsilon[row], layers[:split], features[row])
            found[row] += value[0] - np.float32(found[row].mean())
    return found


@compiled
def _row(theta: Any, epsilon: Any, layers: Any, x: Any) -> Any:
    """A stack of layers for one row; no weights are built, μ and σ are read once."""
    for number in range(len(layers)):
        layer = layers[number]
        p, q, noise = layer[P], layer[Q], epsilon[layer[EPSILON] :]
        mu, y = _matrix(theta, layer, WEIGHT_MU), _bias(theta, layer, BIAS_MU).copy()
        for o in range(q):
            mean, deviation, out = _ZERO, _ZERO, _ZERO
            if layer[WEIGHT_SIGMA] < 0:
                for i in range(p):
                    mean += mu[o, i] * x[i]
            elif layer[INDEPENDENT]:
                sigma, own = _matrix(theta, layer, WEIGHT_SIGMA)[o], noise[o * p : o * p + p]
                for i in range(p):
                    mean += (mu[o, i] + sigma[i] * own[i]) * x[i]
                y[o] += theta[layer[BIAS_SIGMA] + o] * noise[q * p + o]
            else:
                sigma, out = _matrix(theta, layer, WEIGHT_SIGMA)[o], noise[p + o]
                for i in range(p):
                    mean += mu[o, i] * x[i]
                    deviation += sigma[i] * (noise[i] * x[i])
                deviation += theta[layer[BIAS_SIGMA] + o]
            y[o] += mean + out * deviation  # Eqs. 9 to 11
        x = np.maximum(y, _ZERO) if number < len(layers) - 1 else y
    return x
