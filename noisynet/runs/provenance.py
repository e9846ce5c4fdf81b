"""What made a run: versions, commit, machine and device."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = ("noisynet", "torch", "numpy", "numba", "gymnasium", "ale-py", "minatar")


def describe_machine(device: str) -> dict[str, Any]:
    """Return what this process runs on, JSON-able."""
    return {
        "versions": {"python": platform.python_version(), **_installed()},
        "commit": _commit(),
        "machine": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": device,
    }


def format_bytes(count: int) -> str:
    """Format a size: 1.4 MB, 7.2 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _installed() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _commit() -> str | None:
    """Return the commit of the source, with -dirty after changes; None outside a checkout."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    with suppress(OSError, subprocess.SubprocessError):
        ended = subprocess.run(
            [*command, "--exclude=*"], capture_output=True, text=True, check=True, timeout=10
        )
        return ended.stdout.strip()
    return None


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
