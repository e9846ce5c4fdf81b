"""Settings of a training process: denormals, memory and threads."""

from __future__ import annotations

import ctypes
import faulthandler
import io
from contextlib import suppress
from typing import Final

import torch

from noisynet.config import ActorCriticConfig, Config
from noisynet.envs import EnvironmentSpec

# glibc's names for its allocator's settings, from malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGEST_MMAP_THRESHOLD: Final = 32 << 20
_SMALLEST_LARGE_IMAGE: Final = 36  # pixels; the least that the Nature convolutions take


def prepare_process() -> None:
    """Flush denormals, keep freed memory, and name the line of Python in which a crash happens.

    Call this before anything is computed: torch's threads inherit the treatment of denormals from
    the thread that starts them, at the first parallel operation.
    """
    torch.set_flush_denormal(True)  # denormal optimiser statistics are many times slower
    _keep_freed_memory()
    with suppress(AttributeError, OSError, RuntimeError, io.UnsupportedOperation):  # no stderr
        faulthandler.enable()


def has_large_images(spec: EnvironmentSpec) -> bool:
    """Whether observations are images of Atari's size, for which networks have large layers."""
    shape = spec.frame_shape
    return len(shape) in (2, 3) and min(shape[-2:]) >= _SMALLEST_LARGE_IMAGE


def default_threads(config: Config | ActorCriticConfig, spec: EnvironmentSpec) -> int:
    """Return the number of torch threads for a run whose configuration leaves it open.

    Splitting a small operation between threads takes longer than computing it in one, and A3C
    uses the cores for its workers.
    """
    if isinstance(config, ActorCriticConfig) or not has_large_images(spec):
        return 1
    return torch.get_num_threads()


def choose_threads(given: int | None, stored: int | None, default: int) -> tuple[int, str]:
    """Choose the number of torch threads of a run.

    Returns:
        The number, and a note for the user if it is not the stored or not the default one.
    """
    threads = given or stored or default
    note = ""
    if stored is not None and threads != stored:
        note = (
            f"this run was started with {stored} threads and now uses {threads}: results may "
            "differ in the last bits"
        )
    elif stored is not None and given is None and threads != default:
        note = (
            f"this run was started with {stored} threads and uses them again; the default here is "
            f"{default}"
        )
    return threads, note


def _keep_freed_memory() -> None:
    """Make the allocator keep freed memory for the next update.

    By default glibc returns gradients and activations to the system after each update, and the next
    one takes hundreds of page faults.
    """
    with suppress(OSError, AttributeError):  # not glibc: its defaults stay
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 1 << 30)
        mallopt(_TOP_PAD, 64 << 20)
