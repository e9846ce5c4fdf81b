"""The compiled losses and their gradients against `noisynet/losses.py` and autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from noisynet import losses
from noisynet.kernels.value_losses import (
    _project,
    categorical_loss,
    expected_values,
    greedy,
    q_loss,
)

Floats = NDArray[np.float32]


def draw(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


# --- Q-values --------------------------------------------------------------------------------


def columns(size: int = 9, actions: int = 4) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    action = rng.integers(actions, size=size)
    reward, weight = draw(size, seed=2) * 3, rng.random(size, dtype=np.float32)
    discount = np.where(np.arange(size) % 3 == 0, 0, 0.99).astype(np.float32)
    return action, reward, discount, weight


@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_loss_error_and_gradient_equal_autograds(loss: str, double_q: bool) -> None:
    q_x, q_y, selector = draw(3, 9, 4, seed=3)
    action, reward, discount, weight = columns()
    tensors = [torch.from_numpy(column) for column in (action, reward, discount, weight)]
    q = torch.from_numpy(q_x.copy()).requires_grad_()
    if double_q:
        target = losses.double_q_target(
            tensors[1], tensors[2], torch.from_numpy(q_y), torch.from_numpy(selector)
        )
    else:
        target = losses.q_learning_target(tensors[1], tensors[2], torch.from_numpy(q_y))
    error = losses.td_error(q, tensors[0], target)
    elementwise = {"huber": losses.huber, "squared": losses.squared}[loss]
    expected = losses.mean_over_batch(elementwise(error), tensors[3])
    expected.backward()
    threshold = np.float32(1 if loss == "huber" else np.inf)
    best = greedy(selector if double_q else q_y)
    found = q_loss(q_x, q_y, best, (action, reward, discount, weight), threshold)
    assert q.grad is not None
    assert found[0] == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(found[1], error.detach().numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[2], q.grad.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("where", ["q_x", "q_y", "selector", "reward"])
@pytest.mark.parametrize("threshold", [1, np.inf], ids=["huber", "squared"])
def test_a_nan_anywhere_makes_the_loss_nan(where: str, threshold: float) -> None:
    values = dict(zip(("q_x", "q_y", "selector"), draw(3, 9, 4, seed=3), strict=True))
    action, reward, discount, weight = columns()
    if where == "selector":  # NaN is selected, so that q_y must have it, too
        values["q_y"][1] = np.nan
    if where == "reward":
        reward[1] = np.nan
    else:
        values[where][1] = np.nan
    best = greedy(values["selector"])
    found = q_loss(
        values["q_x"],
        values["q_y"],
        best,
        (action, reward, discount, weight),
        np.float32(threshold),
    )
    assert np.isnan(found[0])


# --- distributions (C51, Rainbow) ----------------------------------------------------------------

ATOMS = np.linspace(-10, 10, 51, dtype=np.float32)


def test_expected_values_are_the_means_of_the_distributions() -> None:
    logits = draw(9, 4 * 51) * 3
    expected = losses.categorical_mean(
        torch.from_numpy(logits).view(9, 4, 51), torch.from_numpy(ATOMS)
    )
    found = expected_values(logits, ATOMS)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


def test_q_values_are_their_own_expected_values() -> None:
    q = draw(9, 4)
    np.testing.assert_array_equal(expected_values(q, ATOMS[:0]), q)


@pytest.mark.parametrize("scale", [1, 30], ids=["inside the range", "beyond the range"])
@pytest.mark.parametrize("count", [2, 5, 51])
def test_projections_equal_the_plain_definition(count: int, scale: float) -> None:
    atoms = np.linspace(-3, 4, count, dtype=np.float32)
    _, reward, discount, _ = columns(200)
    p = torch.from_numpy(draw(200, count)).softmax(dim=1)
    rewards = torch.from_numpy(reward * np.float32(scale))
    rewards[:2] = torch.tensor([-3.0, 4.0])  # terminal, on the first and the last atom
    discount[:2] = 0
    expected = losses.categorical_projection(
        rewards, torch.from_numpy(discount), p, torch.from_numpy(atoms)
    ).numpy()
    found = np.empty_like(expected)
    for b in range(len(found)):
        _project(np.float32(rewards[b]), discount[b], p[b].numpy(), atoms, found[b])
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=2e-5)


@pytest.mark.parametrize("size", [1, 20], ids=["smooth", "peaked"])
def test_categorical_loss_divergence_and_gradient_equal_autograds(size: float) -> None:
    x, y = draw(2, 9, 4 * 51, seed=3) * np.float32(size)
    best, (action, reward, discount, weight) = np.arange(9) % 4, columns()
    logits = torch.from_numpy(x.copy()).requires_grad_()
    chosen = logits.view(9, 4, 51)[torch.arange(9), torch.from_numpy(action)]
    p_y = torch.from_numpy(y).view(9, 4, 51)[torch.arange(9), torch.from_numpy(best)].softmax(1)
    r, gamma, w = (torch.from_numpy(column) for column in (reward, discount, weight))
    target = losses.categorical_projection(r, gamma, p_y, torch.from_numpy(ATOMS))
    expected = losses.mean_over_batch(losses.cross_entropy(target, chosen), w)
    expected.backward()
    assert logits.grad is not None
    found = categorical_loss(x, y, best, (action, reward, discount, weight), ATOMS)
    assert found[0] == pytest.approx(expected.item(), rel=1e-5)
    divergence = losses.kl_divergence(target, chosen.detach()).numpy()
    np.testing.assert_allclose(found[1], divergence, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[2], logits.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_the_divergence_of_equal_distributions_is_not_negative() -> None:
    """Terminal, on one atom: all logits but one are far below it."""
    x = np.full((1, 51), -200, np.float32)
    x[0, 25] = 0
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    _, divergence, d_x = categorical_loss(
        x, x, np.zeros(1, int), (zero.astype(int), zero, zero, one), ATOMS
    )
    assert divergence[0] == 0
    assert np.abs(d_x).max() < 1e-6


@pytest.mark.parametrize("where", ["x", "y", "reward"])
def test_a_nan_anywhere_makes_the_categorical_loss_nan(where: str) -> None:
    values = dict(zip("xy", draw(2, 9, 4 * 51, seed=3), strict=True))
    action, reward, discount, weight = columns()
    values["reward"] = reward
    values[where][1] = np.nan
    best = greedy(expected_values(values["y"], ATOMS))
    batch = action, reward, discount, weight
    assert np.isnan(categorical_loss(values["x"], values["y"], best, batch, ATOMS)[0])
