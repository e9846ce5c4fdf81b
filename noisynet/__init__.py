"""Noisy Networks for Exploration (Fortunato et al., ICLR 2018), implemented as written."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisynet.audit import record_noise
    from noisynet.integrations import check_noise
    from noisynet.layers import (
        NoisyLinear,
        NoisyLSTMCell,
        make_noisy,
        noise_off,
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


_ROOMS = {"check_noise": "integrations", "record_noise": "audit"}  # the others are in layers


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the command line validates its arguments without torch.
    if name in __all__:
        room = importlib.import_module(f"noisynet.{_ROOMS.get(name, 'layers')}")
        return getattr(room, name)
    raise AttributeError(f"module 'noisynet' has no attribute {name!r}")
