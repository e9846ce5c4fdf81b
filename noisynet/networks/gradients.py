"""Where gradients go."""

from __future__ import annotations

import torch
from torch import Tensor


def gradient_of(parameter: Tensor | None) -> Tensor:
    """Where a parameter's gradient goes: the last one's place, if it lies as the parameter does."""
    assert parameter is not None, "every layer here has biases"
    kept = parameter.grad
    if kept is None or kept.stride() != parameter.stride() or kept.dtype != parameter.dtype:
        kept = parameter.grad = torch.empty_like(parameter, requires_grad=False)
    return kept
