"""Statistics of noise samples: correlation, moments, structure and repeated numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from noisynet.audit.log import NoiseSample
from noisynet.layers import Distribution, Noise, NoiseFunction

SIGNIFICANT_Z: Final = 5.5
"""The number of standard errors from which a deviation is not attributed to chance."""

# Two independent runs of four normals come this close once in 10⁹ comparisons.
_SAME_RUN: Final = 1e-3
_MOST_COMPARED: Final = 400
# Noise is recovered from the outputs of a layer, with small errors. Below this standard deviation
# of their logarithms, magnitudes count as equal; above, they belong to a continuous distribution.
_EQUAL_MAGNITUDES: Final = 0.02
_RECOVERY_ERROR: Final = 0.01

# E|ε|, E ε² and E ε⁴ of each distribution.
_MOMENTS: Final[dict[str, tuple[float, float, float]]] = {
    "gaussian": (math.sqrt(2 / math.pi), 1.0, 3.0),
    "uniform": (math.sqrt(3) / 2, 1.0, 9 / 5),
    "rademacher": (1.0, 1.0, 1.0),
}
# E √|ε|, E |ε| and E ε², the same of f(ε) = sgn(ε)√|ε|.
_SHAPED_MOMENTS: Final[dict[str, tuple[float, float, float]]] = {
    "gaussian": (2**0.25 * math.gamma(3 / 4) / math.sqrt(math.pi), math.sqrt(2 / math.pi), 1.0),
    "uniform": (2 / 3 * 3**0.25, math.sqrt(3) / 2, 1.0),
    "rademacher": (1.0, 1.0, 1.0),
}


def correlate(first: Sequence[NoiseSample], second: Sequence[NoiseSample]) -> tuple[float, float]:
    """Correlate two series of noise samples.

    Values and magnitudes are both compared: two products that share one factor are uncorrelated
    in value, but not in magnitude.

    Returns:
        The correlation with the largest z-score, and that z-score.
    """
    found = []
    for entries in (_output_entries, _diagonal_entries, _first_entry, _first_product):
        pairs = zip(map(entries, first), map(entries, second), strict=False)
        cut = [(a[: len(b)], b[: len(a)]) for a, b in pairs]
        series = [torch.stack(samples) for samples in zip(*cut, strict=True)]  # [samples, entries]
        for transform in (torch.clone, _log_magnitude):
            a, b = (values - values.mean() for values in map(transform, series))
            norm = float(a.norm() * b.norm())
            if (
                transform is _log_magnitude
                and min(_deviation(a), _deviation(b)) < _EQUAL_MAGNITUDES
            ):
                continue  # signs: their magnitudes tell nothing
            r = float((a * b).sum()) / norm if norm > 0 else 1.0
            found.append((r, abs(r) * math.sqrt(a.numel())))
    return max(found, key=lambda result: result[1])


def _output_entries(sample: NoiseSample) -> Tensor:
    """Mutually independent entries of a sample: εb, or a diagonal of εw without bias."""
    return sample.bias if sample.bias is not None else _diagonal_entries(sample)


def _diagonal_entries(sample: NoiseSample) -> Tensor:
    """Entries of εw that share neither an input nor an output."""
    size = min(sample.weight.shape)
    return sample.weight[:size, :size].diagonal()


def _first_entry(sample: NoiseSample) -> Tensor:
    return sample.weight[:1, 0]


def _first_product(sample: NoiseSample) -> Tensor:
    """A product in which the sign of the output's factor cancels, or a single entry."""
    return sample.weight[:1, :2].prod(dim=1)


def _log_magnitude(values: Tensor) -> Tensor:
    return values.abs().clamp_min(1e-6).log()


def are_signs(samples: Sequence[NoiseSample]) -> bool:
    """Whether the entries of the noise differ in their signs only, as Rademacher noise does."""
    magnitudes = _log_magnitude(torch.stack([_output_entries(sample) for sample in samples]))
    return _deviation(magnitudes - magnitudes.mean()) < _EQUAL_MAGNITUDES


def _deviation(centred: Tensor) -> float:
    return float(centred.square().mean().sqrt())


