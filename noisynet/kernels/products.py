"""Matrix products of small layers, blocked so that a compiler keeps the blocks in registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisynet.kernels.compiled import compiled

_ZERO = np.float32(0)


@compiled
def dense(x: Any, weight: Any, bias: Any, relu: Any) -> Any:
    """Wx + b [B, q] for x [B, p], and its ReLU where asked; 4 rows and 2 outputs at a time."""
    batch, p = x.shape
    q = len(weight)
    y = np.empty((batch, q), np.float32)
    blocked_batch, blocked_q = batch - batch % 4, q - q % 2
    for o in range(0, blocked_q, 2):
        w0, w1 = weight[o], weight[o + 1]
        for b in range(0, blocked_batch, 4):
            x0, x1, x2, x3 = x[b], x[b + 1], x[b + 2], x[b + 3]
            y00 = y01 = y10 = y11 = y20 = y21 = y30 = y31 = _ZERO
            for i in range(p):
                y00 += x0[i] * w0[i]
                y01 += x0[i] * w1[i]
                y10 += x1[i] * w0[i]
                y11 += x1[i] * w1[i]
                y20 += x2[i] * w0[i]
                y21 += x2[i] * w1[i]
                y30 += x3[i] * w0[i]
                y31 += x3[i] * w1[i]
            y[b, o], y[b + 1, o], y[b + 2, o], y[b + 3, o] = y00, y10, y20, y30
            y[b, o + 1], y[b + 1, o + 1], y[b + 2, o + 1], y[b + 3, o + 1] = y01, y11, y21, y31
    for b in range(batch):
        for o in range(blocked_q if b < blocked_batch else 0, q):  # outside the blocks
            total = _ZERO
            for i in range(p):
                total += x[b, i] * weight[o, i]
            y[b, o] = total
        for o in range(q):
            y[b, o] += bias[o]
            if relu:
                y[b, o] = max(y[b, o], _ZERO)
    return y


@compiled
def product(a: Any, c: Any, y: Any) -> None:
    """y[m, n] = Σ_k a[k, m] c[k, n]; 2 rows of y and 4 of c at a time."""
    depth, rows = a.shape
    columns = c.shape[1]
    blocked_depth, blocked_rows = depth - depth % 4, rows - rows % 2
    for m in range(0, blocked_rows, 2):
        y0, y1 = y[m], y[m + 1]
        y0[:] = 0
        y1[:] = 0
        for k in range(0, blocked_depth, 4):
            c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
            a00, a10, a20, a30 = a[k, m], a[k + 1, m], a[k + 2, m], a[k + 3, m]
            a01, a11, a21, a31 = a[k, m + 1], a[k + 1, m + 1], a[k + 2, m + 1], a[k + 3, m + 1]
            for n in range(columns):
                y0[n] += a00 * c0[n] + a10 * c1[n] + a20 * c2[n] + a30 * c3[n]
                y1[n] += a01 * c0[n] + a11 * c1[n] + a21 * c2[n] + a31 * c3[n]
    for m in range(rows):
        if m >= blocked_rows:
            y[m] = 0
        for k in range(blocked_depth if m < blocked_rows else 0, depth):  # outside the blocks
            factor = a[k, m]
            for n in range(columns):
                y[m, n] += factor * c[k, n]
