"""Measurement of the noise of a layer from its outputs.

A noisy layer is affine in its input. Its output for a zero vector is its bias, and its output for a
unit vector is that bias plus a column of its weights. Measuring outputs instead of reading buffers
shows the noise that the layer really applies, whatever it stores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from noisynet.audit.detect import DetectedLayer
from noisynet.audit.log import NoiseSample

_SAMPLED_OUTPUTS: Final = 8
_SAMPLED_INPUTS: Final = 4
# A sample of a few signs says too little: of 8 outputs and 4 inputs there are only 4096.
_SAMPLED_SIGNS: Final = 32


class Probe:
    """Inputs [3 + units, in] whose outputs tell the noise of a layer: z, z, 0 and unit vectors."""

    def __init__(self, layer: DetectedLayer) -> None:
        self.layer = layer
        mu, _ = layer.weights
        width = mu.shape[1]
        self._outputs, self._columns = _measurable_entries(layer)
        z = torch.linspace(-1, 1, width) if width > 1 else torch.ones(1)
        units = F.one_hot(self._columns, width).to(z.dtype)
        rows = [z[None], z[None], torch.zeros(1, width), units]
        self.inputs = torch.cat(rows).to(mu.device, mu.dtype)

    def solve(self, outputs: Tensor) -> NoiseSample:
        """Solve for ε, given the layer's outputs [3 + units, out] or [3 + units, rows, out]."""
        mu, sigma = self.layer.weights
        bias_mu, bias_sigma = self.layer.biases
        expected = F.linear(self.inputs.to(mu.dtype), mu, bias_mu)
        outputs = outputs[:, None] if outputs.dim() == 2 else outputs
        centred = (outputs - expected[:, None]).float()  # [3 + units, rows, out]
        scale = mu.abs().amax().float() + 1
        shared = ((centred[0] - centred[1]).abs().amax(dim=-1) <= 1e-5 * scale).tolist()
        at_zero, at_units = centred[2, :, self._outputs], centred[3:, :, self._outputs]
        weight = (at_units - at_zero).permute(1, 2, 0)  # [rows, outputs, units]
        weight = _divide(weight, sigma[self._outputs][:, self._columns].float()).cpu()
        bias = None
        if bias_sigma is not None:
            bias = _divide(at_zero, bias_sigma[self._outputs].float()).cpu()  # [rows, outputs]
        first, *others = (
            NoiseSample(of_row, None if bias is None else bias[row], shared[row])
            for row, of_row in enumerate(weight)
        )
        return replace(first, other_rows=tuple(others))


def _measurable_entries(layer: DetectedLayer) -> tuple[slice, Tensor]:
    """Choose adjacent outputs and some inputs whose σ is large enough to solve for ε.

    In a trained layer some σ are almost zero. Dividing by them would amplify rounding errors.
    """
    (_, sigma), (_, bias) = layer.weights, layer.biases
    size = sigma.abs().float()
    outputs, inputs = size.shape
    threshold = 1e-3 * float(size.median())
    most_outputs, most_inputs = _SAMPLED_OUTPUTS, _SAMPLED_INPUTS
    if getattr(layer.module, "distribution", None) == "rademacher":
        most_outputs = most_inputs = _SAMPLED_SIGNS
    columns = torch.linspace(0, inputs - 1, min(inputs, most_inputs)).round().long()
    typical = size.median(dim=0).values
    if typical[columns].min() < threshold:
        columns = typical.topk(len(columns)).indices
    columns = torch.tensor(sorted(set(columns.tolist())))
    smallest = size[:, columns].amin(dim=1)
    if bias is not None:
        smallest = torch.minimum(smallest, bias.abs().float())
    for width in range(min(outputs, most_outputs), 0, -1):
        best, start = smallest.unfold(0, width, 1).amin(dim=1).max(dim=0)
        if best > threshold:
            return slice(int(start), int(start) + width), columns
    return slice(0, min(outputs, most_outputs)), columns


def _divide(noise: Tensor, sigma: Tensor) -> Tensor:
    return torch.where(sigma.abs() > 1e-12, noise / sigma, torch.zeros_like(noise))
