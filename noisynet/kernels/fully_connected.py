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
def four_outputs(x: Any, w: Any, y: Any) -> None:
    """y[:, i] = x w_i for x [B, p], weights w of four rows [p] and y [B, 4]; 2 rows at a time."""
    w0, w1, w2, w3 = w
    for b in range(0, len(x), 2):
        b1 = min(b + 1, len(x) - 1)
        x0, x1 = x[b], x[b1]
        y00 = y01 = y02 = y03 = y10 = y11 = y12 = y13 = _ZERO
        for i in range(len(w0)):
            y00 += x0[i] * w0[i]
            y01 += x0[i] * w1[i]
            y02 += x0[i] * w2[i]
            y03 += x0[i] * w3[i]
            y10 += x1[i] * w0[i]
            y11 += x1[i] * w1[i]
            y12 += x1[i] * w2[i]
            y13 += x1[i] * w3[i]
        y[b, 0], y[b, 1], y[b, 2], y[b, 3] = y00, y01, y02, y03
        y[b1, 0], y[b1, 1], y[b1, 2], y[b1, 3] = y10, y11, y12, y13


@compiled
def product(a: Any, c: Any, y: Any) -> None:
    """y[m, n] = Σ_k a[k, m] c[k, n]; 4 rows of c at a time, without those whose a is 0."""
    (depth, rows), columns = a.shape, c.shape[1]
    used = np.empty(depth, np.int64)  # half of a gradient behind a ReLU is 0
    for m in range(rows):
        count = 0
        for k in range(depth):
            used[count] = k
            count += a[k, m] != 0
        y0 = y[m]
        y0[:] = 0
        for j in range(0, count - count % 4, 4):
            k0, k1, k2, k3 = used[j], used[j + 1], used[j + 2], used[j + 3]
            a0, a1, a2, a3 = a[k0, m], a[k1, m], a[k2, m], a[k3, m]
            c0, c1, c2, c3 = c[k0], c[k1], c[k2], c[k3]
            for n in range(columns):
                y0[n] += a0 * c0[n] + a1 * c1[n] + a2 * c2[n] + a3 * c3[n]
        for j in range(count - count % 4, count):
            a0, c0 = a[used[j], m], c[used[j]]
            for n in range(columns):
                y0[n] += a0 * c0[n]


@compiled
def noise_of(epsilon: Any, layer: Any, o: Any) -> Any:
    """ε of the weights of output o, as a factor and a row [p] that it multiplies; of its bias."""
    start, p = layer.epsilon, layer.p
    if layer.independent:
        return np.float32(1), row_of(epsilon, start, o, p), epsilon[start + layer.q * p + o]
    output = epsilon[start + p + o]
    return output, row_of(epsilon, start, 0, p), output  # Eqs. 10 and 11


@compiled
def row_of(vector: Any, start: Any, o: Any, p: Any) -> Any:
    """Row o of the matrix with p columns that starts at an offset of a vector."""
    return vector[start + o * p : start + o * p + p]


@compiled
def _weights_of(theta: Any, epsilon: Any, layer: Any, o: Any, into: Any) -> Any:
    """Write the weights μ + σ⊙ε of output o [p] (Eq. 9); return its bias."""
    p, (factor, noise, noise_b) = layer.p, noise_of(epsilon, layer, o)
    mu, sigma = row_of(theta, layer.weight_mu, o, p), row_of(theta, layer.weight_sigma, o, p)
    for i in range(p):
        into[i] = mu[i] + sigma[i] * (factor * noise[i])
    return theta[layer.bias_mu + o] + theta[layer.bias_sigma + o] * noise_b


@compiled
def dense(theta: Any, epsilon: Any, layer: Any, x: Any, relu: Any, weights: Any) -> Any:
    """Wx + b [B, q] for x [B, p], and its ReLU where asked.

    `weights` are μ [q, p], or memory for noisy rows, which overwrite each other in [4, p].
    """
    y, lowest = np.empty((len(x), layer.q), np.float32), _ZERO if relu else _LOWEST
    block, biases = np.empty((len(x), 4), np.float32), np.empty(4, np.float32)
    for first in range(0, layer.q, 4):
        last = min(first + 4, layer.q) - 1
        for o in range(first, last + 1):
            biases[o - first] = theta[layer.bias_mu + o]
            if layer.noisy:
                biases[o - first] = _weights_of(theta, epsilon, layer, o, weights[o % len(weights)])
        o1, o2, size = min(first + 1, last), min(first + 2, last), len(weights)
        w = weights[first % size], weights[o1 % size], weights[o2 % size], weights[last % size]
        four_outputs(x, w, block)
        for b in range(len(x)):
            for o in range(first, last + 1):
                y[b, o] = max(block[b, o - first] + biases[o - first], lowest)
    return y


@compiled
def stack(theta: Any, epsilon: Any, layers: Any, x: Any, keep: Any) -> Any:
    """What each layer took in and, at last, what came out; with `keep`, their weights; ε."""
    activations, weights = [x], [np.empty((0, 0), np.float32)]
    for number in range(len(layers)):
        layer = layers[number]
        p, q, start = layer.p, layer.q, layer.weight_mu
        if layer.noisy:
            weights.append(np.empty((q if keep else 4, p), np.float32))
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
            factor, noise, noise_b = noise_of(epsilon, layer, o)
            for i in range(p):
                d_sigma[i] = d_mu[o, i] * (factor * noise[i])  # Eq. 12
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
