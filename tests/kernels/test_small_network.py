"""The steps of the compiled update against their definitions in PyTorch.

The update as a whole is compared with the plain one in `tests/agents/test_fused.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet import losses
from noisynet.kernels import small_network
from noisynet.kernels.small_network import Options, Trained
from noisynet.layers import scale_noise
from noisynet.optimisers import CentredRMSProp

Floats = NDArray[np.float32]


def draw(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("shape", [(1,), (9,), (3, 17)], ids=str)
def test_scale_noise_equals_the_layers(shape: tuple[int, ...]) -> None:
    epsilon = draw(*shape)
    expected = scale_noise(torch.from_numpy(epsilon.copy())).numpy()
    small_network.scale_noise(epsilon)  # in place
    np.testing.assert_allclose(epsilon, expected, rtol=1e-6)


# --- the loss ------------------------------------------------------------------------------------


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
    found = small_network._loss(
        q_x, q_y, selector if double_q else q_y, (action, reward, discount, weight), threshold
    )
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
    found = small_network._loss(
        values["q_x"],
        values["q_y"],
        values["selector"],
        (action, reward, discount, weight),
        np.float32(threshold),
    )
    assert np.isnan(found[0])


# --- the optimiser step --------------------------------------------------------------------------


def options(**changes: Any) -> Options:
    fixed = Options(
        scale=np.float32(1),
        double_q=False,
        threshold=np.float32(1),
        trunk_gradient_scale=np.float32(1),
        max_gradient_norm=np.inf,
        adam=True,
        learning_rate=1e-3,
        decay=0.95,
        epsilon=1e-5,
    )
    return fixed._replace(**changes)


@pytest.mark.parametrize("longest", [np.inf, 1.0], ids=["", "clipped"])
@pytest.mark.parametrize("kind", ["adam", "centred-rmsprop"])
def test_100_steps_equal_the_optimisers_of_pytorch(kind: str, longest: float) -> None:
    theta = draw(50)
    parameter = nn.Parameter(torch.from_numpy(theta.copy()))
    optimiser: torch.optim.Optimizer
    if kind == "adam":
        optimiser = torch.optim.Adam([parameter], lr=1e-3, eps=1e-5)
    else:
        optimiser = CentredRMSProp([parameter], 1e-3, 0.95, 1e-5)
    trained = Trained(theta, np.zeros_like(theta), np.zeros_like(theta), np.zeros_like(theta))
    settings = options(adam=kind == "adam", max_gradient_norm=longest)
    for step in range(100):
        gradient = draw(50, seed=step)
        trained.gradient[:] = gradient
        small_network._step(trained, float(step + 1), settings)
        parameter.grad = torch.from_numpy(gradient)
        if longest < np.inf:
            nn.utils.clip_grad_norm_([parameter], longest)
        optimiser.step()
    moved = np.abs(theta - draw(50)).max()
    assert moved > 1e-2
    np.testing.assert_allclose(theta, parameter.detach().numpy(), rtol=0, atol=1e-4 * moved)


# --- Eq. 3 ---------------------------------------------------------------------------------------


def test_dueling_values_equal_equation_3() -> None:
    value, advantage = draw(5, 1), draw(5, 4, seed=1)
    expected: Tensor = torch.from_numpy(value + advantage - advantage.mean(1, keepdims=True))
    np.testing.assert_allclose(
        small_network._duelling(value, advantage), expected.numpy(), rtol=1e-6, atol=1e-6
    )
