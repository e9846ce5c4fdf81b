"""What a training process sets once for itself."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

import torch

# glibc's names for its allocator's settings, from malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGEST_MMAP_THRESHOLD: Final = 32 << 20


def prepare_process() -> None:
    """Make arithmetic and memory fast; no number changes but those too small to matter.

    To be called before anything is computed: torch's threads take over the handling of denormal
    numbers from the one that starts them, at their first common work.
    """
    torch.set_flush_denormal(True)  # denormal optimiser statistics are many times slower
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let the allocator keep what is freed for the next update, which needs as much again.

    By default glibc gives gradients and activations back to the system after each update, and the
    next one waits for hundreds of page faults.
    """
    with suppress(OSError, AttributeError):  # another C library: its own habits will do
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 1 << 30)
        mallopt(_TOP_PAD, 64 << 20)
