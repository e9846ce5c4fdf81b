"""Which networks the compiled update of small networks takes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noisynet.agents.fused import is_small
from noisynet.networks import NetworkShape, ValueNetwork

SMALL = NetworkShape(
    convolutions=(),
    hidden=(16,),
    dueling=False,
    noise="factorised",
    sigma0=None,
    learn_sigma=True,
    trunk_gradient_scale=1.0,
    scale=1.0,
)


def build(**changes: Any) -> ValueNetwork:
    shape = dataclasses.replace(SMALL, **changes)
    return ValueNetwork(shape, (1, 4), 2, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("noise", [None, "factorised", "independent"])
@pytest.mark.parametrize("dueling", [False, True])
def test_fully_connected_networks_are_small(noise: str | None, dueling: bool) -> None:
    assert is_small(build(noise=noise, dueling=dueling), "float32")


@pytest.mark.parametrize(
    "changes", [{"distribution": "uniform"}, {"distribution": "rademacher"}, {"f": "identity"}]
)
def test_other_noise_than_the_papers_is_left_to_pytorch(changes: dict[str, str]) -> None:
    """The kernel draws normals and shapes them by the signed root."""
    assert not is_small(build(**changes), "float32")


def test_large_layers_are_left_to_pytorch() -> None:
    assert not is_small(build(hidden=(1 << 17,)), "float32")
