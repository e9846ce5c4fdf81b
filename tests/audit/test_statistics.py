from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from noisynet.audit import NoiseSample
from noisynet.audit.statistics import (
    SIGNIFICANT_Z,
    DeclaredNoise,
    are_signs,
    compare_moments,
    correlate,
    count_repeated_runs,
    noise_structure,
)
from noisynet.layers import Distribution, Noise, NoiseFunction, scale_noise
from noisynet.layers.linear import draw_noise

OUTPUTS, INPUTS, COUNT = 8, 4, 400


def factors(seed: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    shapes = (COUNT, OUTPUTS), (COUNT, INPUTS)
    outputs, inputs = (scale_noise(torch.randn(shape, generator=stream)) for shape in shapes)
    return outputs, inputs


def factorised(outputs: Tensor, inputs: Tensor, bias: bool = True) -> list[NoiseSample]:
    return [
        NoiseSample(q.outer(p), q if bias else None, True)
        for q, p in zip(outputs, inputs, strict=True)
    ]


def independent(seed: int) -> list[NoiseSample]:
    stream = torch.Generator().manual_seed(seed)
    weights = torch.randn(COUNT, OUTPUTS, INPUTS, generator=stream)
    biases = torch.randn(COUNT, OUTPUTS, generator=stream)
    return [NoiseSample(w, b, True) for w, b in zip(weights, biases, strict=True)]


def test_equal_samples_have_correlation_1() -> None:
    r, z = correlate(independent(0), independent(0))
    assert r == pytest.approx(1)
    assert z == pytest.approx(math.sqrt(COUNT * OUTPUTS))


@pytest.mark.parametrize("seed", range(5))
def test_independent_samples_are_not_significantly_correlated(seed: int) -> None:
    first, second = factorised(*factors(2 * seed)), factorised(*factors(2 * seed + 1))
    assert correlate(first, second)[1] < SIGNIFICANT_Z
    assert correlate(independent(2 * seed), independent(2 * seed + 1))[1] < SIGNIFICANT_Z


@pytest.mark.parametrize("bias", [True, False])
def test_a_shared_input_factor_is_found_by_magnitudes(bias: bool) -> None:
    (first, inputs), (second, _) = factors(0), factors(1)
    pair = factorised(first, inputs, bias), factorised(second, inputs, bias)
    assert correlate(*pair)[1] > SIGNIFICANT_Z


def test_series_and_layers_of_different_sizes_are_compared() -> None:
    long = independent(0)
    short = [NoiseSample(x.weight[:3], x.bias[:3], True) for x in long[:50] if x.bias is not None]
    r, z = correlate(long, short)
    assert r == pytest.approx(1)
    assert z == pytest.approx(math.sqrt(50 * 3))


def test_numbers_of_a_shared_stream_are_found_at_any_offset_and_scale() -> None:
    noise = torch.randn(COUNT, 2 * OUTPUTS)
    first = [NoiseSample(row[:OUTPUTS, None], None, True) for row in noise]
    second = [NoiseSample(-2 * row[3 : 3 + OUTPUTS, None], None, True) for row in noise]
    assert count_repeated_runs(first, second) == COUNT * (OUTPUTS - 3 - 3)
    assert count_repeated_runs(first, independent(1)) == 0
    narrow = [NoiseSample(row[:3, None], None, True) for row in noise]
    assert count_repeated_runs(narrow, narrow) == 0  # too few outputs for a run of four


@pytest.mark.parametrize("bias", [True, False])
def test_moments_of_section_3_agree_and_others_do_not(bias: bool) -> None:
    outputs, inputs = factors(0)
    expected = math.sqrt(2 / math.pi) if bias else 2 / math.pi
    text, right = compare_moments(factorised(outputs, inputs, bias), "factorised")
    assert right
    assert f"(expected {expected:.2f})" in text
    assert compare_moments(independent(0), "independent")[1]
    assert not compare_moments(factorised(2 * outputs, inputs, bias), "factorised")[1]
    assert not compare_moments(factorised(outputs.abs(), inputs.abs(), bias), "factorised")[1]
    assert not compare_moments(factorised(outputs, inputs, bias), "independent")[1]


OPTIONS: list[tuple[Noise, Distribution, NoiseFunction]] = [
    *(("factorised", d, f) for d in get_args(Distribution) for f in get_args(NoiseFunction)),
    *(("independent", d, "signed_sqrt") for d in get_args(Distribution)),
]


def drawn(
    kind: Noise,
    distribution: Distribution,
    f: NoiseFunction,
    *,
    bias: bool,
    seed: int = 0,
    count: int = COUNT,
) -> list[NoiseSample]:
    """Samples of a layer, from its definition."""
    stream, like = torch.Generator().manual_seed(seed), torch.empty(0)
    if kind == "independent":
        numbers = draw_noise(distribution, like, OUTPUTS * (INPUTS + 1), stream, count)
        weights = numbers[:, OUTPUTS:].unflatten(1, (OUTPUTS, INPUTS))
        biases = numbers[:, :OUTPUTS]
        return [
            NoiseSample(w, b if bias else None, True) for w, b in zip(weights, biases, strict=True)
        ]
    numbers = draw_noise(distribution, like, OUTPUTS + INPUTS, stream, count)
    shaped = scale_noise(numbers) if f == "signed_sqrt" else numbers
    return factorised(shaped[:, :OUTPUTS], shaped[:, OUTPUTS:], bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("drawn_from", OPTIONS, ids=str)
def test_each_distribution_agrees_with_its_own_moments_alone(
    drawn_from: tuple[Noise, Distribution, NoiseFunction], bias: bool
) -> None:
    """Signs are their own square roots, so for them f makes no difference."""
    kind, distribution, _ = drawn_from
    samples = drawn(*drawn_from, bias=bias, count=8 * COUNT)
    for other in (option for option in OPTIONS if option[0] == kind):
        right = compare_moments(samples, kind, DeclaredNoise(*other))[1]
        signs = distribution == other[1] == "rademacher"
        assert right == (other == drawn_from or signs), other


@pytest.mark.parametrize("distribution", get_args(Distribution))
def test_independent_samples_of_any_distribution_are_not_related(
    distribution: Distribution,
) -> None:
    for kind in get_args(Noise):
        first, second = (
            drawn(kind, distribution, "signed_sqrt", bias=True, seed=seed) for seed in (1, 2)
        )
        assert correlate(first, second)[1] < SIGNIFICANT_Z
        assert count_repeated_runs(first, second) == 0
        assert correlate(first, first)[1] > SIGNIFICANT_Z


def test_a_shared_input_factor_of_signs_is_found() -> None:
    """Neither values nor magnitudes show it, but products do, in which the outputs cancel."""
    first = drawn("factorised", "rademacher", "identity", bias=True, seed=1)
    other = drawn("factorised", "rademacher", "identity", bias=True, seed=2)
    assert first[0].bias is not None
    shared = []
    for mine, theirs in zip(first, other, strict=True):
        assert mine.bias is not None
        assert theirs.bias is not None
        inputs = mine.weight[0] * mine.bias[0]
        shared.append(NoiseSample(theirs.bias.outer(inputs), theirs.bias, True))
    assert correlate(first, shared)[1] > SIGNIFICANT_Z
    assert correlate(first, other)[1] < SIGNIFICANT_Z


def test_signs_are_told_from_continuous_noise() -> None:
    assert are_signs(drawn("factorised", "rademacher", "signed_sqrt", bias=True))
    assert are_signs(drawn("independent", "rademacher", "signed_sqrt", bias=False))
    for distribution in ("gaussian", "uniform"):
        assert not are_signs(drawn("factorised", distribution, "identity", bias=True))


def test_without_a_known_kind_only_the_mean_is_compared() -> None:
    outputs, inputs = factors(0)
    assert compare_moments(factorised(3 * outputs, inputs), "unclear")[1]
    assert not compare_moments(factorised(outputs + 1, inputs), "unclear")[1]


def test_outer_products_are_factorised_and_others_are_not() -> None:
    outputs, inputs = factors(0)
    assert noise_structure(factorised(outputs, inputs)) == "factorised"
    assert noise_structure(factorised(outputs, inputs, bias=False)) == "factorised"
    assert noise_structure(independent(0)) == "independent"
    other_bias = [
        NoiseSample(x.weight, y, True)
        for x, y in zip(factorised(outputs, inputs), factors(1)[0], strict=True)
    ]
    assert noise_structure(other_bias) == "independent"
    assert noise_structure(factorised(outputs[:, :1], inputs)) == "unclear"
    assert noise_structure(factorised(outputs, inputs[:, :1], bias=False)) == "unclear"
