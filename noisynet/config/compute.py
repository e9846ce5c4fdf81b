"""The setting `compute`, and whether this machine can do what it asks for. Needs no torch."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import Literal

Compute = Literal["auto", "torch", "compile"]


def cxx_compiler() -> str | None:
    """The path of the C++ compiler that `torch.compile` can use; None if there is none."""
    candidates = (os.environ.get("CXX"), "g++", "clang++", "c++")
    return next((path for name in candidates if name and (path := shutil.which(name))), None)


def has_kernels() -> bool:
    """Whether numba is installed, with which `auto` uses compiled kernels on a CPU."""
    return importlib.util.find_spec("numba") is not None


def missing_for(compute: Compute) -> str | None:
    """What to install for `compute`; None if it can be used on this machine."""
    if compute != "compile" or cxx_compiler() is not None:
        return None
    return (
        "compute=compile expects a C++ compiler, which torch.compile calls, got none on PATH: "
        "install g++ or clang++ (Debian, Ubuntu: apt install g++; macOS: xcode-select --install), "
        "or set CXX, or choose compute=torch"
    )
