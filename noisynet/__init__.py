"""Noisy Networks for Exploration (Fortunato et al., ICLR 2018), implemented as written."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisynet.api import Agent, load
    from noisynet.audit import record_noise
    from noisynet.callbacks import Callback
    from noisynet.integrations import check_noise
    from noisynet.layers import (
        NoisyLinear,
        NoisyLSTMCell,
        make_noisy,
        make_plain,
        noise_off,
        resample_noise,
        sigma_summary,
    )

__all__ = [
    "Agent",
    "Callback",
    "NoisyLSTMCell",
    "NoisyLinear",
    "check_noise",
    "load",
    "make_noisy",
    "make_plain",
    "noise_off",
    "record_noise",
    "resample_noise",
    "sigma_summary",
]


_ROOMS = {  # the others are in layers
    "Agent": "api",
    "Callback": "callbacks",
    "check_noise": "integrations",
    "load": "api",
    "record_noise": "audit",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the command line validates its arguments without torch.
    if name in __all__:
        room = importlib.import_module(f"noisynet.{_ROOMS.get(name, 'layers')}")
        return getattr(room, name)
    raise AttributeError(f"module 'noisynet' has no attribute {name!r}")