def count_repeated_runs(first: list[NoiseSample], second: list[NoiseSample]) -> int:
    """Count the runs of four adjacent outputs' noise that occur in both series, up to a factor.

    Runs of signs are not counted: there are few, and all of them occur by chance.
    """
    a, b = _runs(first), _runs(second)
    if not len(a) or not len(b) or are_signs(first) or are_signs(second):
        return 0
    return int((torch.cdist(a, b, p=math.inf) < _SAME_RUN).sum())


def _runs(samples: list[NoiseSample]) -> Tensor:
    """Every run of four adjacent outputs' noise, as unit vectors [runs, 4]."""
    columns = [x.weight[:, 0] if x.bias is None else x.bias for x in samples[:_MOST_COMPARED]]
    noise = torch.stack(columns)  # [samples, outputs]
    if noise.shape[1] < 4:
        return noise.new_empty(0, 4)
    runs = noise.unfold(1, 4, 1).reshape(-1, 4)
    return F.normalize(runs, dim=1) * runs[:, :1].sign()


@dataclass(frozen=True)
class DeclaredNoise:
    """What a layer's noise is declared to be."""

    kind: Noise | None  # unknown
    distribution: Distribution = "gaussian"
    f: NoiseFunction = "signed_sqrt"

    def moments(self, kind: str) -> tuple[float, float, float]:
        """E|x|, E x² and E x⁴ of an entry x = f(ε) of factorised or x = ε of independent noise."""
        shaped = kind == "factorised" and self.f == "signed_sqrt"
        return (_SHAPED_MOMENTS if shaped else _MOMENTS)[self.distribution]


def compare_moments(
    samples: list[NoiseSample], kind: str, declared: DeclaredNoise | None = None
) -> tuple[str, bool]:
    """Compare the mean, the variance and the mean magnitude of a layer's noise with the expected.

    Distributions of the same variance, such as a standard normal and signs, differ in the mean
    magnitude. If `kind` is neither "factorised" nor "independent", only the mean is known.

    Returns:
        The figures, and whether they agree with the declared distribution.
    """
    values = torch.stack([_output_entries(sample) for sample in samples]).flatten()
    mean, variance = float(values.mean()), float(values.var())
    text = f"mean {mean:+.2f}, variance {variance:.2f}"
    if abs(mean) > SIGNIFICANT_Z * math.sqrt(variance / len(values)):
        return text, False
    if kind not in ("factorised", "independent"):
        return text, True
    magnitude = float(values.abs().mean())
    first, second, fourth = (declared or DeclaredNoise(None)).moments(kind)  # the paper's
    if kind == "factorised" and samples[0].bias is None:  # the entries are products of two
        first, second, fourth = first**2, second**2, fourth**2
    right = _agree(variance, second, fourth - second**2, len(values))
    right &= _agree(magnitude, first, second - first**2, len(values))
    return (
        f"{text} (expected {second:.2f}), mean magnitude {magnitude:.2f} (expected {first:.2f})",
        right,
    )


def _agree(found: float, expected: float, variance: float, count: int) -> bool:
    """Whether a mean of `count` numbers of the given variance agrees with the expected mean."""
    spread = math.sqrt(max(0.0, variance) / count)
    return abs(found - expected) <= max(SIGNIFICANT_Z * spread, _RECOVERY_ERROR)


def noise_structure(samples: list[NoiseSample]) -> str:
    """Return "factorised", "independent" or "unclear".

    Factorised noise εw is an outer product, with εb as its output factor (Eqs. 10, 11).
    """
    outputs, inputs = samples[0].weight.shape
    if outputs < 2 or (inputs < 2 and samples[0].bias is None):
        return "unclear"  # any single row or column is an outer product
    for sample in samples[:20]:
        factor = sample.weight[:, :1] if sample.bias is None else sample.bias[:, None]
        fit = factor @ (factor.t() @ sample.weight) / factor.square().sum().clamp_min(1e-12)
        if (sample.weight - fit).norm() > 0.02 * sample.weight.norm():
            return "independent"
    return "factorised"
