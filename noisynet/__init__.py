"""Noisy Networks for Exploration (Fortunato et al., ICLR 2018), implemented as written."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisynet.integrations import check_noise
    from noisynet.layers import (
        NoisyLinear,
        NoisyLSTMCell,
        make_noisy,
        noise_off,
        record_noise,
        resample_noise,
        sigma_summary,
    )

__all__ = [
    "NoisyLSTMCell",
    "NoisyLinear",
    "check_noise",
    "make_noisy",
    "noise_off",
    "record_noise",
    "resample_noise",
    "sigma_summary",
]


def __getattr__(name: str) -> Any:
    # On first use, so that the command line can refuse a bad command without waiting for torch.
    if name in __all__:
        home = "noisynet.integrations" if name == "check_noise" else "noisynet.layers"
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'noisynet' has no attribute {name!r}")
