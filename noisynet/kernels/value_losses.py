"""Losses of value networks with their gradients: of Q-values, and of distributions (C51, Rainbow).

They are those of `noisynet/losses.py`. Outputs are [B, A·N]: N logits for each action, or one
Q-value if there are no atoms z [N]. Columns: actions, rewards, discounts, importance weights [B].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisynet.kernels.compiled import compiled

_ZERO, _ONE = np.float32(0), np.float32(1)


@compiled
def expected_values(outputs: Any, atoms: Any) -> Any:
    """Q [B, A]: the outputs, or the means Σ_i p_i z_i of their distributions."""
    count = len(atoms)
    if count == 0:
        return outputs
    q = np.empty((len(outputs), outputs.shape[1] // count), np.float32)
    p = np.empty(count, np.float32)
    for b in range(q.shape[0]):
        for a in range(q.shape[1]):
            softmax(outputs[b, a * count : (a + 1) * count], p)
            q[b, a] = 0
            for i in range(count):
                q[b, a] += p[i] * atoms[i]
    return q


@compiled
def softmax(logits: Any, p: Any) -> Any:
    """Write the probabilities p [N] of logits [N]; return log Σ_i exp(logit_i)."""
    largest, total = logits[0], _ZERO
    for i in range(1, len(p)):
        largest = max(largest, logits[i])
    for i in range(len(p)):
        p[i] = np.exp(logits[i] - largest)
        total += p[i]
    for i in range(len(p)):
        p[i] /= total
    return largest + np.log(total)


@compiled
def greedy(q: Any) -> Any:
    """argmax_a Q [B]; NaN wins, so that it is noticed."""
    best = np.zeros(len(q), np.int64)
    for b in range(len(q)):
        for a in range(1, q.shape[1]):
            if q[b, a] > q[b, best[b]] or np.isnan(q[b, a]):
                best[b] = a
    return best


@compiled
def q_loss(q_x: Any, q_y: Any, best: Any, columns: Any, threshold: Any) -> Any:
    """The mean Huber loss, target − Q(x, a) [B], and the gradient of the loss at q_x [B, A]."""
    action, reward, discount, weight = columns
    batch, total = len(q_x), _ZERO
    error, d_q = np.empty(batch, np.float32), np.zeros_like(q_x)
    for b in range(batch):
        target = reward[b] + discount[b] * q_y[b, best[b]]  # Eqs. 14; 15 and 16
        error[b] = target - q_x[b, action[b]]
        size = abs(error[b])
        quadratic = size if size < threshold or size != size else threshold
        total += weight[b] * quadratic * (size - np.float32(0.5) * quadratic)
        slope = max(-threshold, min(threshold, error[b]))
        d_q[b, action[b]] = -slope * weight[b] / np.float32(batch)  # the loss is of target − Q
    return total / np.float32(batch), error, d_q


@compiled
def categorical_loss(x: Any, y: Any, best: Any, columns: Any, atoms: Any) -> Any:
    """The mean cross-entropy, the KL divergence [B], and the gradient at the logits x [B, A·N]."""
    action, reward, discount, weight = columns
    batch, count, total = len(x), len(atoms), _ZERO
    divergence, d_x = np.empty(batch, np.float32), np.zeros_like(x)
    p, target = np.empty(count, np.float32), np.empty(count, np.float32)
    for b in range(batch):
        softmax(y[b, best[b] * count : (best[b] + 1) * count], p)  # of Z(y, b*)
        _project(reward[b], discount[b], p, atoms, target)
        chosen = slice(action[b] * count, (action[b] + 1) * count)
        logits, d_logits, cross_entropy, entropy = x[b, chosen], d_x[b, chosen], _ZERO, _ZERO
        log_total = softmax(logits, p)  # of Z(x, a)
        for i in range(count):
            cross_entropy -= target[i] * (logits[i] - log_total)  # −Σ_i m_i log p_i
            entropy -= target[i] * np.log(target[i]) if target[i] != 0 else _ZERO
            d_logits[i] = (p[i] - target[i]) * weight[b] / np.float32(batch)
        total += weight[b] * cross_entropy
        kl = cross_entropy - entropy
        divergence[b] = _ZERO if kl < 0 else kl  # below 0 by rounding only
    return total / np.float32(batch), divergence, d_x


@compiled
def _project(reward: Any, discount: Any, p: Any, atoms: Any, target: Any) -> None:
    """Write m = Φ T Z [N]: r + γZ projected onto the atoms (Bellemare et al. 2017, Eq. 7)."""
    last, width = len(atoms) - 1, atoms[1] - atoms[0]
    target[:] = 0
    for j in range(len(atoms)):
        shifted = reward + discount * atoms[j]  # T z_j
        shifted = atoms[0] if shifted < atoms[0] else shifted  # NaN stays NaN
        shifted = atoms[last] if shifted > atoms[last] else shifted
        position = (shifted - atoms[0]) / width
        lower = min(int(position), last - 1) if position > 0 else 0
        for i in range(lower, lower + 2):  # its two neighbours share p_j
            near = _ONE - abs(shifted - atoms[i]) / width
            target[i] += p[j] * (_ZERO if near < 0 else near)
