"""One seeded generator for each use of randomness, so that uses are independent."""

from __future__ import annotations

import zlib

import numpy as np
import torch


def torch_stream(seed: int, role: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator for `role` on a device."""
    return torch.Generator(device).manual_seed(_derived(seed, role))


def numpy_stream(seed: int, role: str) -> np.random.Generator:
    """A NumPy generator for `role`."""
    return np.random.default_rng(_derived(seed, role))


def _derived(seed: int, role: str) -> int:
    sequence = np.random.SeedSequence([seed, zlib.crc32(role.encode())])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
