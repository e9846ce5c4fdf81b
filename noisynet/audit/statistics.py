"""Statistics of noise samples: correlation, moments, structure and repeated numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from noisynet.audit.log import NoiseSample

SIGNIFICANT_Z: Final = 5.5
"""The number of standard errors from which a deviation is not attributed to chance."""

# Two independent runs of four normals come this close once in 10⁹ comparisons.
_SAME_RUN: Final = 1e-3
_MOST_COMPARED: Final = 400


def correlate(first: Sequence[NoiseSample], second: Sequence[NoiseSample]) -> tuple[float, float]:
    """Correlate two series of noise samples.

    Values and magnitudes are both compared: two products that share one factor are uncorrelated
    in value, but not in magnitude.

    Returns:
        The correlation with the largest z-score, and that z-score.
    """
    found = []
    for entries in (_output_entries, _diagonal_entries, _first_entry):
        pairs = zip(map(entries, first), map(entries, second), strict=False)
        cut = [(a[: len(b)], b[: len(a)]) for a, b in pairs]
        series = [torch.stack(samples) for samples in zip(*cut, strict=True)]  # [samples, entries]
        for transform in (torch.clone, _log_magnitude):
            a, b = (values - values.mean() for values in map(transform, series))
            norm = float(a.norm() * b.norm())
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


def _log_magnitude(values: Tensor) -> Tensor:
    return values.abs().clamp_min(1e-6).log()


def count_repeated_runs(first: list[NoiseSample], second: list[NoiseSample]) -> int:
    """Count the runs of four adjacent outputs' noise that occur in both series, up to a factor."""
    a, b = _runs(first), _runs(second)
    if not len(a) or not len(b):
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


def compare_moments(samples: list[NoiseSample], kind: str) -> tuple[str, bool]:
    """Compare the mean and the variance of the noise with those of section 3.

    Returns:
        The figures, and whether they agree with the given kind of noise.
    """
    values = torch.stack([_output_entries(sample) for sample in samples]).flatten()
    mean, variance = float(values.mean()), float(values.var())
    text = f"mean {mean:+.2f}, variance {variance:.2f}"
    if abs(mean) > SIGNIFICANT_Z * math.sqrt(variance / len(values)):
        return text, False
    # Var f(ε) = E|ε| = √(2/π) and E f(ε)⁴ = 1; without a bias the entries are products of two such.
    # A standard normal has variance 1 and fourth moment 3.
    f_variance = math.sqrt(2 / math.pi)
    factorised = (f_variance if samples[0].bias is not None else f_variance**2, 1.0)
    expected, fourth = {"factorised": factorised, "independent": (1.0, 3.0)}.get(kind, (None, 0.0))
    if expected is None:
        return text, True
    spread = math.sqrt((fourth - expected**2) / len(values))
    return f"{text} (expected {expected:.2f})", abs(variance - expected) <= SIGNIFICANT_Z * spread


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
