"""The cache of compiled kernels: shared by processes, and invalidated by changed sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noisynet.kernels.compiled import compiled

INNER = (
    "from noisynet.kernels.compiled import compiled\n"
    "@compiled\n"
    "def inner(x):\n"
    "    return x + {added}\n"
)
OUTER = (
    "from inner import inner\n"
    "from noisynet.kernels.compiled import compiled\n"
    "@compiled\n"
    "def outer(x):\n"
    "    return 10 * inner(x)\n"
    "print(outer(1), sum(outer.stats.cache_hits.values()))\n"
)


def test_a_change_in_a_called_function_invalidates_the_cache(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text(OUTER)
    printed = []
    for added in (1, 1, 2):
        (tmp_path / "inner.py").write_text(INNER.format(added=added))
        done = subprocess.run(
            [sys.executable, "outer.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        printed.append(done.stdout.split())
    # The result, and the number of cache hits.
    assert printed == [["20", "0"], ["20", "1"], ["30", "0"]]


ALONE = (
    "import resource, sys\n"
    "from noisynet.kernels.compiled import compiled\n"
    "@compiled\n"
    "def alone(x):\n"
    "    return x + 1\n"
    "limit = int(sys.argv[1])\n"
    "if limit >= 0:\n"
    "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
    "print(alone(1), sum(alone.stats.cache_hits.values()))\n"
)


def run_alone(folder: Path, limit: int = -1) -> list[str]:
    """The result, and the number of cache hits."""
    (folder / "alone.py").write_text(ALONE)
    done = subprocess.run(
        [sys.executable, "alone.py", str(limit)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


# Data, and the index.
@pytest.mark.parametrize(
    ("kind", "then", "damage"), [("nbc", "1", b"\x80\x04]"), ("nbi", "0", b"")]
)
def test_a_damaged_cache_does_not_stop_a_kernel(
    kind: str, then: str, damage: bytes, tmp_path: Path
) -> None:
    """Numba does not sync its files: after a power loss, some may be empty."""
    assert run_alone(tmp_path) == ["2", "0"]
    (damaged,) = (tmp_path / "__pycache__").glob(f"alone.alone*.{kind}")
    damaged.write_bytes(damage)
    assert run_alone(tmp_path) == ["2", "0"]
    assert run_alone(tmp_path) == ["2", then]


def test_a_disk_without_space_for_the_cache_does_not_stop_a_kernel(tmp_path: Path) -> None:
    assert run_alone(tmp_path, limit=0) == ["2", "0"]


def test_without_a_folder_to_write_every_process_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unwritable(path: str, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "makedirs", unwritable)  # before it makes a cache folder
    kernel: Any = compiled(lambda x: x + 1)
    assert kernel(1) == 2
    assert kernel.stats.cache_path is None
