"""Stacks of fully connected layers, plain or noisy, forward and backward.

The weights of a noisy layer are built row by row inside the product, while a row is in the cache of
the processor. Loops are written out: numba compiles them in half the time of NumPy's expressions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisynet.kernels.compiled import compiled

_ZERO, _LOWEST = np.float32(0), np.float32(-np.inf)


@compiled
def two_outputs(x: Any, w0: Any, w1: Any, y0: Any, y1: Any) -> None:
    """y0, y1 = x w0, x w1 [B] for x [B, p] and weights [p]; 4 rows of x at a time."""
    blocked = len(x) - len(x) % 4
    for b in range(0, blocked, 4):
        x0, x1, x2, x3 = x[b], x[b + 1], x[b + 2], x[b + 3]
        y00 = y01 = y10 = y11 = y20 = y21 = y30 = y31 = _ZERO
        for i in range(len(w0)):
            y00 += x0[i] * w0[i]
            y01 += x0[i] * w1[i]
            y10 += x1[i] * w0[i]
            y11 += x1[i] * w1[i]
            y20 += x2[i] * w0[i]
            y21 += x2[i] * w1[i]
            y30 += x3[i] * w0[i]
            y31 += x3[i] * w1[i]
        y0[b], y0[b + 1], y0[b + 2], y0[b + 3] = y00, y10, y20, y30
        y1[b], y1[b + 1], y1[b + 2], y1[b + 3] = y01, y11, y21, y31
    for b in range(blocked, len(x)):  # outside the blocks
        y00 = y01 = _ZERO
        for i in range(len(w0)):
            y00 += x[b, i] * w0[i]
            y01 += x[b, i] * w1[i]
        y0[b], y1[b] = y00, y01


@compiled
def product(a: Any, c: Any, y: Any) -> None:
    """y[m, n] = Σ_k a[k, m] c[k, n]; 2 rows of y and 4 of c at a time."""
    (depth, rows), columns = a.shape, c.shape[1]
    unused = np.empty(columns, np.float32)
    for m in range(0, rows, 2):
        m1 = min(m + 1, rows - 1)
        y0, y1 = y[m], y[m1] if m1 > m else unused
        y0[:] = 0
        y1[:] = 0
        for k in range(0, depth - depth % 4, 4):
            c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
            a00, a10, a20, a30 = a[k, m], a[k + 1, m], a[k + 2, m], a[k + 3, m]
            a01, a11, a21, a31 = a[k, m1], a[k + 1, m1], a[k + 2, m1], a[k + 3, m1]
            for n in range(columns):
                y0[n] += a00 * c0[n] + a10 * c1[n] + a20 * c2[n] + a30 * c3[n]
                y1[n] += a01 * c0[n] + a11 * c1[n] + a21 * c2[n] + a31 * c3[n]
        for k in range(depth - depth % 4, depth):  # outside the blocks
            for n in range(columns):
                y0[n] += a[k, m] * c[k, n]
                y1[n] += a[k, m1] * c[k, n]


@compiled
def noise_of(epsilon: Any, layer: Any, o: Any, into: Any) -> Any:
    """Write ε of the weights of output o [p]; return that of its bias."""
    start, p = layer.epsilon, layer.p
    if layer.independent:
        for i in range(p):
            into[i] = epsilon[start + o * p + i]
        return epsilon[start + layer.q * p + o]
    inputs, output = row_of(epsilon, start, 0, p), epsilon[start + p + o]
    for i in range(p):
        into[i] = output * inputs[i]  # Eq. 10
    return output  # Eq. 11


@compiled
def row_of(vector: Any, start: Any, o: Any, p: Any) -> Any:
    """Row o of the matrix with p columns that starts at an offset of a vector."""
    return vector[start + o * p : start + o * p + p]


@compiled
def _weights_of(theta: Any, epsilon: Any, layer: Any, o: Any, into: Any) -> Any:
    """Write the weights μ + σ⊙ε of output o [p] (Eq. 9); return its bias."""
    p, noise_b = layer.p, noise_of(epsilon, layer, o, into)
    mu, sigma = row_of(theta, layer.weight_mu, o, p), row_of(theta, layer.weight_sigma, o, p)
    for i in range(p):
        into[i] = mu[i] + sigma[i] * into[i]
    return theta[layer.bias_mu + o] + theta[layer.bias_sigma + o] * noise_b


@compiled
def dense(theta: Any, epsilon: Any, layer: Any, x: Any, relu: Any, weights: Any) -> Any:
    """Wx + b [B, q] for x [B, p], and its ReLU where asked.

    `weights` are μ [q, p], or memory for noisy rows, which overwrite each other in [2, p].
    """
    y, lowest = np.empty((len(x), layer.q), np.float32), _ZERO if relu else _LOWEST
    for o in range(0, layer.q, 2):
        o1 = min(o + 1, layer.q - 1)
        w0, w1 = weights[o % len(weights)], weights[o1 % len(weights)]
        b0, b1 = theta[layer.bias_mu + o], theta[layer.bias_mu + o1]
        if layer.noisy:
            b0 = _weights_of(theta, epsilon, layer, o, w0)
            b1 = _weights_of(theta, epsilon, layer, o1, w1)
        two_outputs(x, w0, w1, y[:, o], y[:, o1])
        for b in range(len(x)):
            y[b, o], y[b, o1] = max(y[b, o] + b0, lowest), max(y[b, o1] + b1, lowest)
    return y


@compiled
def stack(theta: Any, epsilon: Any, layers: Any, x: Any, keep: Any) -> Any:
    """What each layer took in and, at last, what came out; with `keep`, their weights; ε."""
    activations, weights = [x], [np.empty((0, 0), np.float32)]
    for number in range(len(layers)):
        layer = layers[number]
        p, q, start = layer.p, layer.q, layer.weight_mu
        if layer.noisy:
            weights.append(np.empty((q if keep else 2, p), np.float32))
        else:
            weights.append(theta[start : start + q * p].reshape(q, p))
        relu = number < len(layers) - 1
        activations.append(dense(theta, epsilon, layer, activations[-1], relu, weights[-1]))
    return activations, weights, epsilon


@compiled
def stack_backward(gradient: Any, layers: Any, passed: Any, d_y: Any, to_inputs: Any) -> Any:
    """Write the gradients of a stack's parameters; return that of its inputs where asked."""
    activations, weights, epsilon = passed
    for number in range(len(layers) - 1, -1, -1):
        layer, x = layers[number], activations[number]
        p, q, start, bias = layer.p, layer.q, layer.weight_mu, layer.bias_mu
        d_mu, d_bias = gradient[start : start + q * p].reshape(q, p), gradient[bias : bias + q]
        product(d_y, x, d_mu)
        d_bias[:] = 0
        for b in range(len(d_y)):
            for o in range(q):
                d_bias[o] += d_y[b, o]
        for o in range(q if layer.learn_sigma else 0):
            d_sigma = row_of(gradient, layer.weight_sigma, o, p)
            noise_b = noise_of(epsilon, layer, o, d_sigma)
            for i in range(p):
                d_sigma[i] *= d_mu[o, i]  # Eq. 12
            gradient[layer.bias_sigma + o] = d_bias[o] * noise_b  # Eq. 13
        if number == 0 and not to_inputs:
            break
        d_x = np.empty_like(x)
        product(d_y.T, weights[number + 1], d_x)
        if number > 0:  # the ReLU before this layer
            for b in range(len(x)):
                for i in range(p):
                    d_x[b, i] = d_x[b, i] if x[b, i] > 0 else _ZERO
        d_y = d_x
    return d_y
