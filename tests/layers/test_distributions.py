"""Noise beyond the Gaussian: distributions of ε, and f of factorised noise."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from noisynet.layers import (
    Distribution,
    Noise,
    NoiseFunction,
    NoisyLinear,
    NoisyLSTMCell,
    held_noise,
    make_noisy,
    noisy_layers,
    resample_noise,
    scale_noise,
)
from noisynet.layers.linear import draw_noise

DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
OTHERS = DISTRIBUTIONS[1:]
OPTIONS: list[tuple[Noise, Distribution, NoiseFunction]] = [
    *((("factorised", d, f)) for d, f in itertools.product(DISTRIBUTIONS, get_args(NoiseFunction))),
    *(("independent", d, "signed_sqrt") for d in DISTRIBUTIONS),
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(distribution: Distribution, size: int = 200_000, seed: int = 0) -> Tensor:
    return draw_noise(
        distribution, torch.empty(0, dtype=torch.float64), size, generator(seed), None
    )


# --- the distributions ---------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_distribution_has_mean_0_and_variance_1(distribution: Distribution) -> None:
    epsilon = draw(distribution)
    assert epsilon.mean().item() == pytest.approx(0, abs=0.01)
    assert epsilon.var().item() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(
    ("distribution", "fourth"), [("gaussian", 3), ("uniform", 9 / 5), ("rademacher", 1)]
)
def test_fourth_moments_tell_the_distributions_apart(
    distribution: Distribution, fourth: float
) -> None:
    assert draw(distribution).pow(4).mean().item() == pytest.approx(fourth, rel=0.03)


def test_uniform_noise_fills_its_interval() -> None:
    epsilon = draw("uniform")
    assert epsilon.abs().max() <= math.sqrt(3)
    assert epsilon.max() > 0.999 * math.sqrt(3)
    assert epsilon.min() < -0.999 * math.sqrt(3)


def test_rademacher_noise_consists_of_signs() -> None:
    assert set(draw("rademacher", 1000).tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_noise_has_the_shape_and_the_dtype_of_the_layer(
    distribution: Distribution, dtype: torch.dtype
) -> None:
    like = torch.empty(0, dtype=dtype)
    for rows, shape in ((None, (5,)), (3, (3, 5))):
        epsilon = draw_noise(distribution, like, 5, generator(), rows)
        assert (epsilon.shape, epsilon.dtype) == (shape, dtype)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_noise_comes_from_the_generator_alone(distribution: Distribution) -> None:
    before = torch.get_rng_state()
    first, again, other = draw(distribution, 50), draw(distribution, 50), draw(distribution, 50, 1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


# --- layers --------------------------------------------------------------------------------------


def noise_of(layer: NoisyLinear) -> tuple[Tensor, Tensor]:
    """εw and εb, computed from the current weights."""
    assert layer.bias is not None
    assert layer.bias_mu is not None
    assert layer.bias_sigma is not None
    weight = (layer.weight - layer.weight_mu) / layer.weight_sigma
    return weight.detach(), ((layer.bias - layer.bias_mu) / layer.bias_sigma).detach()


@pytest.mark.parametrize(("noise", "distribution", "f"), OPTIONS)
def test_a_layer_holds_what_was_drawn_shaped_by_f(
    noise: Noise, distribution: Distribution, f: NoiseFunction
) -> None:
    layer = NoisyLinear(3, 2, noise=noise, distribution=distribution, f=f, dtype=torch.float64)
    layer.resample_noise(generator(4))
    epsilon = draw(distribution, 5 if noise == "factorised" else 8, seed=4)
    weight, bias = noise_of(layer)
    if noise == "factorised":
        shaped = scale_noise(epsilon) if f == "signed_sqrt" else epsilon
        torch.testing.assert_close(weight, shaped[3:].outer(shaped[:3]))
        torch.testing.assert_close(bias, shaped[3:])
    else:
        torch.testing.assert_close(weight, epsilon[:6].reshape(2, 3))
        torch.testing.assert_close(bias, epsilon[6:])


@pytest.mark.parametrize(
    ("distribution", "f", "variance"),
    [
        ("gaussian", "signed_sqrt", 2 / math.pi),
        ("gaussian", "identity", 1),
        ("uniform", "signed_sqrt", 3 / 4),
        ("uniform", "identity", 1),
        ("rademacher", "signed_sqrt", 1),
        ("rademacher", "identity", 1),
    ],
)
def test_the_variance_of_factorised_weights_depends_on_the_distribution_and_f(
    distribution: Distribution, f: NoiseFunction, variance: float
) -> None:
    layer, stream = NoisyLinear(6, 5, distribution=distribution, f=f), generator(1)
    samples = []
    for _ in range(4000):
        layer.resample_noise(stream)
        samples.append(noise_of(layer)[0])
    assert torch.stack(samples).square().mean().item() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize(("noise", "distribution", "f"), OPTIONS)
@pytest.mark.parametrize("rows", [None, 7])
def test_a_pass_uses_the_current_weights(
    noise: Noise, distribution: Distribution, f: NoiseFunction, rows: int | None
) -> None:
    layer = NoisyLinear(3, 2, noise=noise, distribution=distribution, f=f, dtype=torch.float64)
    layer.resample_noise(rows=rows)
    x = torch.randn(7, 3, dtype=torch.float64)
    product = torch.einsum("...qp,np->...nq", layer.weight, x)
    expected = product if rows is None else product.diagonal(dim1=0, dim2=1).t()
    assert layer.bias is not None
    torch.testing.assert_close(layer(x), expected + layer.bias)


@pytest.mark.parametrize("distribution", OTHERS)
def test_other_distributions_compile_into_one_graph(distribution: Distribution) -> None:
    layer = NoisyLinear(4, 3, distribution=distribution)

    def resample_and_forward(x: Tensor) -> Tensor:
        layer.resample_noise()
        y: Tensor = layer(x)
        return y

    compiled = torch.compile(resample_and_forward, backend="eager", fullgraph=True)
    x = torch.randn(8, 4)
    assert len({tuple(compiled(x).flatten().tolist()) for _ in range(20)}) > 1
    torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize("distribution", OTHERS)
def test_other_distributions_work_on_any_device_and_in_inference_mode(
    distribution: Distribution,
) -> None:
    assert NoisyLinear(4, 3, distribution=distribution, device="meta").weight.device.type == "meta"
    layer = NoisyLinear(4, 3, distribution=distribution)
    with torch.inference_mode():
        layer.resample_noise()
    layer(torch.randn(9, 4)).sum().backward()
    assert layer.weight_sigma.grad is not None


def test_a_copy_keeps_the_options() -> None:
    layer = NoisyLinear(4, 3, distribution="uniform", f="identity")
    copied = copy.deepcopy(layer)
    assert (copied.distribution, copied.f) == ("uniform", "identity")
    for each in (layer, copied):
        each.resample_noise(generator(3))
    assert torch.equal(layer.weight, copied.weight)


def test_options_are_printed_unless_they_are_the_papers() -> None:
    assert "distribution" not in repr(NoisyLinear(4, 3))
    assert repr(NoisyLinear(4, 3)).endswith("sigma0=0.5)")
    layer = NoisyLinear(4, 3, distribution="uniform", f="identity")
    assert repr(layer).endswith("sigma0=0.5, distribution='uniform', f='identity')")


# --- networks ------------------------------------------------------------------------------------


def test_layers_of_different_distributions_share_a_network() -> None:
    network = nn.Sequential(
        NoisyLinear(40, 30, distribution="rademacher"),
        NoisyLinear(30, 20),
        NoisyLinear(20, 10, distribution="uniform", f="identity"),
        NoisyLinear(10, 5),
    )
    for rows in (None, 4):
        resample_noise(network, generator(), rows)
        signs, first, uniform, second = (
            torch.cat([x.flatten() for x in layer.buffers()])
            for layer in noisy_layers(network).values()
        )
        assert set(signs.tolist()) == {-1.0, 1.0}
        assert 1 < uniform.abs().max() <= math.sqrt(3)
        assert len(set(uniform.tolist())) == len(uniform)
        assert not torch.equal(first[:15], second[:15])
        assert [layer.rows for layer in noisy_layers(network).values()] == [rows] * 4


def test_gaussian_layers_draw_the_same_numbers_beside_layers_of_other_distributions() -> None:
    """Each distribution is drawn at once, in the order in which it first occurs."""
    alone = nn.Sequential(NoisyLinear(4, 3), NoisyLinear(3, 2))
    beside = nn.Sequential(*copy.deepcopy(alone), NoisyLinear(2, 2, distribution="uniform"))
    resample_noise(alone, generator(5))
    resample_noise(beside, generator(5))
    for name, value in held_noise(alone).items():
        assert torch.equal(value, held_noise(beside)[name])


def test_gaussian_noise_is_drawn_as_one_vector_of_normals_for_all_layers() -> None:
    """Runs of earlier versions rely on this stream."""
    network = nn.Sequential(NoisyLinear(4, 3), NoisyLinear(3, 2, noise="independent"))
    resample_noise(network, generator(9))
    normals = torch.randn(7 + 8, generator=generator(9))
    held = torch.cat([value.flatten() for value in held_noise(network).values()])
    assert torch.equal(held, torch.cat([scale_noise(normals[:7]), normals[7:]]))


@pytest.mark.parametrize("cell", [False, True])
def test_cells_and_converted_networks_pass_the_options_on(cell: bool) -> None:
    options: dict[str, Any] = {"distribution": "rademacher", "f": "identity", "sigma0": 0.3}
    if cell:
        network: nn.Module = NoisyLSTMCell(3, 4, **options)
    else:
        plain = nn.ModuleList([nn.Linear(3, 4), nn.LSTMCell(4, 5)])
        network, _ = make_noisy(plain, **options)
    layers = noisy_layers(network).values()
    assert len(layers) == (2 if cell else 3)
    assert {(x.distribution, x.f, x.sigma0) for x in layers} == {("rademacher", "identity", 0.3)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distribution": "gausian"}, "'rademacher', got 'gausian'; did you mean 'gaussian'"),
        ({"f": "sqrt"}, "f expected 'signed_sqrt' or 'identity', got 'sqrt'; did you mean 'signed"),
        ({"noise": "independent", "f": "identity"}, "with independent noise, which f does not"),
    ],
)
@pytest.mark.parametrize(
    "make", [NoisyLinear, NoisyLSTMCell, lambda p, q, **o: make_noisy(nn.Linear(p, q), **o)]
)
def test_invalid_options_are_refused(make: Any, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(4, 3, **options)
