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

from noisynet.agents.fused import LAYER, Options, Trained
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


P, Q = 6, 5
SIZES = {"convolution": 4, "weight_mu": P * Q, "weight_sigma": P * Q, "bias_mu": Q, "bias_sigma": Q}


@pytest.mark.parametrize("longest", [np.inf, 1.0], ids=["", "clipped"])
@pytest.mark.parametrize("noise", ["factorised", "independent", "frozen", "none"])
@pytest.mark.parametrize("kind", ["adam", "centred-rmsprop"])
def test_100_steps_equal_the_optimisers_of_pytorch(kind: str, noise: str, longest: float) -> None:
    """A convolution's parameters and a layer: dσ = dμ⊙ε, which only the norm and the step know."""
    theta = draw(sum(SIZES.values()))
    offsets = dict(zip(SIZES, np.cumsum([0, *SIZES.values()]).tolist(), strict=False))
    learnt = noise in ("factorised", "independent")
    kinds = noise != "none", noise == "independent", learnt
    record = [P, Q, *(offsets[name] for name in list(SIZES)[1:]), 0, *kinds]
    layers = np.array([tuple(record)], LAYER)
    parameters = {
        name: nn.Parameter(torch.from_numpy(theta[start : start + SIZES[name]].copy()))
        for name, start in offsets.items()
        if learnt or "sigma" not in name
    }
    optimiser: torch.optim.Optimizer
    if kind == "adam":
        optimiser = torch.optim.Adam(parameters.values(), lr=1e-3, eps=1e-5)
    else:
        optimiser = CentredRMSProp(parameters.values(), 1e-3, 0.95, 1e-5)
    trained = Trained(theta, *(np.zeros_like(theta) for _ in range(3)))
    settings = options(adam=kind == "adam", max_gradient_norm=longest)
    for step in range(100):
        epsilon = draw(P * Q + Q, seed=1000 + step)
        if noise == "factorised":
            of_weights, of_bias = np.outer(epsilon[P : P + Q], epsilon[:P]), epsilon[P : P + Q]
        else:
            of_weights, of_bias = epsilon[: P * Q], epsilon[P * Q :]
        gradient = draw(len(theta), seed=step)
        for name, start in offsets.items():
            d = torch.from_numpy(gradient[start : start + SIZES[name]].copy())
            if "sigma" not in name:
                trained.gradient[start : start + SIZES[name]] = d
                parameters[name].grad = d
        if learnt:
            for of, factor in (("weight", of_weights), ("bias", of_bias)):
                d_mu = parameters[f"{of}_mu"].grad
                assert d_mu is not None
                parameters[f"{of}_sigma"].grad = d_mu * torch.from_numpy(factor.ravel().copy())
        small_network._step(trained, epsilon, layers, float(step + 1), settings)
        if longest < np.inf:
            nn.utils.clip_grad_norm_(parameters.values(), longest)
        optimiser.step()
    for name, start in offsets.items():
        found, initial = (v[start : start + SIZES[name]] for v in (theta, draw(len(theta))))
        moved = np.abs(found - initial).max()
        if name not in parameters:
            assert moved == 0
            continue
        assert moved > 5e-3
        expected = parameters[name].detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-4 * moved)


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
