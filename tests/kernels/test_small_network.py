"""The steps of the compiled update against their definitions in PyTorch.

The update as a whole is compared with the plain one in `tests/agents/test_fused.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from noisynet.agents.fused import Options, Trained
from noisynet.kernels import small_network
from noisynet.optimisers import CentredRMSProp

Floats = NDArray[np.float32]


def draw(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


# --- the optimiser step --------------------------------------------------------------------------


def options(**changes: Any) -> Options:
    fixed = Options(
        scale=np.float32(1),
        double_q=False,
        threshold=np.float32(1),
        trunk_gradient_scale=np.float32(1),
        max_gradient_norm=np.inf,
        norm_period_updates=100,
        adam=True,
        learning_rate=1e-3,
        decay=0.95,
        epsilon=1e-5,
    )
    return fixed._replace(**changes)


@pytest.mark.parametrize("longest", [np.inf, 1.0], ids=["", "clipped"])
@pytest.mark.parametrize("kind", ["adam", "centred-rmsprop"])
def test_100_steps_equal_the_optimisers_of_pytorch(kind: str, longest: float) -> None:
    """The gradient of the last parameters is 0, as that of a σ that is not learnt: they stay."""
    theta, still = draw(75), 15
    parameter = nn.Parameter(torch.from_numpy(theta.copy()))
    optimiser: torch.optim.Optimizer
    if kind == "adam":
        optimiser = torch.optim.Adam([parameter], lr=1e-3, eps=1e-5)
    else:
        optimiser = CentredRMSProp([parameter], 1e-3, 0.95, 1e-5)
    trained = Trained(theta, *(np.zeros_like(theta) for _ in range(3)))
    settings = options(adam=kind == "adam", max_gradient_norm=longest)
    for step in range(100):
        trained.gradient[:-still] = draw(len(theta) - still, seed=step)
        parameter.grad = torch.from_numpy(trained.gradient.copy())
        norm = small_network._step(trained, float(step + 1), settings)
        if longest < np.inf:
            expected_norm = nn.utils.clip_grad_norm_([parameter], longest).item()
            assert norm == pytest.approx(expected_norm, rel=1e-6)
        else:
            assert np.isnan(norm) == ((step + 1) % settings.norm_period_updates != 0)
        optimiser.step()
    initial, expected = draw(75), parameter.detach().numpy()
    np.testing.assert_array_equal(theta[-still:], initial[-still:])
    moved = np.abs(theta - initial)[:-still].max()
    assert moved > 5e-3
    np.testing.assert_allclose(theta, expected, rtol=0, atol=2e-4 * moved)


# --- Eq. 3 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("atoms", [1, 3])
def test_dueling_outputs_equal_equation_3_for_each_atom(atoms: int) -> None:
    value, advantage = draw(5, atoms), draw(5, 4 * atoms, seed=1)
    before = advantage.copy()
    by_action = advantage.reshape(5, 4, atoms)
    expected = value[:, None] + by_action - by_action.mean(1, keepdims=True)
    found = small_network.duelling(value, advantage)
    np.testing.assert_allclose(found, expected.reshape(5, -1), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(advantage, before)
